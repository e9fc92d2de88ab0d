#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

namespace {

/// One path per flow, by a hash of its ends, or of each message. Weights by the rates of links: Zhou et al., "WCMP: weighted cost
/// multipathing for improved fairness in data centers", EuroSys 2014.
class Ecmp final : public PathChooser {
  public:
    enum class By { pair, message };
    struct Parameters {
        By by = By::pair;
        bool weighted = false;
        void describe(Fields& fields) {
            fields.enumeration({"hash_by", "ecmp: all messages of a pair of GPUs go one path, or each its own"},
                               {"pair", "message"}, by);
            fields.boolean(
                {"weighted", "ecmp: spines in proportion to the rates of their links, as routing knows them"},
                weighted);
        }
    };
    explicit Ecmp(const Parameters& own) : own_(own) {}

    [[nodiscard]] PathNeeds needs() const override {
        return {.hashed = true, .one_path = true, .per_message = own_.by == By::message, .weighted = own_.weighted};
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<PathChooser> kEcmp = policy_row<PathChooser, Ecmp>("ecmp", "a hash picks one path per flow");

}  // namespace orrery::network::packet
