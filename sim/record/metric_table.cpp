#include "sim/record/metric_table.hpp"

#include <algorithm>

namespace orrery::record {

const std::vector<MetricRow>& metric_table() {
    static const std::vector<MetricRow> kRows = {
        {"tokens_per_s", "1/s", Better::higher,
         "Tokens processed per second: trained tokens, or the tokens of a reinforcement-learning step."},
        {"tflops_per_gpu", "TFLOP/s", Better::higher, "Model FLOPs per second and GPU; recomputation does not count."},
        {"mfu", "1", Better::higher, "Model FLOPs utilisation: model FLOPs over the peak rate of the GPUs."},
        {"hfu", "1", Better::higher, "Hardware FLOPs utilisation: as mfu, with recomputed FLOPs."},
        {"requests_per_s", "1/s", Better::higher, "Requests answered per second of the measured time."},
        {"output_tokens_per_s", "1/s", Better::higher, "Generated tokens per second of the measured time."},
        {"slo_attainment", "1", Better::higher,
         "Share of requests that meet every limit of `slo`; unserved requests miss it."},
        {"goodput_rps", "1/s", Better::higher, "Requests per second that meet every limit of `slo`."},
        {"tokens_per_step", "1", Better::higher,
         "Tokens per decode step and sequence with speculative decoding: one and the accepted drafts."},
        {"prefix_hit_fraction", "1", Better::higher, "Share of prompt tokens found in the prefix cache."},
        {"prefix_hits", "1", Better::higher, "Share of prompt tokens found in one tier of the prefix cache."},
        {"sessions", "sessions", Better::neither, "Conversations of which every request was answered."},
        {"sessions_failed", "sessions", Better::lower, "Conversations with a request that was not answered."},
        {"session_requests", "requests", Better::neither, "Requests per conversation."},
        {"session_s", "s", Better::lower, "Time from the first request of a conversation to its last answer."},
        {"session_attainment", "1", Better::higher, "Share of conversations that ended within their deadline."},
        {"adapter_hit_fraction", "1", Better::higher, "Share of requests whose LoRA adapter was loaded already."},
        {"expert_hit_fraction", "1", Better::higher, "Share of wanted experts that were on the device already."},
        {"expert_prefetched_fraction", "1", Better::neither, "Share of wanted experts that a prediction had loaded."},
        {"algbw_gbps", "Gb/s", Better::higher, "Algorithm bandwidth of a collective: its size over its time."},
        {"busbw_gbps", "Gb/s", Better::higher,
         "Bus bandwidth as nccl-tests defines it: algorithm bandwidth times the factor of the operation."},
        {"iteration_time_s", "s", Better::lower,
         "Time of one training iteration or of one step of reinforcement learning."},
        {"memory_per_gpu_gib", "GiB", Better::lower, "Memory of the fullest GPU."},
        {"bubble_fraction", "1", Better::lower, "Share of time in which pipeline stages wait for each other."},
        {"padding_fraction", "1", Better::lower, "Share of computed tokens that are padding."},
        {"load_imbalance", "1", Better::lower,
         "Pass time of the busiest rank over the mean, for documents of variable length."},
        {"goodput_fraction", "1", Better::higher, "Share of a campaign's time that is training which is kept."},
        {"lost_s", "s", Better::lower, "Time of a campaign lost to one cause."},
        {"round_time_s", "s", Better::lower, "Mean iteration time with stragglers."},
        {"late_replicas", "replicas", Better::lower, "Stragglers per iteration that are left behind."},
        {"waiting_rounds_fraction", "1", Better::lower,
         "Share of iterations with more stragglers than the gradient code tolerates."},
        {"coding_load", "1", Better::neither, "Work per replica with gradient coding over work without it."},
        {"coding_delay", "rounds", Better::neither, "Iterations after which coded gradients are complete."},
        {"campaign_s", "s", Better::lower, "Length of a campaign."},
        {"interruptions", "interruptions", Better::lower, "Faults of a campaign that stopped the job."},
        {"interruptions_per_week", "per week", Better::lower, "Faults that stopped the job per week of the campaign."},
        {"mean_time_to_failure_s", "s", Better::higher, "Campaign time over interruptions."},
        {"mean_time_to_recover_s", "s", Better::lower, "Mean time from a fault until work continues."},
        {"checkpoint_stall_s", "s", Better::lower, "Time for which one checkpoint stops training."},
        {"checkpoint_load_s", "s", Better::lower, "Time to load a checkpoint."},
        {"checkpoint_bytes", "B", Better::lower, "Size of a checkpoint over all ranks."},
        {"checkpoint_interval_s", "s", Better::neither, "Training time between two checkpoints."},
        {"checkpoints", "checkpoints", Better::neither, "Checkpoints that became usable."},
        {"trained_parameters", "parameters", Better::neither, "Parameters that adapters train."},
        {"exposed_communication_s", "s", Better::lower, "Communication per iteration that no computation hides."},
        {"exposed_copies_s", "s", Better::lower,
         "Copies to and from other memory tiers per iteration that no computation hides."},
        {"exposed_update_s", "s", Better::lower, "Optimizer time on the host per iteration that no computation hides."},
        {"tier_gib", "GiB", Better::lower, "Memory used in one tier per node."},
        {"inner_step_s", "s", Better::lower, "Time of a local step between two outer exchanges."},
        {"outer_wait_s", "s", Better::lower, "Time per local step spent waiting for outer exchanges."},
        {"outer_exchange_s", "s", Better::lower, "Time of one outer exchange."},
        {"outer_bytes_per_step", "B", Better::lower, "Bytes of outer exchanges per local step."},
        {"compute_utilisation", "1", Better::higher, "Local step time over step time with outer exchanges."},
        {"gradient_bytes", "B", Better::lower, "Gradient bytes that a rank sends per iteration."},
        {"gradient_compression", "1", Better::higher,
         "Gradient size without compression over its size with compression."},
        {"energy_per_token_j", "J", Better::lower, "Energy of the GPUs per token."},
        {"ttft_s", "s", Better::lower, "Time to first token: arrival to first token."},
        {"tpot_s", "s", Better::lower, "Time per output token after the first, mean of a request."},
        {"tbt_s", "s", Better::lower, "Time between two tokens of a request."},
        {"e2e_s", "s", Better::lower, "End-to-end latency: arrival to last token."},
        {"requests_refused", "requests", Better::lower,
         "Requests that no replica can ever hold, and those that policies.admission turns away."},
        {"requests_timed_out", "requests", Better::lower, "Requests whose client gave up."},
        {"requests_failed", "requests", Better::lower, "Requests that faults ended."},
        {"requests_retried", "requests", Better::lower, "Restarts of requests on another replica after a fault."},
        {"preemptions", "preemptions", Better::lower, "Sequences that lost their KV cache or place to others."},
        {"cost_per_million_tokens_usd", "USD", Better::lower,
         "Price of all GPU hours, prompts included, per million output tokens."},
        {"cost_per_million_input_tokens_usd", "USD", Better::lower,
         "Price of the GPU hours spent on prompts per million input tokens."},
        {"cost_per_million_output_tokens_usd", "USD", Better::lower,
         "Price of the GPU hours spent on decoding per million output tokens."},
        {"cost_per_million_blended_tokens_usd", "USD", Better::lower,
         "Price of all GPU hours per million tokens, input and output together."},
        {"cost_per_billion_tokens_usd", "USD", Better::lower, "Price of the GPU hours per billion trained tokens."},
        {"campaign_cost_usd", "USD", Better::lower, "Price of the GPU hours of a campaign, lost time included."},
        {"energy_j", "J", Better::lower, "Energy of the GPUs over the measured time or iteration."},
        {"power_w", "W", Better::lower, "Mean power of all GPUs."},
        {"power_peak_w", "W", Better::lower, "Highest power of all GPUs within an iteration."},
        {"power_trough_w", "W", Better::neither, "Lowest power of all GPUs within an iteration."},
        {"power_swing_fraction", "1", Better::lower, "Peak less trough of the power, over the peak."},
        {"tokens_per_j", "1/J", Better::higher, "Tokens per joule of the GPUs."},
        {"campaign_energy_j", "J", Better::lower, "Energy of the GPUs over a campaign."},
        {"energy_per_million_tokens_kwh", "kWh", Better::lower, "Energy of the GPUs per million output tokens."},
        {"gpus", "GPUs", Better::lower, "GPUs in use, mean over the measured time."},
        {"kv_transfer_s", "s", Better::lower,
         "Time from the end of a prompt until its sequence can decode on another replica."},
        {"adapter_misses", "requests", Better::lower, "Requests whose LoRA adapter was not loaded."},
        {"adapter_loads", "adapters", Better::lower, "LoRA adapters loaded."},
        {"adapter_wait_s", "s", Better::lower, "Time per request spent waiting for its LoRA adapter."},
        {"experts_in_vain", "experts", Better::lower, "Experts loaded by prediction and not used."},
        {"expert_wait_s", "s", Better::lower, "Time per iteration spent waiting for experts."},
        {"kv_token_bytes", "B", Better::lower, "KV cache per token."},
        {"swap_out_bytes", "B", Better::lower, "KV cache bytes swapped to host memory."},
        {"swap_in_bytes", "B", Better::lower, "KV cache bytes swapped back from host memory."},
        {"swap_reused_bytes", "B", Better::neither,
         "KV cache bytes that needed no copy to host memory, as one was there."},
        {"swap_stall_s", "s", Better::lower, "Time per iteration spent waiting for swaps."},
        {"front_end_request_wait_s", "s", Better::lower, "Time per request spent waiting for a core of the front end."},
        {"front_end_token_wait_s", "s", Better::lower, "Time per token spent waiting for a core of the front end."},
        {"front_end_busy_fraction", "1", Better::neither, "Share of time in which cores of the front end are busy."},
        {"fct_s", "s", Better::lower, "Flow completion time."},
        {"slowdown", "1", Better::lower, "Flow completion time over its time on an idle network."},
        {"collective_time_s", "s", Better::lower, "Time of the collective."},
        {"bytes_on_wire", "B", Better::lower, "Bytes that links between GPUs and nodes carried for all messages."},
        {"drops", "packets", Better::lower, "Packets dropped."},
        {"trims", "packets", Better::lower, "Packets trimmed to their header."},
        {"retransmissions", "packets", Better::lower, "Packets sent again."},
        {"timeouts", "packets", Better::lower, "Retransmission timeouts."},
        {"corrupted", "packets", Better::lower, "Packets lost to bit errors."},
        {"pause_s", "s", Better::lower, "Time that ports were paused by flow control, summed over ports."},
        {"pfc_storms", "1", Better::lower, "PFC storms that the watchdog ended."},
        {"watchdog_drops", "packets", Better::lower, "Packets dropped by the PFC watchdog."},
        {"max_queue_bytes", "B", Better::lower, "Longest queue that an arriving packet found."},
        {"replay_time_s", "s", Better::lower, "Time of the replayed program."},
        {"makespan_s", "s", Better::lower, "Time until the last flow or job ends."},
        {"samples_per_s", "1/s", Better::higher, "Samples per second of a reinforcement-learning step."},
        {"generation_s", "s", Better::lower, "Time of generation per step."},
        {"preparation_s", "s", Better::lower, "Time of reward, reference and critic passes per step."},
        {"training_s", "s", Better::lower, "Time of updates per step."},
        {"synchronisation_s", "s", Better::lower, "Time of weight synchronisation per step."},
        {"forward_s", "s", Better::lower, "Time of a forward pass over the batch."},
        {"idle_fraction", "1", Better::lower, "Share of a step in which the GPUs of a role are idle."},
        {"batch_tokens", "tokens", Better::neither, "Tokens per step, prompts and samples."},
        {"batch_output_tokens", "tokens", Better::neither, "Generated tokens per step."},
        {"longest_sample", "tokens", Better::neither, "Tokens of the longest sample."},
        {"updates_per_step", "updates", Better::neither, "Optimizer updates per step."},
        {"weights_moved_bytes", "B", Better::lower, "Bytes of weights moved from trainer to generator per step."},
        {"failures", "replicas", Better::neither, "Replicas that faults stopped."},
        {"requests_wrong", "requests", Better::lower, "Requests answered by a replica with silent data corruption."},
        {"requests_over_budget", "requests", Better::lower, "Requests that failed because the retry budget was spent."},
        {"replica_availability", "1", Better::higher, "Share of time in which a replica is up, mean over replicas."},
        {"service_availability", "1", Better::higher,
         "Share of the measured time in which every pool has a replica that takes requests."},
        {"lost_tokens", "tokens", Better::lower, "KV cache tokens lost to faults and computed again."},
        {"restored_tokens", "tokens", Better::neither, "KV cache tokens restored from a copy after faults."},
        {"replica_start_s", "s", Better::lower, "Time of one part of a replica's start."},
        {"requests", "requests", Better::neither, "Requests measured."},
        {"offered_rps", "1/s", Better::neither, "Rate at which requests arrive."},
        {"overloaded", "1", Better::lower, "Whether the queue grows without bound: 1 or 0."},
        {"expectations_failed", "1", Better::lower, "Bounds of `expect` that failed."},
        {"sustainable_rps", "1/s", Better::higher, "Requests per second served under overload."},
        {"iterations", "iterations", Better::neither, "Iterations of all replicas."},
        {"cache_peak_fraction", "1", Better::neither, "Largest share of KV cache blocks in use."},
        {"kv_cache_tokens", "tokens", Better::higher,
         "Tokens of a replica's KV cache as the engine prints them at start (an attention group's)."},
        {"kv_cache_blocks", "blocks", Better::neither, "Blocks of that cache as the engine counts them."},
        {"kv_max_concurrency", "requests", Better::higher,
         "Requests of the longest context that the KV cache has room for."},
        {"busy_fraction", "1", Better::neither, "Share of time in which replicas compute."},
        {"replica_starts", "replicas", Better::neither, "Replicas started."},
        {"role_moves", "moves", Better::neither, "Moves of GPUs between prefill and decode replicas."},
        {"prefill_replicas.mean", "replicas", Better::neither, "Mean number of replicas for prompts, with a planner."},
        {"mixed_prompts", "requests", Better::neither, "Prompts computed by decode replicas."},
        {"mixed_outputs", "requests", Better::neither, "Requests decoded by prefill replicas."},
        {"expert_bytes", "B", Better::neither, "Bytes of experts loaded per rank."},
        {"prefix_from_host_bytes", "B", Better::neither, "Prefix cache bytes fetched from host memory."},
        {"prefix_from_nvme_bytes", "B", Better::neither, "Prefix cache bytes fetched from NVMe."},
        {"prefix_from_store_bytes", "B", Better::neither, "Prefix cache bytes fetched from a shared store."},
        {"prefix_from_peers_bytes", "B", Better::neither, "Prefix cache bytes fetched from other replicas."},
        {"store_written_bytes", "B", Better::neither, "Prefix cache bytes written to a shared store."},
        {"store_dropped_bytes", "B", Better::neither, "Prefix cache bytes dropped from a shared store that was full."},
        {"messages", "1", Better::neither, "Messages sent."},
        {"max_link_utilisation", "1", Better::neither,
         "Bytes over the busiest link, over what it could carry until the last arrival."},
        {"max_link_bytes", "B", Better::neither, "Bytes over the busiest link between switches."},
        {"packets_delivered", "packets", Better::neither, "Data packets delivered."},
        {"packet_hops", "packets", Better::neither, "Links crossed by data packets."},
        {"skipped_fraction", "1", Better::neither, "Share of packets skipped in steady state (`network.skip`)."},
        {"skip_error", "1", Better::lower, "Reported error bound of skipping."},
        {"control_hops", "packets", Better::neither, "Links crossed by acknowledgements and other control packets."},
        {"ecn_marks", "packets", Better::neither, "Packets marked by ECN."},
        {"recorded_time_s", "s", Better::neither, "Time of the program as recorded."},
        {"operations", "1", Better::neither, "Operations replayed."},
        {"events", "1", Better::neither, "Events simulated."},
    };
    return kRows;
}

const MetricRow* row_of_metric(const std::string& name) {
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
    const MetricRow* row = row_of_metric(name);
    return row == nullptr ? Better::neither : row->better;
}

std::string better_text(const std::string& name) {
    const Better better = better_of(name);
    return better == Better::neither ? "" : better == Better::lower ? "lower is better" : "higher is better";
}

std::string with_arrow(const std::string& name) {
    const Better better = better_of(name);
    return name + (better == Better::neither ? "" : better == Better::lower ? " \u2193" : " \u2191");
}

}  // namespace orrery::record
