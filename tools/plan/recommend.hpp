#pragma once
// The cheapest way to serve a load within limits: which GPUs, in what precision, in which replicas, and how many.
//
// The space: devices x precisions of the weights x engines x shapes of a replica (tensor, pipeline, and for experts attention groups) x
// mixed replicas with budgets of tokens, or prefill beside decode replicas x routers. Everything else is as in the scenario.
// The search: what does not divide or fit, or cannot be fast enough by its bytes, is left out without a run. Of the rest those that look
// cheapest are judged on ever longer parts of the load, the last time on all of it, until nothing open looks cheaper than the best. The
// number of replicas is searched by steps that double and bisection, from a bound of arithmetic on.
// Claims: every ranked arrangement holds the limits on the whole load, and with one replica fewer (of each pool) it does not, or would
// be below a bound; `fewer` says what gives out. The limits also hold after `spare` replicas of either pool are lost.
// Limits: a part of a load asks for fewer replicas than the whole does, as queues show late; an arrangement of which a part asks for
// more is lost (`exhaustive` looks). Attainment is taken to grow with the replicas.
// Prices are those of models/data/prices.yaml, of one class (on demand by default), or the user's.
// Sources: Li et al., "Hyperband", JMLR 18, 2018, section 2 (ever longer runs of ever fewer candidates); NVIDIA's aiconfigurator (the
// axes tokens/s/GPU and tokens/s/user).
// Validated by tests/tools/recommend_test.cpp against trying everything.

#include "tools/driver/scenario.hpp"
#include "workloads/serving/spec.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orrery::plan {

/// What a percentile of a latency may be.
struct LatencyLimit {
    std::string metric;      ///< ttft, tpot, tbt or e2e
    double percentile = 95;  ///< tbt: 50, 90 or 99
    double seconds = 0;
};

/// Reads "ttft_p95=2s"; "tpot=50ms" is of the 95th percentile. Adds to `errors` what is wrong with it.
[[nodiscard]] LatencyLimit read_limit(const std::string& text, std::vector<Diagnostic>& errors);
/// "ttft p95 <= 2 s".
[[nodiscard]] std::string limit_text(const LatencyLimit& limit);

/// A device to choose from.
struct DeviceChoice {
    std::string name;  ///< as the user says it
    std::string node;  ///< preset of the node it comes in; empty: the scenario's own
    double price = 0;  ///< USD per GPU hour; 0: the preset's
};

/// The node preset of a device, a vendor's own system first, or of a node. Adds to `errors` a name that is neither.
[[nodiscard]] DeviceChoice device_choice(const std::string& name, const DataDirectory& data,
                                         std::vector<Diagnostic>& errors);

struct RecommendOptions {
    std::vector<DeviceChoice> devices;  ///< empty: the scenario's own
    std::vector<LatencyLimit> limits;   ///< empty: the scenario's `slo`, by `attainment`
    double attainment = 0.9;            ///< share of the requests that meet all of `slo`
    std::vector<Precision> weights;    ///< empty: the scenario's own, and the narrower ones that a device has units for
    std::vector<std::string> engines;  ///< presets of `engine.software`; empty: the scenario's own
    std::vector<std::string> routers;  ///< empty: the scenario's own
    bool mixed = true, split = true;   ///< pools to try
    std::int64_t most_gpus = 256;
    double budget = 0;         ///< USD per hour; 0: none
    std::string pricing;       ///< class of prices, for devices without a `price`; empty: what the scenario says
    std::int64_t spare = 0;    ///< replicas of each pool that may be lost
    bool whole_nodes = false;  ///< a node is paid for with all its GPUs
    std::size_t judged = 12;   ///< the least number of arrangements to run on the whole load, where that many exist
    bool exhaustive = false;   ///< every arrangement and number of replicas, on the whole load
    unsigned workers = 1;
    std::function<void(const std::string&)> found;  ///< called with a line about what is tried and the best so far
};

/// One arrangement without the number of its replicas.
struct Arrangement {
    Scenario scenario;                     ///< with one replica of each pool
    std::vector<std::string> assignments;  ///< that make it, less replicas and nodes
    std::string words;                     ///< "h200-sxm, fp8, tensor 2, 8,192 tokens per iteration"
    std::string device;
    std::string engine;  ///< preset of its software, where one is chosen
    std::string router;  ///< an assignment, where there are several replicas
    double price = 0;    ///< USD per GPU hour
    bool split = false;
    std::int64_t least = 1;  ///< replicas that a bound asks for, mixed or of prefill
};

/// Replicas of the pool, or of prefill and of decode.
struct ReplicaCounts {
    std::int64_t first = 1;
    std::int64_t second = 0;
    friend auto operator<=>(const ReplicaCounts&, const ReplicaCounts&) = default;
};

/// What all arrangements were made from, and what was left out.
struct ArrangementList {
    std::vector<Arrangement> open;
    std::vector<std::string> without;  ///< keys of the scenario that the assignments replace
    std::uint64_t listed = 0;
    std::uint64_t do_not_divide = 0;
    std::uint64_t do_not_fit = 0;
    std::uint64_t too_slow = 0;  ///< to read their weights for each token
    std::uint64_t refused = 0;   ///< the scenario does not go with it
    std::string why_refused;     ///< the first
};

/// Throws ConfigError for a scenario that nothing can be recommended for, with every reason.
[[nodiscard]] ArrangementList list_arrangements(const YamlNode& root, const Scenario& base, const DataDirectory& data,
                                                const RecommendOptions& options);

[[nodiscard]] std::int64_t gpus_of(const Arrangement& arrangement, ReplicaCounts counts);
[[nodiscard]] std::int64_t nodes_of(const Arrangement& arrangement, ReplicaCounts counts);
[[nodiscard]] double cost_of(const Arrangement& arrangement, ReplicaCounts counts, bool whole_nodes);
/// Assignments that turn the scenario, less `without`, into this.
[[nodiscard]] std::vector<std::string> assignments_of(const Arrangement& arrangement, ReplicaCounts counts);
/// The scenario of it.
[[nodiscard]] Scenario scenario_of(const Arrangement& arrangement, ReplicaCounts counts);

struct Recommendation {
    std::size_t arrangement = 0;  ///< of the list
    ReplicaCounts replicas;
    std::int64_t gpus = 0;
    double usd_per_hour = 0;
    double output_tokens = 0;    ///< per second
    double tokens_per_gpu = 0;   ///< output tokens per second
    double tokens_per_user = 0;  ///< output tokens per second of one request: 1 / the median time per token
    double ttft = 0, tpot = 0;   ///< s, 95th percentiles
    std::vector<double> values;  ///< of the limits with all replicas, in their order; or the attainment
    std::vector<double> lost;    ///< the same with the spare ones lost, the worse; empty: none is spare
    std::string fewer;           ///< what gives out with a replica less
    bool pareto = false;         ///< none is cheaper, and serves each user and uses its GPUs as well
};

struct RecommendSearch {
    ArrangementList list;
    std::vector<Recommendation> ranked;  ///< on the whole load, by cost
    std::uint64_t miss_limits = 0;       ///< with as many replicas as are allowed
    std::uint64_t dearer = 0;            ///< left open, or above twice the best cost
    std::uint64_t runs = 0;
};

/// Throws as list_arrangements, and InfeasibleError when nothing holds the limits.
[[nodiscard]] RecommendSearch recommend(const YamlNode& root, const Scenario& base, const DataDirectory& data,
                                        const RecommendOptions& options);

}  // namespace orrery::plan
