#include "workloads/serving/schedulers/policies.hpp"

namespace orrery {

const std::vector<std::string>& scheduler_names() {
    static const std::vector<std::string> kNames = {"static",    "orca",      "vllm-v0",        "chunked-prefill",
                                                    "sarathi",   "splitfuse", "shortest-first", "decode-heavy",
                                                    "fastserve", "fair",      "in-flight"};
    return kNames;
}

void describe(Fields& fields, SchedulerSpec& spec) {
    fields.enumeration({"kind", "policy that forms the batch of each iteration"}, scheduler_names(), spec.kind);
    fields.integer({"token_budget", "new tokens of an iteration", false, 1, 1 << 20}, spec.token_budget);
    fields.integer({"max_sequences", "sequences that run at a time", false, 1, 1 << 20}, spec.max_sequences);
    fields.enumeration({"preemption", "vllm-v0: what happens to a sequence that loses its blocks"},
                       {"recompute", "swap"}, spec.preemption);
    bool waits = spec.wait_iterations > 0;
    fields.group(waits, [&](Fields& same) {
        same.integer({"wait_iterations", "in-flight: prompts wait so many iterations for company", false, 0, 1 << 20},
                     spec.wait_iterations);
        same.quantity(
            {"wait_share", "in-flight: or until the iteration fills this share of the token budget", false, 0, 1},
            Dimension::fraction, spec.wait_share);
    });
    fields.integer({"levels", "fastserve: levels of priority", false, 1, 32}, spec.levels);
    fields.integer({"first_quantum", "fastserve: tokens of the highest level; doubles a level", false, 1, 1 << 20},
                   spec.first_quantum);
}

std::unique_ptr<Scheduler> make_scheduler(const SchedulerSpec& spec) {
    switch (spec.kind) {
        case SchedulerKind::static_batch:
            return std::make_unique<StaticBatches>();
        case SchedulerKind::orca:
            return std::make_unique<Orca>();
        case SchedulerKind::vllm_v0:
            return std::make_unique<PrefillFirst>(spec.preemption);
        case SchedulerKind::chunked_prefill:
            return std::make_unique<ChunkedPrefill>();
        case SchedulerKind::sarathi:
            return std::make_unique<Sarathi>();
        case SchedulerKind::splitfuse:
            return std::make_unique<SplitFuse>();
        case SchedulerKind::shortest_first:
            return std::make_unique<Sorted>(false);
        case SchedulerKind::decode_heavy:
            return std::make_unique<Sorted>(true);
        case SchedulerKind::fastserve:
            return std::make_unique<FastServe>(static_cast<std::uint32_t>(spec.levels),
                                               static_cast<std::uint32_t>(spec.first_quantum));
        case SchedulerKind::in_flight:
            return std::make_unique<InFlight>(spec.wait_iterations, spec.wait_share);
        case SchedulerKind::fair:
            break;
    }
    return std::make_unique<FairShare>();
}

}  // namespace orrery
