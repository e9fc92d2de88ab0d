#include "sim/record/metric_table.hpp"

#include <algorithm>

namespace orrery::inline record {

const std::vector<MetricRow>& metric_table() {
    static const std::vector<MetricRow> kRows = {
        {"tokens_per_s", Better::higher},
        {"tflops_per_gpu", Better::higher},
        {"mfu", Better::higher},
        {"hfu", Better::higher},
        {"requests_per_s", Better::higher},
        {"output_tokens_per_s", Better::higher},
        {"slo_attainment", Better::higher},
        {"goodput_rps", Better::higher},
        {"tokens_per_step", Better::higher},
        {"prefix_hit_fraction", Better::higher},
        {"adapter_hit_fraction", Better::higher},
        {"expert_hit_fraction", Better::higher},
        {"expert_prefetched_fraction", Better::neither},
        {"algbw_gbps", Better::higher},
        {"busbw_gbps", Better::higher},
        {"iteration_time_s", Better::lower},
        {"memory_per_gpu_gib", Better::lower},
        {"bubble_fraction", Better::lower},
        {"padding_fraction", Better::lower},
        {"load_imbalance", Better::lower},
        {"goodput_fraction", Better::higher},
        {"lost_s", Better::lower},
        {"round_time_s", Better::lower},
        {"late_replicas", Better::lower},
        {"waiting_rounds_fraction", Better::lower},
        {"coding_load", Better::neither},
        {"coding_delay", Better::neither},
        {"campaign_s", Better::lower},
        {"interruptions", Better::lower},
        {"interruptions_per_week", Better::lower},
        {"mean_time_to_failure_s", Better::higher},
        {"mean_time_to_recover_s", Better::lower},
        {"checkpoint_stall_s", Better::lower},
        {"checkpoint_load_s", Better::lower},
        {"checkpoint_bytes", Better::lower},
        {"checkpoint_interval_s", Better::neither},
        {"checkpoints", Better::neither},
        {"trained_parameters", Better::neither},
        {"exposed_communication_s", Better::lower},
        {"exposed_copies_s", Better::lower},
        {"exposed_update_s", Better::lower},
        {"tier_gib", Better::lower},
        {"inner_step_s", Better::lower},
        {"outer_wait_s", Better::lower},
        {"outer_exchange_s", Better::lower},
        {"outer_bytes_per_step", Better::lower},
        {"compute_utilisation", Better::higher},
        {"gradient_bytes", Better::lower},
        {"gradient_compression", Better::higher},
        {"energy_per_token_j", Better::lower},
        {"ttft_s", Better::lower},
        {"tpot_s", Better::lower},
        {"tbt_s", Better::lower},
        {"e2e_s", Better::lower},
        {"requests_refused", Better::lower},
        {"requests_timed_out", Better::lower},
        {"requests_failed", Better::lower},
        {"requests_retried", Better::lower},
        {"preemptions", Better::lower},
        {"cost_per_million_tokens_usd", Better::lower},
        {"energy_j", Better::lower},
        {"power_w", Better::lower},
        {"power_peak_w", Better::lower},
        {"power_trough_w", Better::neither},
        {"power_swing_fraction", Better::lower},
        {"tokens_per_j", Better::higher},
        {"campaign_energy_j", Better::lower},
        {"energy_per_million_tokens_kwh", Better::lower},
        {"gpus", Better::lower},
        {"kv_transfer_s", Better::lower},
        {"adapter_misses", Better::lower},
        {"adapter_loads", Better::lower},
        {"adapter_wait_s", Better::lower},
        {"experts_in_vain", Better::lower},
        {"expert_wait_s", Better::lower},
        {"kv_token_bytes", Better::lower},
        {"swap_out_bytes", Better::lower},
        {"swap_in_bytes", Better::lower},
        {"swap_reused_bytes", Better::neither},
        {"swap_stall_s", Better::lower},
        {"front_end_request_wait_s", Better::lower},
        {"front_end_token_wait_s", Better::lower},
        {"front_end_busy_fraction", Better::neither},
        {"fct_s", Better::lower},
        {"slowdown", Better::lower},
        {"collective_time_s", Better::lower},
        {"bytes_on_wire", Better::lower},
        {"drops", Better::lower},
        {"trims", Better::lower},
        {"retransmissions", Better::lower},
        {"timeouts", Better::lower},
        {"corrupted", Better::lower},
        {"pause_s", Better::lower},
        {"pfc_storms", Better::lower},
        {"watchdog_drops", Better::lower},
        {"max_queue_bytes", Better::lower},
        {"replay_time_s", Better::lower},
        {"makespan_s", Better::lower},
        {"samples_per_s", Better::higher},
        {"generation_s", Better::lower},
        {"preparation_s", Better::lower},
        {"training_s", Better::lower},
        {"synchronisation_s", Better::lower},
        {"forward_s", Better::lower},
        {"idle_fraction", Better::lower},
        {"batch_tokens", Better::neither},
        {"batch_output_tokens", Better::neither},
        {"longest_sample", Better::neither},
        {"updates_per_step", Better::neither},
        {"weights_moved_bytes", Better::lower},
        {"failures", Better::neither},
        {"requests_wrong", Better::lower},
        {"requests_over_budget", Better::lower},
        {"replica_availability", Better::higher},
        {"service_availability", Better::higher},
        {"lost_tokens", Better::lower},
        {"restored_tokens", Better::neither},
        {"replica_start_s", Better::lower},
        {"requests", Better::neither},
        {"offered_rps", Better::neither},
        {"overloaded", Better::lower},
        {"expectations_failed", Better::lower},
        {"sustainable_rps", Better::higher},
        {"iterations", Better::neither},
        {"cache_peak_fraction", Better::neither},
        {"busy_fraction", Better::neither},
        {"replica_starts", Better::neither},
        {"mixed_prompts", Better::neither},
        {"mixed_outputs", Better::neither},
        {"expert_bytes", Better::neither},
        {"prefix_from_host_bytes", Better::neither},
        {"prefix_from_nvme_bytes", Better::neither},
        {"messages", Better::neither},
        {"max_link_utilisation", Better::neither,
         "bytes sent over the busiest link, over what it could carry from the start of the run to the last arrival"},
        {"max_link_bytes", Better::neither},
        {"packets_delivered", Better::neither},
        {"packet_hops", Better::neither},
        {"skipped_fraction", Better::neither},
        {"skip_error", Better::lower},
        {"control_hops", Better::neither},
        {"ecn_marks", Better::neither},
        {"recorded_time_s", Better::neither},
        {"operations", Better::neither},
        {"events", Better::neither},
    };
    return kRows;
}

// The row of a metric; null for what is no metric.
static const MetricRow* row_of(const std::string& name) {
    // From the back: the name of a job, in front, may be anything.
    for (std::size_t end = name.size(); end != std::string::npos && end > 0;) {
        const std::size_t dot = name.rfind('.', end - 1);
        const std::string word =
            name.substr(dot == std::string::npos ? 0 : dot + 1, end - (dot == std::string::npos ? 0 : dot + 1));
        const auto& rows = metric_table();
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const MetricRow& r) { return word == r.name; });
        if (row != rows.end()) {
            return &*row;
        }
        end = dot;
    }
    return nullptr;
}

Better better_of(const std::string& name) {
    if (name.rfind("breakdown.", 0) == 0) {
        return Better::lower;
    }
    const MetricRow* row = row_of(name);
    return row == nullptr ? Better::neither : row->better;
}

std::string meaning_of(const std::string& name) {
    const MetricRow* row = row_of(name);
    return row == nullptr ? "" : row->meaning;
}

std::string better_text(const std::string& name) {
    const Better better = better_of(name);
    return better == Better::neither ? "" : better == Better::lower ? "lower is better" : "higher is better";
}

std::string with_arrow(const std::string& name) {
    const Better better = better_of(name);
    return name + (better == Better::neither ? "" : better == Better::lower ? " \u2193" : " \u2191");
}

}  // namespace orrery::inline record
