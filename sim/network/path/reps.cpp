#include "sim/base/error.hpp"
#include "sim/network/path/oblivious.hpp"

#include <array>

namespace orrery::network::packet {

namespace {

/// REPS: Bonato et al., "REPS: recycled entropy packet spraying for adaptive load balancing and failure mitigation",
/// arXiv:2407.21625, algorithms 1 and 2. Each entropy that comes back unmarked is sent once more, the oldest first; with none
/// at hand a fresh one is drawn. After a timeout the buffer is frozen: the entropies in it, used or not, go round, so that
/// nothing is sent over paths that have not been heard of; when that ends some packets explore anew.
/// The buffer's length is the paper's; how long it stays frozen and how many explore are those of its authors' simulator.
class Reps final : public Oblivious {
  public:
    struct Parameters : Oblivious::Parameters {
        double freeze = 10e-3;  ///< s
        void describe(Fields& fields) {
            Oblivious::Parameters::describe(fields);
            fields.quantity(
                {"reps_freeze", "time after a timeout during which a flow keeps to paths that delivered", false, 0, 1},
                Dimension::time, freeze);
        }
    };
    explicit Reps(const Parameters& own)
        : Oblivious(own),
          entropies_(static_cast<std::uint32_t>(own.entropies)),
          freeze_(SimTime::from_seconds(own.freeze).ps()) {}

    [[nodiscard]] PathNeeds needs() const override { return {.learns = true}; }
    void start(std::uint32_t flow) override {
        if (flow >= buffers_.size()) {
            buffers_.resize(std::size_t{flow} + 1);
        }
        buffers_[flow] = {};
    }
    [[nodiscard]] std::uint32_t pick(std::uint32_t flow, FlowPath& path, std::int64_t) override {
        Buffer& buffer = buffers_[flow];
        if (buffer.explore > 0) {
            --buffer.explore;
            return fresh(path);
        }
        if (buffer.frozen ? buffer.count == 0 : buffer.unused == 0) {
            return fresh(path);
        }
        ORRERY_ASSERT(buffer.unused <= buffer.count);
        std::uint8_t& at = buffer.next_frozen;
        const std::uint32_t slot = buffer.frozen ? at : (buffer.head + kLength - buffer.unused) % kLength;
        if (buffer.frozen) {
            at = static_cast<std::uint8_t>((at + 1U) % buffer.count);
        }
        ORRERY_ASSERT(buffer.frozen || buffer.valid[slot]);
        buffer.unused = static_cast<std::uint8_t>(buffer.unused - (buffer.valid[slot] ? 1 : 0));
        buffer.valid[slot] = false;
        return buffer.values[slot];
    }
    void heard(std::uint32_t flow, std::uint32_t entropy, PathNews news, std::int64_t now) override {
        Buffer& buffer = buffers_[flow];
        if (news == PathNews::timed_out && !buffer.frozen && buffer.explore == 0 && freeze_ > 0) {
            buffer.frozen = true;
            buffer.until = now + freeze_;
        }
        if (buffer.frozen && now > buffer.until) {
            buffer = {};
            buffer.explore = kExplore;
        }
        if (news == PathNews::good || news == PathNews::trimmed_last) {
            buffer.unused = static_cast<std::uint8_t>(buffer.unused + (buffer.valid[buffer.head] ? 0 : 1));
            buffer.values[buffer.head] = entropy;
            buffer.valid[buffer.head] = true;
            buffer.head = static_cast<std::uint8_t>((buffer.head + 1U) % kLength);
            buffer.count = static_cast<std::uint8_t>(std::min<std::uint32_t>(buffer.count + 1U, kLength));
        }
    }
    void shift(std::uint32_t flow, std::int64_t time) override { buffers_[flow].until += time; }

  private:
    static constexpr std::uint32_t kLength = 8;
    static constexpr std::uint8_t kExplore = 16;
    struct Buffer {
        std::array<std::uint32_t, kLength> values{};
        std::array<bool, kLength> valid{};  ///< heard of and not used since
        std::int64_t until = 0;             ///< ps, frozen
        std::uint8_t head = 0;              ///< slot that the next entropy takes
        std::uint8_t unused = 0;            ///< valid ones
        std::uint8_t count = 0;             ///< slots ever filled
        std::uint8_t next_frozen = 0;
        std::uint8_t explore = 0;  ///< packets still to send over fresh entropies
        bool frozen = false;
    };
    // Drawn at random, so that flows do not walk through their entropies in step.
    [[nodiscard]] std::uint32_t fresh(FlowPath& path) const {
        const std::uint64_t drawn = mix64(~path.hash + path.sprayed++);
        return static_cast<std::uint32_t>(mix64(path.hash + (entropies_ > 0 ? drawn % entropies_ : drawn)) >> 32);
    }

    std::uint32_t entropies_;
    std::int64_t freeze_;          ///< ps
    std::vector<Buffer> buffers_;  ///< by flow
};

}  // namespace

extern const PolicyRow<PathChooser> kReps =
    policy_row<PathChooser, Reps>("reps", "REPS: reused paths that came back unmarked, frozen after a timeout");

}  // namespace orrery::network::packet
