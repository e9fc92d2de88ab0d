#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>

namespace orrery::training {

namespace {

/// A forward or backward pass of a micro-batch through a part of the model.
struct WavePass {
    std::uint64_t due;  ///< when it would end were nothing ever to wait, of which the earliest goes first
    bool forward;
    std::uint32_t part, micro_batch;
    friend auto operator<=>(const WavePass&, const WavePass&) = default;
};

/// All stages in time, a forward pass of a chunk taking one step and a backward pass two: a stage takes, of the passes whose input is
/// there, the one that is due first. A micro-batch may enter once all but 2 p - 1 of those before it have left.
class WavePipeline {
  public:
    explicit WavePipeline(const PipelineShape& shape)
        : shape_(shape),
          parts_(parts_of(StageMap::back_and_forth, shape)),
          order_(shape.stages),
          ready_(shape.stages),
          free_(shape.stages, 0) {
        for (; entered_ < std::min(shape.micro_batches, 2 * shape.stages); ++entered_) {
            arrive(0, {due(true, 0, entered_), true, 0, entered_});
        }
        for (std::uint64_t now = 0; !arriving_.empty() || any_ready(); now = next_time(now)) {
            while (!arriving_.empty() && std::get<0>(arriving_.top()) <= now) {
                const WavePass pass = std::get<1>(arriving_.top());
                arriving_.pop();
                ready_[place(pass.part).stage].insert(pass);
            }
            for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
                if (free_[stage] <= now && !ready_[stage].empty()) {
                    run(stage, now);
                }
            }
        }
    }
    [[nodiscard]] PipelineOrder order() && { return std::move(order_); }

  private:
    [[nodiscard]] ChunkPlace place(std::uint32_t part) const {
        return place_of_part(StageMap::back_and_forth, shape_, part, 0);
    }
    // The time along a micro-batch's own way, from where it would enter were those before it spread evenly: within a round of as many
    // as stages three steps apart, and rounds closer than what a stage has to do in one, so that the next fills the waits of this.
    [[nodiscard]] std::uint64_t due(bool forward, std::uint64_t part, std::uint64_t micro_batch) const {
        const std::uint64_t way = forward ? part + 1 : parts_ + 2 * (parts_ - part);
        return 2UL * shape_.chunks * shape_.stages * (micro_batch / shape_.stages) + 3 * (micro_batch % shape_.stages) +
               way;
    }
    void arrive(std::uint64_t at, const WavePass& pass) { arriving_.emplace(at, pass); }
    [[nodiscard]] bool any_ready() const {
        return std::any_of(ready_.begin(), ready_.end(), [](const auto& passes) { return !passes.empty(); });
    }
    [[nodiscard]] std::uint64_t next_time(std::uint64_t now) const {
        std::uint64_t next = arriving_.empty() ? ~std::uint64_t{0} : std::get<0>(arriving_.top());
        for (const std::uint64_t free : free_) {
            next = free > now ? std::min(next, free) : next;
        }
        return next;
    }
    void run(std::uint32_t stage, std::uint64_t now) {
        const WavePass pass = *ready_[stage].begin();
        ready_[stage].erase(ready_[stage].begin());
        const std::uint32_t m = pass.micro_batch;
        free_[stage] = now + (pass.forward ? 1 : 2);
        order_[stage].push_back({forward_or(!pass.forward), place(pass.part).chunk, m});
        if (pass.forward) {
            const bool turns = pass.part + 1 == parts_;
            const std::uint32_t part = turns ? pass.part : pass.part + 1;
            arrive(free_[stage], {due(!turns, part, m), !turns, part, m});
        } else if (pass.part > 0) {
            arrive(free_[stage], {due(false, pass.part - 1, m), false, pass.part - 1, m});
        } else if (entered_ < shape_.micro_batches) {
            arrive(free_[stage], {due(true, 0, entered_), true, 0, entered_});
            ++entered_;
        }
    }

    PipelineShape shape_;
    std::uint32_t parts_;
    PipelineOrder order_;
    std::vector<std::set<WavePass>> ready_;  ///< by stage
    std::vector<std::uint64_t> free_;        ///< when a stage is done with its pass
    using Arrival = std::tuple<std::uint64_t, WavePass>;
    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arriving_;
    std::uint32_t entered_ = 0;
};

PipelineOrder waves(const PipelineShape& shape) {
    return WavePipeline(shape).order();
}

}  // namespace

// Waves over the stages: a micro-batch goes to the last stage and back through two chunks a wave, so that a stage that waits for the
// end of one wave has passes of another. With backward passes of twice the length no stage waits less than 3 (p - 1) chunks' passes, which
// is 1F1B's wait over the chunks; a round of p micro-batches in one wave waits 4 (p - 1), and this order at most two thirds of 1F1B's.
// Source: Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism", SC23, arXiv:2308.15762, section 3.
// Limits: the order is ours, by due times, for passes of these lengths; the authors list no rule beyond one round.
extern const PipelineSchedule kHanayo = {
    "hanayo",
    "Hanayo: waves over an even number of chunks per stage, which divide the waits",
    true,
    true,
    [](const PipelineShape& shape) -> std::string {
        if (shape.stages == 1) {
            return "waves need at least two pipeline stages";
        }
        return shape.chunks % 2 == 1 ? "a wave is two chunks a stage: an even number of chunks is needed" : "";
    },
    waves,
    [](const PipelineShape& shape) { return peaks_of(waves(shape)); },
    [](const PipelineShape& shape) {
        const std::vector<std::uint32_t> times = {1, 2, 1, 1, 1, 1};
        return longest_wait(StageMap::back_and_forth, false, shape, waves(shape), times) / (3.0 * shape.chunks);
    },
    false,
    StageMap::back_and_forth};

}  // namespace orrery::training
