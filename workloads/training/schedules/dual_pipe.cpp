#include "sim/base/error.hpp"
#include "workloads/training/schedules/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace orrery::training {

namespace {

/// Two ways through the model at once, of `each` micro-batches: a stage that is `rank` of `ranks` from the end at which the first way
/// begins and the second one ends takes passes of both in turn. Where there are others to wait for, backward passes are whole;
/// at the end they are in two, and gradients of weights fill what would be waiting.
class TwoWays {
  public:
    TwoWays(std::uint32_t ranks, std::uint32_t rank, std::uint32_t each) {
        const std::uint32_t inner = ranks - rank - 1;  // stages between this one and where both ways meet
        const std::uint32_t outer = rank + 1;
        repeat(inner * 2, [&] { forward(0); });
        repeat(outer, [&] {
            forward(0);
            forward(1);
        });
        repeat(inner, [&] {
            input_gradient(1);
            weight_gradient();
            forward(1);
        });
        repeat(each - 2 * ranks + outer, [&] {
            both(0, 1);
            both(1, 0);
        });
        repeat(inner, [&] {
            backward(1);
            both(1, 0);
        });
        // The second half of these in two.
        for (std::uint32_t i = 0; i < 2 * outer; ++i) {
            const std::uint32_t way = i % 2 == 0 ? 1 : 0;
            if (i < outer) {
                backward(way);
            } else {
                input_gradient(way);
            }
        }
        repeat(inner, [&] {
            weight_gradient();
            input_gradient(0);
        });
        repeat(outer, [&] { weight_gradient(); });
        ORRERY_ASSERT(pending_.empty());
        ORRERY_ASSERT(forward_[0] == each && forward_[1] == each && backward_[0] == each && backward_[1] == each);
    }

    [[nodiscard]] std::vector<Pass> passes() && { return std::move(passes_); }

  private:
    template <class Do>
    static void repeat(std::uint32_t times, const Do& what) {
        for (std::uint32_t i = 0; i < times; ++i) {
            what();
        }
    }
    void forward(std::uint32_t way) { passes_.push_back({PassWork::forward, way, forward_[way]++}); }
    void backward(std::uint32_t way) { passes_.push_back({PassWork::backward, way, backward_[way]++}); }
    // A forward pass of one way overlaps with a backward pass of the other.
    void both(std::uint32_t onward, std::uint32_t back) {
        forward(onward);
        passes_.back().joined = true;
        backward(back);
    }
    void input_gradient(std::uint32_t way) {
        passes_.push_back({PassWork::input_gradient, way, backward_[way]});
        pending_.push_back({PassWork::weight_gradient, way, backward_[way]++});
    }
    void weight_gradient() {
        ORRERY_ASSERT(!pending_.empty());
        passes_.push_back(pending_.front());
        pending_.pop_front();
    }

    std::uint32_t forward_[2] = {0, 0};
    std::uint32_t backward_[2] = {0, 0};
    std::deque<Pass> pending_;
    std::vector<Pass> passes_;
};

// Micro-batches of the second way are the second half, and stages of the second half take them as those of the first half take the
// first way.
PipelineOrder both_ways(const PipelineShape& shape) {
    const std::uint32_t half = shape.stages / 2;
    const std::uint32_t each = shape.micro_batches / 2;
    return of_stages(shape, [&](std::uint32_t stage) {
        const bool mirrored = stage >= half;
        std::vector<Pass> passes = TwoWays(half, mirrored ? shape.stages - 1 - stage : stage, each).passes();
        for (Pass& pass : passes) {
            pass.chunk = mirrored ? 1 - pass.chunk : pass.chunk;
            pass.micro_batch += pass.chunk * each;
        }
        return passes;
    });
}

std::string dual_problem(const PipelineShape& shape) {
    if (shape.stages % 2 != 0 || shape.chunks != 2) {
        return fmt::format(
            "dualpipe holds two of the parts of the model on each of an even number of stages: chunks: 2, and "
            "not {} stages with {} chunks",
            shape.stages, shape.chunks);
    }
    if (shape.micro_batches % 2 != 0 || shape.micro_batches < 2 * shape.stages) {
        return fmt::format(
            "dualpipe needs an even number of micro-batches, at least two a stage, and not {} for {} stages",
            shape.micro_batches, shape.stages);
    }
    return "";
}

std::string dual_v_problem(const PipelineShape& shape) {
    if (shape.stages == 1 || shape.chunks != 2) {
        return "dualpipev holds two chunks on each of at least two stages: chunks: 2";
    }
    if (shape.micro_batches < 2 * shape.stages) {
        return fmt::format("dualpipev needs at least two micro-batches a stage, and not {} for {} stages",
                           shape.micro_batches, shape.stages);
    }
    return "";
}

}  // namespace

// Micro-batches come in at both ends, and every stage holds two parts of the model, one for each way: two copies of the parameters,
// whose gradients are reduced over both. A stage always has a forward pass of one way to overlap with a backward pass of the other
// (overlap.experts: batches). With equal passes f, backward b and weight gradients w a stage waits (p / 2 - 1)(f + 2 b - 3 w), and it
// holds the activations of p + 1 micro-batches.
// Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.2.1 and table 2; the numbers of passes of each
// kind are those of the published implementation, deepseek-ai/DualPipe.
extern const PipelineSchedule kDualPipe = {
    "dualpipe",
    "DualPipe: micro-batches from both ends, with two copies of the parameters",
    true,
    false,  // it holds the parameters twice
    dual_problem,
    both_ways,
    [](const PipelineShape& shape) { return std::vector<std::uint32_t>(shape.stages, shape.stages + 1); },
    [](const PipelineShape& shape) { return (shape.stages - 2) / 3.0; },
    true,
    StageMap::both_ways};

// The same, cut in half: there and back over two chunks a stage, with one copy of the parameters.
// Source: deepseek-ai/DualPipe (DualPipeV, after Sea AI Lab's "cut-in-half").
extern const PipelineSchedule kDualPipeV = {
    "dualpipev",
    "DualPipeV: two chunks per stage in a V, forward and backward passes in turn",
    true,
    true,
    dual_v_problem,
    [](const PipelineShape& shape) {
        return of_stages(
            shape, [&](std::uint32_t stage) { return TwoWays(shape.stages, stage, shape.micro_batches).passes(); });
    },
    [](const PipelineShape& shape) { return std::vector<std::uint32_t>(shape.stages, 2 * shape.stages + 1); },
    [](const PipelineShape& shape) { return (shape.stages - 1) / 3.0; },
    true,
    StageMap::back_and_forth};

}  // namespace orrery::training
