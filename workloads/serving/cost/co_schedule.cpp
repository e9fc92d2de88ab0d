#include "workloads/serving/cost/co_schedule.hpp"

#include "workloads/serving/cost/step_cost.hpp"

#include "sim/base/error.hpp"
#include "sim/device/device.hpp"
#include "workloads/model/attention_form.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace orrery::serving {

namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

struct Part {
    std::size_t at = 0;  ///< operations that it has done
    double ready = 0;    ///< s, when the next one could start
    bool runs = false;
};

struct Running {
    std::size_t part = kNone;
    double left = 0;  ///< s alone
};

using Runs = std::array<Running, kLanes>;

// Equal rates for all that run, as far as the units and the memory allow; who is not held back goes on to its own.
std::array<double, kLanes> rates(const Runs& runs, const std::vector<LaneOperation>& layer,
                                 const std::vector<Part>& parts) {
    std::array<double, kLanes> rate{};
    std::array<bool, kLanes> fixed{};
    std::array<double, 2> left = {1, 1};
    const auto demand = [&](std::size_t lane, std::size_t resource) {
        const LaneOperation& one = layer[parts[runs.at(lane).part].at % layer.size()];
        return resource == 0 ? one.units : one.memory;
    };
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
        fixed.at(lane) = runs.at(lane).part == kNone;
    }
    for (double level = 0; level < 1 && !std::all_of(fixed.begin(), fixed.end(), [](bool f) { return f; });) {
        double step = 1 - level;
        std::array<double, 2> sums{};
        for (std::size_t resource = 0; resource < 2; ++resource) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                sums.at(resource) += fixed.at(lane) ? 0 : demand(lane, resource);
            }
            if (sums.at(resource) > 0) {
                step = std::min(step, left.at(resource) / sums.at(resource));
            }
        }
        level += step;
        for (std::size_t resource = 0; resource < 2; ++resource) {
            left.at(resource) -= step * sums.at(resource);
        }
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            if (!fixed.at(lane)) {
                rate.at(lane) = level;
                constexpr double kNothing = 1e-12;
                fixed.at(lane) =
                    (demand(lane, 0) > 0 && left[0] < kNothing) || (demand(lane, 1) > 0 && left[1] < kNothing);
            }
        }
    }
    return rate;
}

double play(const std::vector<LaneOperation>& layer, std::size_t count, std::size_t layers) {
    std::vector<Part> parts(count);
    Runs runs;
    const std::size_t all = layer.size() * layers;
    double now = 0;
    const auto start = [&] {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            if (runs.at(lane).part != kNone) {
                continue;
            }
            std::size_t best = kNone;
            for (std::size_t i = 0; i < count; ++i) {
                const Part& part = parts[i];
                const bool here =
                    !part.runs && part.at < all && static_cast<std::size_t>(layer[part.at % layer.size()].lane) == lane;
                if (here && (best == kNone || part.ready < parts[best].ready)) {
                    best = i;
                }
            }
            if (best != kNone) {
                parts[best].runs = true;
                runs.at(lane) = {best, layer[parts[best].at % layer.size()].seconds};
            }
        }
    };
    for (start(); std::any_of(runs.begin(), runs.end(), [](const Running& one) { return one.part != kNone; });
         start()) {
        const auto rate = rates(runs, layer, parts);
        double next = std::numeric_limits<double>::max();
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            if (runs.at(lane).part != kNone) {
                ORRERY_ASSERT(rate.at(lane) > 0);
                next = std::min(next, runs.at(lane).left / rate.at(lane));
            }
        }
        now += next;
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            Running& one = runs.at(lane);
            if (one.part == kNone) {
                continue;
            }
            one.left -= next * rate.at(lane);
            constexpr double kOver = 1e-15;
            if (one.left <= kOver) {
                Part& part = parts[one.part];
                ++part.at;
                part.ready = now;
                part.runs = false;
                one = Running();
            }
        }
    }
    ORRERY_ASSERT(std::all_of(parts.begin(), parts.end(), [&](const Part& one) { return one.at == all && !one.runs; }));
    return now;
}

}  // namespace

double co_schedule(const std::vector<LaneOperation>& layer, std::size_t parts, std::size_t layers) {
    constexpr std::size_t kFew = 4;
    if (layers <= kFew) {
        return play(layer, parts, layers);
    }
    const double few = play(layer, parts, kFew);
    return few + static_cast<double>(layers - kFew) * (few - play(layer, parts, kFew - 2)) / 2;
}

// What of a layer needs no other operation of it, for this many tokens of a part.
const ModelStep::NanoLayer& ModelStep::nano_layer(std::uint32_t tokens, Mode mode) {
    const auto [entry, fresh] = nano_.try_emplace((std::uint64_t{tokens} << 8U) | static_cast<std::uint64_t>(mode));
    NanoLayer& layer = entry->second;
    if (!fresh) {
        return layer;
    }
    const ModelSpec& model = m_.model;
    const double own = std::ceil(tokens / static_cast<double>(m_.groups));
    // A mean of layers of both kinds, where their products differ.
    const auto other = static_cast<double>(model::other_layers(model)) / static_cast<double>(model.layers);
    for (const auto& [windowed, share] : {std::pair(false, 1 - other), std::pair(true, other)}) {
        if (share > 0) {
            LayerContext at = this->layer(own);
            at.kind.windowed = windowed;
            const StepWork last = share * program_of(after_attention(at)).total();
            layer.out += last;
            layer.in += share * attention_products(own, windowed).total() + (-1.0) * last;
        }
    }
    layer.reduce = reduce(own);
    const auto routed = static_cast<double>(model.expert_layers()) / static_cast<double>(model.layers);
    layer.feed_forward = model.parallel_block ? StepWork() : norm(own).total();
    if (routed < 1) {
        layer.feed_forward += (1 - routed) * feed_forward(own, static_cast<double>(model.ffn) / t_).total();
    }
    if (routed > 0) {
        const Exchange exchange = price_exchange(tokens, own, mode);
        layer.dispatch = routed * exchange.dispatch;
        layer.feed_forward += routed * experts(tokens, own).total();
        layer.combine = routed * exchange.combine;
    }
    return layer;
}

StepWork ModelStep::nano_batched(const NanoBatch& batch) {
    const auto parts = static_cast<double>(m_.nano_batches);
    const double layers = share_ * static_cast<double>(m_.model.layers);
    const auto tokens = static_cast<std::uint32_t>(std::ceil(batch.tokens / parts));
    const NanoLayer& layer = nano_layer(tokens, batch.mode);
    const double rate = m_.spec->memory_bandwidth.value * m_.spec->memory_efficiency.value;
    std::vector<LaneOperation> order;
    StepWork sum;
    const auto add = [&](KernelLane lane, const StepWork& work) {
        if (work.seconds > 0) {
            sum += parts * layers * work;
            order.push_back({lane, work.seconds, units_share(*m_.spec, work.flops / work.seconds),
                             std::min(1.0, work.bytes / work.seconds / rate)});
        }
    };
    const double each = 1 / (parts * layers);
    add(KernelLane::products, layer.in);
    add(KernelLane::products, each * batch.prompt_attention);
    if (batch.decoding > 0) {
        add(KernelLane::attention, (1 / layers) * attention(std::ceil(batch.decoding / parts), 1, batch.keys));
    }
    add(KernelLane::products, layer.out);
    if (!m_.model.parallel_block) {
        add(KernelLane::network, layer.reduce);
    }
    add(KernelLane::network, layer.dispatch);
    add(KernelLane::products, layer.feed_forward);
    add(KernelLane::network, layer.combine);
    add(KernelLane::network, layer.reduce);
    StepWork out = sum;
    out.seconds = out.kernels =
        co_schedule(order, static_cast<std::size_t>(m_.nano_batches), static_cast<std::size_t>(std::lround(layers)));
    return out;
}

}  // namespace orrery::serving
