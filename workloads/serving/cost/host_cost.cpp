#include "workloads/serving/cost/host_cost.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <bit>

namespace orrery::serving {

namespace {

void describe(Fields& fields, const char* name, const char* description, bool& given, LatencyWidths& widths) {
    fields.optional({name, description}, given, [&](Fields& inner) {
        const auto width = [&](const char* latency, const char* meaning, Sourced<double>& value) {
            inner.sourced({latency, meaning, false, 0, 5}, Dimension::fraction, value);
        };
        width("tpot", "half-width of the 90 % interval of log(time per output token)", widths.tpot);
        width("ttft", "half-width of the 90 % interval of log(time to the first token)", widths.ttft);
        width("end_to_end", "half-width of the 90 % interval of log(end-to-end time)", widths.end_to_end);
    });
}

}  // namespace

void describe(Fields& fields, HostSpec& host) {
    fields.text({"name", "name of the engine version"}, host.name);
    fields.sourced({"step", "host time of an iteration", false, 0, 1}, Dimension::time, host.step);
    fields.sourced({"sequence", "host time of a sequence in an iteration", false, 0, 1}, Dimension::time,
                   host.sequence);
    fields.sourced(
        {"request", "network and front-end time from a client to the engine's queue and back with the first token",
         false, 0, 10},
        Dimension::time, host.request);
    fields.boolean(
        {"shared_front_end", "all replicas share one front end; otherwise each one that takes prompts has its own"},
        host.shared_front_end);
    fields.sourced({"frontend", "front-end time per request; requests queue for it", false, 0, 1}, Dimension::time,
                   host.frontend);
    fields.sourced({"prompt_token", "front-end time per token of a prompt, in addition to `frontend`", false, 0, 1e-3},
                   Dimension::time, host.prompt_token);
    fields.sourced({"layer_launch", "host time to launch a layer's kernels one by one", false, 0, 1}, Dimension::time,
                   host.layer_launch);
    fields.sourced({"latent_launch", "additional host time to launch a layer's latent attention", false, 0, 1},
                   Dimension::time, host.latent_launch);
    fields.sourced({"experts_launch", "additional host time to launch a layer's routed experts", false, 0, 1},
                   Dimension::time, host.experts_launch);
    const auto kernels = [&](const char* name, const char* description, std::string& set) {
        fields.table({name, description}, {"models/data/kernels/*", ""}, set);
    };
    kernels("kernels", "set of kernels that it runs where a device has one of this name", host.kernels.all);
    kernels("attention_kernels", "set of kernels for attention, which goes before `kernels`", host.kernels.attention);
    kernels("expert_kernels", "set of kernels for mixtures of experts, which goes before `kernels`",
            host.kernels.experts);
    fields.boolean(
        {"compiled", "norms, rotary embeddings and activations take no longer than a kernel's start and their bytes"},
        host.compiled);
    fields.boolean({"tuned", "products take no longer than the fastest measured one of up to four times their rows"},
                   host.tuned);
    fields.sourced({"layer_gap", "device time per layer for small kernels that are not modelled", false, 0, 1e-2},
                   Dimension::time, host.layer_gap);
    fields.sourced({"slowdown", "time of kernels in an engine relative to a microbenchmark", false, 0.5, 3},
                   Dimension::fraction, host.slowdown);
    fields.boolean(
        {"overlap",
         "prepare an iteration on the host while the device runs the previous one (asynchronous scheduling)"},
        host.overlap);
    fields.integer({"graph_sequences", "iterations of decodes alone up to this size replay a graph", false, 0, 1 << 20},
                   host.graph_sequences);
    fields.integer(
        {"graph_tokens", "other iterations up to this many tokens replay graphs between attentions", false, 0, 1 << 24},
        host.graph_tokens);
    fields.integer(
        {"graph_regular", "graphs for 1, 2, 4, multiples of 8 up to this and powers of two beyond; 0: for every size",
         false, 0, 1 << 20},
        host.graph_regular);
    fields.section({"memory", "memory that the version takes of a device before it sizes its cache"},
                   [&](Fields& inner) { describe(inner, host.memory); });
    describe(fields, "interval",
             "errors that runs of dense models were measured to leave; without it those of all engines",
             host.has_interval, host.interval);
    describe(fields, "experts_interval", "errors that runs of mixtures of experts were measured to leave",
             host.has_experts_interval, host.experts_interval);
}

std::uint32_t graph_size(const HostSpec& host, std::uint32_t sequences) {
    constexpr std::uint32_t kMultiple = 8;
    const auto regular = static_cast<std::uint32_t>(host.graph_regular);
    const auto most = static_cast<std::uint32_t>(host.graph_sequences);
    if (regular == 0 || sequences > most) {
        return sequences;
    }
    const std::uint32_t size = sequences < kMultiple || sequences > regular
                                   ? std::bit_ceil(sequences)
                                   : (sequences + kMultiple - 1) / kMultiple * kMultiple;
    ORRERY_ASSERT(size >= sequences);
    return std::min(size, most);
}

double iteration_seconds(const HostSpec& host, double kernels, const IterationShape& shape) {
    double device = host.slowdown.value * kernels + host.layer_gap.value * shape.layers;
    if (shape.prompts || shape.sequences > static_cast<double>(host.graph_sequences)) {
        const bool pieces = shape.tokens <= static_cast<double>(host.graph_tokens);
        device = std::max(device, host.layer_launch.value * shape.layers +
                                      (pieces ? 0 : host.latent_launch.value * shape.latent_layers) +
                                      (pieces ? 0 : host.experts_launch.value * shape.routed_layers));
    }
    const double work = host.step.value + host.sequence.value * shape.sequences;
    return host.overlap ? std::max(device, work) : device + work;
}

}  // namespace orrery::serving
