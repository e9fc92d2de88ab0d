// Per dimension, on tori and other products: reduce-scatter along one dimension after another, each on what the last one
// left, and all-gather back. The payload is cut into one part a dimension and direction; part p begins with dimension p, so that
// all links work at once.
//
// Source: Sack and Gropp, "Collective Algorithms for Multiported Torus Networks", ACM TOPC 1(2), 2015, section 4 (bucket
// algorithms with several ports).

#include "sim/network/topology/product.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"

#include <algorithm>

namespace orrery::inline collective {

namespace {

std::vector<std::uint32_t> shape_for(const CollectiveSpec& spec, std::uint32_t ranks) {
    std::vector<std::string> problems;
    std::vector<std::uint32_t> shape = parse_sizes(spec.shape, problems);
    std::uint64_t product = 1;
    for (const std::uint32_t size : shape) {
        product *= size;
    }
    if (shape.empty() || product != ranks) {
        throw InfeasibleError(spec.shape.empty()
                                  ? std::string("algorithm per-dimension needs a torus or 'collective.shape'")
                                  : "collective.shape " + spec.shape + " does not hold " + std::to_string(ranks) +
                                        " ranks");
    }
    return shape;
}

class PerDimension {
  public:
    PerDimension(ScheduleBuilder& builder, std::vector<std::uint32_t> shape, std::uint32_t ranks)
        : builder_(builder), shape_(std::move(shape)), ranks_(ranks) {}

    void add_part(CollectiveOp op, std::size_t first, bool backwards, double bytes) {
        std::vector<std::uint32_t> reached(ranks_, kNoMessage);
        std::vector<std::size_t> order;
        for (std::size_t k = 0; k < shape_.size(); ++k) {
            order.push_back((first + k) % shape_.size());
        }
        double left = bytes;
        for (std::size_t k = 0; k < order.size() && op != CollectiveOp::all_gather; ++k) {
            left /= shape_[order[k]];
            along(order[k], backwards, left, reached);
        }
        left = bytes / ranks_;
        for (std::size_t k = order.size(); k-- > 0 && op != CollectiveOp::reduce_scatter;) {
            along(order[k], backwards, left, reached);
            left *= shape_[order[k]];
        }
    }

  private:
    // A ring of size - 1 steps in every line of a dimension.
    void along(std::size_t dimension, bool backwards, double bytes, std::vector<std::uint32_t>& reached) {
        const std::uint32_t n = shape_[dimension];
        if (n == 1) {
            return;
        }
        std::uint32_t stride = 1;
        for (std::size_t d = 0; d < dimension; ++d) {
            stride *= shape_[d];
        }
        for (std::uint32_t line = 0; line < ranks_ / n; ++line) {
            const std::uint32_t base = line / stride * stride * n + line % stride;
            std::vector<std::uint32_t> members;
            std::vector<std::uint32_t> waits;
            for (std::uint32_t i = 0; i < n; ++i) {
                members.push_back(base + (backwards ? n - 1 - i : i) * stride);
                waits.push_back(reached[members.back()]);
            }
            const auto last = add_ring(builder_, members, bytes, n - 1, waits);
            for (std::uint32_t i = 0; i < n; ++i) {
                reached[members[i]] = last[i];
            }
        }
    }

    ScheduleBuilder& builder_;
    std::vector<std::uint32_t> shape_;
    std::uint32_t ranks_;
};

}  // namespace

extern const CollectiveAlgorithm kPerDimensionAlgorithm = {
    "per-dimension",
    "along each dimension of a torus in turn, both ways round at once (Sack and Gropp, TOPC 2015)",
    [](Fields& fields, CollectiveSpec& spec) {
        fields.text({"shape", "ranks in each dimension, joined by x; left out: those of the fabric"}, spec.shape);
    },
    [](const CollectiveSpec& spec, double ranks, double) {
        std::vector<std::string> problems;
        double steps = 0;
        const std::vector<std::uint32_t> shape = parse_sizes(spec.shape, problems);
        for (const std::uint32_t size : shape) {
            steps += size - 1;
        }
        return 4 * ranks * steps * static_cast<double>(shape.size());
    },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_served(spec, reduces_or_gathers(spec.op), "all-reduce, all-gather and reduce-scatter");
        const std::vector<std::uint32_t> shape = shape_for(spec, ranks);
        PerDimension schedule(builder, shape, ranks);
        const double part = spec.bytes / (2 * static_cast<double>(shape.size()));
        for (std::size_t first = 0; first < shape.size(); ++first) {
            schedule.add_part(spec.op, first, false, part);
            schedule.add_part(spec.op, first, true, part);
        }
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        if (!reduces_or_gathers(spec.op) || links.shape.size() < 2) {
            return kNotServed;
        }
        const double part = spec.bytes / (2 * static_cast<double>(links.shape.size()));
        const double rounds = spec.op == CollectiveOp::all_reduce ? 2 : 1;
        double seconds = 0;
        double left = part;
        for (const std::uint32_t size : links.shape) {
            left /= size;
            seconds += rounds * (size - 1) * (links.outside_latency + left / links.flow_rate);
        }
        return seconds;
    }};

}  // namespace orrery::inline collective
