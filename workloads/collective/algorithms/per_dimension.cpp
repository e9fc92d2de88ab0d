// Per dimension, on tori and other products: reduce-scatter along one dimension after another, each on what the last one
// left, and all-gather back. The payload is cut into one part a dimension and direction; part p begins with dimension p, so that
// all links work at once.
//
// Source: Sack and Gropp, "Collective Algorithms for Multiported Torus Networks", ACM TOPC 1(2), 2015, section 4 (bucket
// algorithms with several ports).

#include "sim/network/topology/product.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"

#include <algorithm>

namespace orrery::collective {

extern const CollectiveAlgorithm kPerDimensionAlgorithm;

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

// Calls `along(dimension, bytes)` for every ring of a part, in their order.
template <class F>
void for_each_ring(const std::vector<std::uint32_t>& shape, CollectiveOp op, std::size_t first, double bytes,
                   const F& along) {  // with whether sums are made
    const std::size_t count = shape.size();
    double left = bytes;
    for (std::size_t k = 0; k < count && op != CollectiveOp::all_gather; ++k) {
        left /= shape[(first + k) % count];
        along((first + k) % count, left, true);
    }
    left = bytes;
    for (const std::uint32_t size : shape) {
        left /= size;
    }
    for (std::size_t k = count; k-- > 0 && op != CollectiveOp::reduce_scatter;) {
        along((first + k) % count, left, false);
        left *= shape[(first + k) % count];
    }
}

class PerDimension {
  public:
    PerDimension(ScheduleBuilder& builder, std::vector<std::uint32_t> shape, std::uint32_t ranks)
        : builder_(builder), shape_(std::move(shape)), ranks_(ranks) {}

    void add_part(CollectiveOp op, std::size_t first, bool backwards, double bytes) {
        std::vector<std::uint32_t> reached(ranks_, kNoMessage);
        for_each_ring(shape_, op, first, bytes, [&](std::size_t dimension, double each, bool reduces) {
            along(dimension, backwards, each, reduces, reached);
        });
    }

  private:
    // A ring of size - 1 steps in every line of a dimension.
    void along(std::size_t dimension, bool backwards, double bytes, bool reduces, std::vector<std::uint32_t>& reached) {
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
            const auto last = add_ring(builder_, members, bytes, n - 1, waits, reduces ? n - 1 : 0);
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

std::optional<Schedule> folded_torus(const CollectiveSpec& spec, const Fabric& fabric, const Placement& placement,
                                     const MessageRunOptions& options) {
    const auto* torus = dynamic_cast<const ProductTopology*>(&fabric.topology());
    const FabricShape& shape = fabric.shape();
    if (!options.fold || options.run.fidelity != Fidelity::fluid || torus == nullptr ||
        spec.algorithm != &kPerDimensionAlgorithm || !reduces_or_gathers(spec.op) || shape.gpus_per_node != 1 ||
        shape.nics_per_node != 1 || shape.pcie_bandwidth > 0 || !shape.groups.empty() ||
        placement.gpus() != fabric.gpus() || !placement.aligned(fabric) ||
        (spec.ranks != 0 && spec.ranks != fabric.gpus())) {
        return std::nullopt;
    }
    std::vector<std::uint32_t> sizes;
    for (const ProductDimension& dimension : torus->dimensions()) {
        if (dimension.kind != DimensionKind::ring) {
            return std::nullopt;
        }
        sizes.push_back(dimension.size);
    }
    if (shape_for(spec, fabric.gpus()) != sizes) {
        return std::nullopt;
    }
    ScheduleBuilder builder;
    const double part = spec.bytes / (2 * static_cast<double>(sizes.size()));
    for (std::size_t first = 0; first < sizes.size(); ++first) {
        for (const bool backwards : {false, true}) {
            std::uint32_t last = kNoMessage;
            for_each_ring(sizes, spec.op, first, part, [&](std::size_t dimension, double bytes, bool reduces) {
                std::uint32_t stride = 1;
                for (std::size_t d = 0; d < dimension; ++d) {
                    stride *= sizes[d];
                }
                builder.set_reducing(reduces);
                for (std::uint32_t step = 0; step + 1 < sizes[dimension]; ++step) {
                    const std::uint32_t next = builder.add(0, (backwards ? sizes[dimension] - 1 : 1) * stride, bytes);
                    if (last != kNoMessage) {
                        builder.after(last, next);
                    }
                    last = next;
                }
            });
        }
    }
    Schedule schedule = builder.finish();
    schedule.copies = fabric.gpus();
    return schedule;
}

extern const CollectiveAlgorithm kPerDimensionAlgorithm = {
    "per-dimension",
    "rings along each dimension of a torus in turn, both ways at once (Sack and Gropp, TOPC 2015)",
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

}  // namespace orrery::collective
