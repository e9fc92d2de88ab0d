// The table of scheduling policies: one row each.

#include "workloads/serving/schedulers/scheduler.hpp"

namespace orrery::serving {

extern const PolicyRow<Scheduler> kStaticBatches;
extern const PolicyRow<Scheduler> kOrca;
extern const PolicyRow<Scheduler> kPrefillFirst;
extern const PolicyRow<Scheduler> kChunkedPrefill;
extern const PolicyRow<Scheduler> kSarathi;
extern const PolicyRow<Scheduler> kSplitFuse;
extern const PolicyRow<Scheduler> kShortestFirst;
extern const PolicyRow<Scheduler> kDecodeHeavy;
extern const PolicyRow<Scheduler> kPrefixGroups;
extern const PolicyRow<Scheduler> kFastServe;
extern const PolicyRow<Scheduler> kFairShare;
extern const PolicyRow<Scheduler> kInFlight;
extern const PolicyRow<Scheduler> kPriority;
extern const PolicyRow<Scheduler> kEarliestDeadline;
extern const PolicyRow<Scheduler> kOutsideScheduler;

const PolicyTable<Scheduler>& scheduler_table() {
    static const PolicyTable<Scheduler> kTable = {
        &kStaticBatches, &kOrca,          &kPrefillFirst,     &kChunkedPrefill, &kSarathi,
        &kSplitFuse,     &kShortestFirst, &kDecodeHeavy,      &kPrefixGroups,   &kFastServe,
        &kFairShare,     &kInFlight,      &kEarliestDeadline, &kPriority,       &kOutsideScheduler,
    };
    return kTable;
}

void describe(Fields& fields, SchedulerSpec& spec) {
    spec.policy.describe_choice(fields, {"kind", "policy that forms the batch of each iteration"});
    fields.when(
        spec.needs().counts_tokens, "a scheduler that counts tokens",
        [&](Fields& same) {
            same.integer({"token_budget", "new tokens of an iteration", false, 1, 1 << 20}, spec.token_budget);
        },
        Unmet::noted);
    fields.integer({"max_sequences", "sequences that run at a time", false, 1, 1 << 20}, spec.max_sequences);
    spec.policy.describe_parameters(fields);
}

}  // namespace orrery::serving
