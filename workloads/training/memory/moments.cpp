#include "workloads/training/memory/moments.hpp"

#include "workloads/training/features/adapters.hpp"
#include "workloads/training/memory/layer_bytes.hpp"
#include "workloads/training/plan/experts.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::training {

StateBytes state_bytes(const PlanSpec& plan, const SoftwareSpec& software) {
    StateTypes types = plan.states == StateTypes::software ? software.allocation.states : plan.states;
    if (plan.has<AdapterPlan>() && software.allocation.wide_adapters) {
        types = StateTypes::wide;
    }
    switch (types) {
        case StateTypes::narrow:
            return {2, 2, 4, 2};
        case StateTypes::wide:
            return {4, 4, 8, 4};
        default:
            return {2, 2, 12, 4};
    }
}

ModuleBytes module_bytes(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, LayerKind kind) {
    // Autograd keeps the inputs of frozen products, too.
    PlanSpec whole = plan;
    whole.feature<AdapterPlan>().given = false;
    const LayerBytes layer = layer_bytes(model, whole, software, kind);
    ModuleBytes out{layer.kept + layer.again, 0};
    const double tokens =
        static_cast<double>(model.sequence) / static_cast<double>(plan.context) * static_cast<double>(plan.micro_batch);
    const auto t = static_cast<double>(plan.tensor);
    const bool unfused = software.allocation.unfused_modules;
    const double gates = model.gated ? 3 : 2;
    double width = 2 * tokens * static_cast<double>(model.ffn) / t;
    double at_once = width;
    if (kind.experts) {
        const double rows = expert_rows(model.experts, plan, tokens / t, load_of(model.experts, plan));
        width = 2 * rows * static_cast<double>(model.experts.ffn) / static_cast<double>(plan.expert_tensor());
        at_once = unfused ? width * static_cast<double>(plan.experts.expert) / static_cast<double>(model.experts.count)
                          : width;
    }
    if (kind.part == LayerPart::whole || kind.part == LayerPart::feed_forward) {
        out.kept += unfused && model.gated ? width : 0;  // the activated gate
        out.gradients = gates * at_once;
    }
    const double hidden = 2 * tokens * static_cast<double>(model.hidden);
    if (unfused && plan.fusion == Fusion::eager) {
        out.kept += 4 * hidden;  // two norms in 32 bits
    }
    if (plan.has<AdapterPlan>()) {
        const auto& adapters = plan.feature<AdapterPlan>();
        out.kept += adapters.wide_inputs ? hidden : 0;
        if (software.allocation.quantised_inputs && base_bytes(adapters) < 1) {
            // Of queries with keys and values, of what follows attention, and of the feed-forward's.
            out.kept += 2 * hidden + 2 * tokens * model.q_width() / t + width;
        }
        for (const LayerProduct product :
             {LayerProduct::attention_in, LayerProduct::attention_out, LayerProduct::ffn_in, LayerProduct::ffn_out}) {
            for (const AdapterShape& one : adapters_of(model, plan, product)) {
                out.kept += software.allocation.wide_adapters ? 2 * tokens * one.inputs : 0;  // cast for each
            }
        }
    }
    return out;
}

namespace {

constexpr double kLive = 1e9;      // stage3_max_live_parameters
constexpr double kSubGroup = 1e9;  // sub_group_size

// Weights that are gathered throughout the passes, and for the layer that computes.
struct Gathered {
    double always = 0;
    double unit = 0;
};
Gathered gathered(const PlanSpec& plan, const SoftwareSpec& software, const StageParts& parts) {
    if (plan.zero < 3 || degrees_of(plan).weights == 1) {
        return {};
    }
    const double unit = parts.largest.bytes();
    switch (software.allocation.sharding) {
        case ShardingCode::fsdp:
            return {2 * parts.tables, unit};
        case ShardingCode::fsdp_whole:
            return {parts.held.bytes(), 0};
        case ShardingCode::deepspeed:
            return {std::min(parts.held.bytes(), 2 * kLive), 0};
        default:
            return {2 * parts.tables, 2 * unit};
    }
}

}  // namespace

MemoryUse peak_of_moments(const PlanSpec& plan, const SoftwareSpec& software, const StageParts& parts) {
    const Gathered whole = gathered(plan, software, parts);
    const StateBytes types = state_bytes(plan, software);
    const bool adds_up = plan.micro_batches() > 1;
    const bool fsdp = software.allocation.sharding == ShardingCode::fsdp && whole.unit > 0;
    const MemoryUse& states = parts.states;
    // FSDP2 allocates shares of gradients on the stream of reductions, whose freed blocks other streams do not take.
    const bool apart = software.allocation.sharding == ShardingCode::fsdp2 && whole.unit > 0;
    const double before = adds_up || apart ? states.gradients : 0;
    const double trained = parts.held.total();
    const double updated = updated_weights(plan, parts.held);
    const bool deepspeed = software.allocation.sharding == ShardingCode::deepspeed && plan.zero > 0;
    const double group = plan.zero >= 3 ? std::min(kSubGroup, updated) : updated;

    struct Moment {
        double gradients, activations, buffers;
        [[nodiscard]] double total() const { return gradients + activations + buffers; }
    };
    const double kept =
        fsdp && plan.frozen() && plan.recompute == Recompute::full ? parts.kept + parts.inputs : parts.kept;
    const double whole_gradients = whole.unit > 0 ? 2 * parts.largest.total() : 0;
    const double copies = states.optimizer <= 0
                              ? 0
                              : (software.allocation.step_copies.value * types.value + (deepspeed ? 4 : 0)) *
                                    (deepspeed ? group : updated);
    const Moment moments[] = {{before, parts.kept + parts.logits, whole.always},
                              {before, kept + parts.working, whole.always + whole.unit + whole_gradients},
                              {states.gradients, parts.input + parts.working, whole.unit + whole_gradients},
                              {states.gradients, 0, copies}};
    const Moment& peak = *std::max_element(std::begin(moments), std::end(moments),
                                           [](const Moment& a, const Moment& b) { return a.total() < b.total(); });
    MemoryUse out = states;
    out.gradients = trained > 0 ? peak.gradients : 0;
    out.activations = peak.activations;
    out.buffers = peak.buffers;
    const bool sharded = whole.always + whole.unit > 0;
    const AllocationSpec& allocation = software.allocation;
    out.idle = (sharded ? allocation.idle_sharded.value : allocation.idle.value) * peak.activations;
    out.idle += plan.ranks() > 1 ? allocation.communicators.value : 0;
    return out;
}

}  // namespace orrery::training
