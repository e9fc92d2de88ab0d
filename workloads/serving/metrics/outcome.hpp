#pragma once
// What a service did: latencies of requests, counts, and iterations for a timeline.

#include "sim/base/time.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace orrery::serving {

/// Counts of values in bins of 1 % from 1 us to 10^6 s: quantiles of long runs in constant memory, within 1 %.
class LogHistogram {
  public:
    void add(double seconds, std::uint64_t count = 1) {
        // The sequences of a batch waited equally long for their tokens, so that most values repeat the last.
        if (seconds != last_ || bins_.size() <= last_bin_) {
            find(seconds);
        }
        bins_[last_bin_] += count;
        total_ += count;
        sum_ += seconds * static_cast<double>(count);
    }
    void add(const LogHistogram& other);
    [[nodiscard]] double quantile(double q) const;
    [[nodiscard]] double mean() const { return total_ > 0 ? sum_ / static_cast<double>(total_) : 0; }
    [[nodiscard]] double max() const { return max_; }
    [[nodiscard]] std::uint64_t count() const { return total_; }

  private:
    /// Makes `seconds` the value added last, with room for its bin.
    void find(double seconds);

    std::vector<std::uint64_t> bins_;
    std::uint64_t total_ = 0;
    double sum_ = 0;
    double max_ = 0;
    double last_ = 0;  ///< the value added last
    std::size_t last_bin_ = 0;
};

/// What became of one request.
struct RequestOutcome {
    SimTime arrival;
    float ttft = 0;  ///< s
    float tpot = 0;  ///< s a token after the first; 0 for outputs of one token
    float e2e = 0;   ///< s
    bool in_time = true;
};

/// How a request is accounted for.
enum class Ending : std::uint8_t { finished, refused, timed_out, failed };

/// adapter: waiting for a slot for its adapter, and for the adapter.
enum class LifePhase : std::uint8_t { waiting, adapter, prefill, decode };

/// A batch on one stage of a replica.
struct IterationRecord {
    std::uint32_t replica;
    std::uint32_t stage;
    SimTime start, end;
    std::uint32_t sequences, tokens;
    std::uint64_t blocks;
};

/// A part of a request's life on a replica.
struct LifeRecord {
    std::uint64_t request;
    std::uint32_t replica;
    std::uint32_t adapter;  ///< that it names; 0: none
    LifePhase phase;
    SimTime start, end;
};

/// A replica that a fault had stopped.
struct DownRecord {
    std::uint32_t replica;
    SimTime start, end;
};

/// Keys and values on their way from one replica to another.
struct TransferRecord {
    std::uint32_t from, to;
    SimTime start, end;
    double bytes;
};

/// Adapters of a replica from a time on.
struct AdapterRecord {
    std::uint32_t replica;
    SimTime at;
    std::uint32_t here;    ///< on its devices
    std::uint32_t coming;  ///< on their way from host memory
};

/// What the devices of a pool did in the measured window, summed over them.
struct PoolWork {
    double kernel_s = 0;  ///< with kernels under way
    double flops = 0;     ///< of products and attention, in their own formats
    double bytes = 0;     ///< through the main memories
};

/// Parts of a timeline are kept up to these numbers, so that a long run does not fill the memory.
inline constexpr std::size_t kMostIterationRecords = 200'000;
inline constexpr std::size_t kMostLifeRecords = 200'000;
inline constexpr std::size_t kMostTransferRecords = 200'000;

/// What is counted in the measured window as it happens.
struct WindowCounts {
    std::uint64_t unserved = 0;       ///< of the measured requests: refused, given up or failed
    std::uint64_t finished = 0;       ///< requests answered
    std::uint64_t output_tokens = 0;  ///< given
    LogHistogram tbt;
    std::vector<PoolWork> pools;  ///< in the order of the specification

    void add(const WindowCounts& other);
};

/// A run without an end of its own that was watched until its steady state was known (metrics/steady_state.hpp).
struct SteadyRun {
    double warm_up_s = 0;          ///< left out at its start
    std::uint64_t warm_up = 0;     ///< requests that came in it
    std::uint64_t measured = 0;    ///< requests that came in the measured window
    bool precise = false;          ///< the intervals are as narrow as was asked for
    bool overloaded = false;       ///< the queue grows without bound
    double offered_rps = 0;        ///< at which requests came in the measured window
    double sustainable_rps = 0;    ///< at which they were accounted for there
    std::vector<double> seconds;   ///< of equal groups of the requests measured, one after another:
    std::vector<double> finished;  ///< requests answered in each,
    std::vector<double> tokens;    ///< and tokens given
};

/// A stage of the load (requests/arrivals.hpp): its requests come after all before it are accounted for.
struct StageResult {
    SimTime start;
    SimTime first, last;              ///< request sent, and accounted for
    std::uint64_t requests = 0;       ///< accounted for,
    std::uint64_t answered = 0;       ///< of them answered,
    std::uint64_t output_tokens = 0;  ///< with so many tokens
    std::uint64_t prompt_tokens =
        0;  ///< of admitted prompts, where prefixes are cached: before it, after the run in it
    std::uint64_t prefix_tokens = 0;  ///< of them found in the cache
};

/// What became of the requests of one conversation.
struct SessionOutcome {
    SimTime first, last;         ///< request sent, and accounted for
    std::uint32_t requests = 0;  ///< accounted for,
    std::uint32_t unserved = 0;  ///< and of them not answered
};

struct ServiceResult : WindowCounts {
    std::vector<RequestOutcome> requests;  ///< finished ones, in order of arrival
    std::uint64_t refused = 0;             ///< could never have run: longer than the context or the cache
    std::uint64_t timed_out = 0;           ///< the client gave up
    std::uint64_t failed = 0;              ///< lost with their replica once too often
    std::uint64_t retried = 0;             ///< times that a request started anew on another replica
    std::uint64_t failures = 0;            ///< of replicas
    std::uint64_t wrong = 0;               ///< requests that ended on a replica with silent data corruption
    std::uint64_t decode_steps = 0;        ///< of single sequences, where drafts are verified
    std::uint64_t accepted = 0;            ///< draft tokens
    std::uint64_t preemptions = 0;
    std::uint64_t lone_prompts = 0;  ///< beyond the token budget, that had to wait until their replica was empty
    std::uint64_t kv_transfers = 0;
    double kv_transfer_s = 0;  ///< summed: from the end of a prompt to its sequence being ready to decode
    std::uint64_t iterations = 0;
    std::uint64_t events = 0;
    double end_s = 0;                   ///< when the last request was accounted for
    double window_s = 0;                ///< that rates refer to
    std::uint64_t starts = 0;           ///< of replicas, by the autoscaler
    std::uint64_t role_moves = 0;       ///< of GPUs between prompts and decoding
    double prefill_mean = 0;            ///< places of GPUs that computed prompts, with a planner
    std::uint64_t cold_starts = 0;      ///< of replicas, after faults too
    std::array<double, 5> start_s{};    ///< of them, summed by part
    std::uint64_t over_budget = 0;      ///< requests that failed because all had started anew too often
    std::uint64_t lost_tokens = 0;      ///< of caches, that had to be computed anew
    std::uint64_t restored_tokens = 0;  ///< of caches, that came from a copy
    std::uint64_t without_effect = 0;   ///< faults that struck what did not run
    std::uint64_t recoveries = 0;
    double recovery_s = 0;   ///< summed: from a fault to taking requests again
    double down_s = 0;       ///< in the measured window, summed over replicas
    double outage_s = 0;     ///< there, while no replica of some pool could take requests
    double gpu_s = 0;        ///< that GPUs were set aside, summed over them
    double busy_s = 0;       ///< summed over replicas, the mean of a replica's stages
    double in_flight_s = 0;  ///< summed over replicas: time with at least one batch under way
    std::uint64_t most_blocks = 0;
    std::uint64_t prompt_tokens = 0;  ///< of all admitted prompts, where prefixes are cached
    std::uint64_t prefix_tokens = 0;  ///< of them found in the cache
    double fetched_host_bytes = 0;    ///< of them brought from host memory
    double fetched_nvme_bytes = 0;    ///< and from NVMe,
    double fetched_store_bytes = 0;   ///< from a store,
    double fetched_peer_bytes = 0;    ///< and from other replicas
    std::array<std::uint64_t, 3>
        brought_tokens{};  ///< of them from host memory, from NVMe, and from outside the replica
    double store_written_bytes = 0;
    double store_dropped_bytes = 0;         ///< as it was full
    std::uint64_t adapter_requests = 0;     ///< that named one
    std::uint64_t adapter_hits = 0;         ///< whose adapter was on their replica's devices
    std::uint64_t adapter_loads = 0;        ///< adapters brought from host memory
    double adapter_wait_s = 0;              ///< summed over requests: until their adapter was there
    std::uint64_t experts_used = 0;         ///< where some are elsewhere: once a layer and iteration
    std::uint64_t expert_hits = 0;          ///< of them on the devices before,
    std::uint64_t experts_predicted = 0;    ///< brought because a prediction named them,
    std::uint64_t experts_in_vain = 0;      ///< and brought for nothing beside them
    double expert_bytes = 0;                ///< brought to each rank, summed over replicas
    double expert_wait_s = 0;               ///< summed over replicas: layers that waited for experts
    double swap_in_bytes = 0;               ///< from host memory,
    double swap_out_bytes = 0;              ///< and there
    double swap_reused_bytes = 0;           ///< not copied there, as a copy was there
    double swap_stall_s = 0;                ///< summed over replicas: batches that waited for that
    std::uint64_t front_end_requests = 0;   ///< that its cores took in, where they are simulated,
    std::uint64_t front_end_tokens = 0;     ///< and tokens that they sent
    double front_end_request_wait_s = 0;    ///< summed over requests: for a stream, their turn and a core
    double front_end_token_wait_s = 0;      ///< summed over tokens: for a core
    double front_end_busy_s = 0;            ///< of all cores together
    std::uint64_t mixed_prompts = 0;        ///< computed by decode replicas
    std::uint64_t mixed_outputs = 0;        ///< given whole by prefill replicas
    std::vector<IterationRecord> timeline;  ///< the first ones
    std::vector<LifeRecord> lives;          ///< the first ones
    std::vector<AdapterRecord> adapters;    ///< the first ones
    std::vector<TransferRecord> transfers;  ///< the first ones
    std::vector<DownRecord> downs;          ///< all of them
    bool cut = false;                       ///< there were more
    std::vector<StageResult> stages;        ///< of a load that has some
    std::vector<SessionOutcome> sessions;   ///< of a load of conversations, in the order of their numbers
    std::optional<SteadyRun> steady;        ///< of a run that was watched for its steady state
};

}  // namespace orrery::serving
