// What `orrery recommend` chooses from.

#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"
#include "tools/driver/kinds/pool_place.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/plan/recommend.hpp"
#include "workloads/model/model_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace orrery::plan {

namespace {

constexpr std::int64_t kTokenBudgets[] = {2048, 8192};
constexpr std::int64_t kStages[] = {2, 4};
constexpr std::int64_t kWidest = 32;  // ranks over which experts are spread
// Keys of the scenario that each arrangement replaces.
constexpr std::array kReplaced = {"replicas",  "tensor",  "pipeline", "groups",   "expert",      "redundant_experts",
                                  "scheduler", "prefill", "decode",   "transfer", "first_token", "handover"};

struct ReplicaShape {
    std::int64_t tensor = 1, pipeline = 1, groups = 1, expert = 1;
    [[nodiscard]] std::int64_t ranks() const { return tensor * pipeline * groups; }
};

std::string words_of(const ReplicaShape& shape) {
    std::string out = fmt::format("tensor {}", shape.tensor);
    out += shape.pipeline > 1 ? fmt::format(" x pipeline {}", shape.pipeline) : "";
    out += shape.groups > 1 ? fmt::format(" x groups {}", shape.groups) : "";
    return out + (shape.expert > 1 ? fmt::format(", expert {}", shape.expert) : "");
}

std::vector<ReplicaShape> mixed_shapes(const ModelSpec& model, std::int64_t per_node) {
    std::vector<ReplicaShape> out;
    for (std::int64_t tensor = 1; tensor <= per_node; tensor *= 2) {
        out.push_back({tensor, 1, 1, 1});
        for (const std::int64_t stages : kStages) {
            if (tensor * stages <= per_node || tensor * 2 > per_node) {
                out.push_back({tensor, stages, 1, 1});
            }
        }
        if (model.experts.count > 0 && tensor > 1) {
            out.push_back({tensor, 1, 1, tensor});
        }
    }
    for (std::int64_t groups = 2; model.experts.count > 0 && groups <= std::max(per_node, kWidest); groups *= 2) {
        out.push_back({1, 1, groups, groups});
    }
    return out;
}

// Pairs of prefill and decode: prompts within a node; experts spread where sequences decode.
std::vector<std::pair<ReplicaShape, ReplicaShape>> split_shapes(const ModelSpec& model, std::int64_t per_node) {
    const bool experts = model.experts.count > 0;
    std::vector<std::pair<ReplicaShape, ReplicaShape>> out;
    for (std::int64_t prefill = 1; prefill <= per_node; prefill *= 2) {
        const ReplicaShape first{prefill, 1, 1, experts ? prefill : 1};
        for (std::int64_t decode = 1; decode <= (experts ? std::max(per_node, kWidest) : per_node); decode *= 2) {
            out.emplace_back(first, experts ? ReplicaShape{1, 1, decode, decode} : ReplicaShape{decode, 1, 1, 1});
        }
    }
    return out;
}

void take_out(YamlNode& root, const std::string& section, const std::string& key) {
    if (YamlNode* at = root.find(section); at != nullptr) {
        std::erase_if(at->entries, [&](const YamlNode::Entry& entry) { return entry.key == key; });
    }
}

// The values of a section as assignments to the keys of another place.
void assign(const YamlNode* from, const std::string& path, std::vector<std::string>& out) {
    if (from == nullptr || from->kind == YamlNode::Kind::null) {
        return;
    }
    if (from->kind == YamlNode::Kind::scalar) {
        out.push_back(fmt::format("{}={}", path, from->scalar));
    }
    for (const YamlNode::Entry& entry : from->entries) {
        assign(&entry.value, path + "." + entry.key, out);
    }
}

void assign(const ReplicaShape& shape, const std::string& path, std::vector<std::string>& out) {
    out.push_back(fmt::format("{}.tensor={}", path, shape.tensor));
    for (const auto& [key, value] :
         {std::pair{"pipeline", shape.pipeline}, {"groups", shape.groups}, {"expert", shape.expert}}) {
        if (value > 1) {
            out.push_back(fmt::format("{}.{}={}", path, key, value));
        }
    }
}

std::vector<std::string> with_replicas(std::vector<std::string> out, bool split, ReplicaCounts counts) {
    if (split) {
        out.push_back(fmt::format("engine.prefill.replicas={}", counts.first));
        out.push_back(fmt::format("engine.decode.replicas={}", counts.second));
    } else {
        out.push_back(fmt::format("engine.replicas={}", counts.first));
    }
    return out;
}

// Every token of a dense model reads a replica's weights once: whether that alone is over a limit.
bool is_too_slow(const Scenario& scenario, const RecommendOptions& options) {
    const auto& serving = scenario.as<ServingKind>();
    const EngineSpec& engine = serving.engine;
    double limit = options.limits.empty() ? serving.slo.tpot : 0;
    for (const LatencyLimit& one : options.limits) {
        limit = one.metric == "tpot" && one.percentile >= 50 ? one.seconds : limit;
    }
    if (limit <= 0 || serving.model.experts.count > 0 || engine.speculates) {
        return false;
    }
    const PhaseSpec& phase = engine.split ? engine.decode : engine.mixed;
    const DeviceSpec& device = scenario.cluster.node.gpu;
    double seconds = 0;
    for (std::int64_t stage = 0; stage < phase.pipeline; ++stage) {
        seconds +=
            weight_bytes(serving.model, engine.quantisation(device), phase, stage) / device.memory_bandwidth.value;
    }
    return seconds > limit;
}

// Replicas that the products of the prompts ask for at the vendor's rate, by half of them: which prompts are in time, and how long a
// drawn one is, may differ by less. Of loads whose first tokens have a limit; 1 for others.
std::int64_t least_replicas(const Scenario& scenario, const RecommendOptions& options) {
    const auto& serving = scenario.as<ServingKind>();
    const RequestsSpec& requests = serving.requests;
    double wait = options.limits.empty() ? serving.slo.ttft : 0;
    for (const LatencyLimit& one : options.limits) {
        wait = one.metric == "ttft" || one.metric == "e2e" ? one.seconds : wait;
    }
    const bool plain = requests.trace.empty() && requests.mix.empty() && requests.longest == 0 &&
                       requests.samples == 1 && requests.turns == 0 && !requests.conversations &&
                       !serving.engine.prefix_cache && requests.swing == 0;
    if (wait <= 0 || !plain) {
        return 1;
    }
    const PhaseSpec& phase = serving.engine.split ? serving.engine.prefill : serving.engine.mixed;
    const double flops = scenario.cluster.node.gpu.matrix_flops(serving.engine.weights);
    const double tables =
        2 * static_cast<double>(serving.model.vocabulary * serving.model.hidden);  // which prompts do not pass
    const double each = 2 * std::max(0.0, active_parameters(serving.model) - tables) * requests.prompt.mean;
    const double count = static_cast<double>(requests.count);
    const double rate = requests.count > 0 ? count / (count / requests.rate + wait) : requests.rate;
    constexpr double kSure = 0.5;
    return flops > 0
               ? std::max<std::int64_t>(
                     1, std::llround(std::ceil(kSure * rate * each / (flops * static_cast<double>(phase.ranks())))))
               : 1;
}

class Lister {
  public:
    Lister(const YamlNode& root, const Scenario& base, const DataDirectory& data, const RecommendOptions& options)
        : root_(root), base_(base), data_(data), options_(options) {}

    ArrangementList list() {
        check();
        const YamlNode* engine = root_.find("engine");
        bare_ = root_;
        for (const char* key : kReplaced) {
            take_out(bare_, "engine", key);
            out_.without.push_back(fmt::format("engine.{}", key));
        }
        const auto under = [&](const char* part, const char* key) {
            const YamlNode* phase = engine == nullptr ? nullptr : part[0] == '\0' ? engine : engine->find(part);
            return phase == nullptr ? nullptr : phase->find(key);
        };
        const YamlNode* own = under("", "scheduler");
        const YamlNode* prefill = under("prefill", "scheduler");
        const YamlNode* decode = under("decode", "scheduler");
        assign(own != nullptr ? own : prefill, "engine.scheduler", mixed_);
        assign(prefill != nullptr ? prefill : own, "engine.prefill.scheduler", split_);
        assign(decode != nullptr ? decode : own, "engine.decode.scheduler", split_);
        for (const char* key : {"transfer", "first_token", "handover"}) {
            assign(under("", key), fmt::format("engine.{}", key), split_);
        }
        if (under("", "transfer") == nullptr) {
            split_.emplace_back("engine.transfer=layers");
        }
        std::vector<DeviceChoice> devices = options_.devices;
        if (devices.empty()) {
            devices.push_back({"", "", 0});
        }
        std::vector<Diagnostic> errors;
        for (DeviceChoice& device : devices) {
            price(device, errors);
        }
        throw_if_any(errors);
        for (const DeviceChoice& device : devices) {
            list(device);
        }
        return std::move(out_);
    }

  private:
    void check() const {
        std::vector<Diagnostic> errors;
        const auto refuse = [&](bool wrong, const Mark& mark, const char* why) {
            if (wrong) {
                errors.push_back(mark.error(why));
            }
        };
        if (base_.find<ServingKind>() == nullptr) {
            throw ConfigError(
                "an arrangement is recommended for scenarios of kind serving; 'orrery plan' is for others");
        }
        const auto& serving = base_.as<ServingKind>();
        const EngineSpec& engine = serving.engine;
        refuse(base_.cluster.mixed, base_.cluster_mark,
               "a cluster of one kind of node is asked for (--gpus names the kinds)");
        const auto any = [&](auto is) { return engine.any_phase(is); };
        refuse(any([](const PhaseSpec& phase) { return phase.other_device || !phase.group.empty(); }),
               serving.engine_mark, "replicas have devices or groups of their own here; --gpus chooses them");
        refuse(any([](const PhaseSpec& phase) { return phase.scales; }), serving.engine_mark,
               "replicas come and go here; the number of replicas that always run is what is searched");
        refuse(any([](const PhaseSpec& phase) { return phase.units != 1 || phase.clock != 1; }) ||
                   engine.same_devices || engine.mixes,
               serving.engine_mark, "phases that share devices or work, and clocks of pools, are not searched");
        refuse(engine.has_step_cost, serving.engine_mark,
               "a step_cost is of one device and shape, not of those to choose from");
        refuse(engine.caches_experts, serving.engine_mark,
               "an expert_cache is of one host and shape, not of those to choose from");
        refuse(engine.faults.given, serving.engine_mark,
               "faults are of replicas that exist; --spare says how many may be lost");
        const ArrivalKind arrivals = serving.requests.arrivals;
        refuse(arrivals == ArrivalKind::closed || (serving.requests.trace.empty() && arrivals == ArrivalKind::at_once),
               serving.requests_mark, "requests that arrive at once or in closed loops wait for any number of GPUs");
        refuse(options_.limits.empty() && serving.slo.ttft <= 0 && serving.slo.tpot <= 0 && serving.slo.tbt <= 0, {},
               "limits are needed: --slo ttft_p95=2s,tpot_p95=50ms, or 'slo' in the scenario");
        throw_if_any(errors);
    }

    [[nodiscard]] std::vector<std::string> assignments_of(const DeviceChoice& device) const {
        std::vector<std::string> out;
        if (!device.node.empty()) {
            out.push_back(fmt::format("cluster.node={}", device.node));
        }
        if (device.price > 0) {
            out.push_back(fmt::format("cluster.node.gpu.price={:.12g}", device.price));
        } else if (!options_.pricing.empty()) {
            out.push_back(fmt::format("cluster.node.gpu.price={}", options_.pricing));
        }
        return out;
    }

    [[nodiscard]] Scenario read(const std::vector<std::string>& assignments) const {
        YamlNode tree = bare_;
        for (const std::string& assignment : assignments) {
            apply_override(tree, assignment);
        }
        return read_scenario(tree, base_.name, data_);
    }

    void price(DeviceChoice& device, std::vector<Diagnostic>& errors) const {
        std::vector<std::string> assignments = assignments_of(device);
        assignments.emplace_back("cluster.nodes=1");
        assignments.emplace_back("engine.tensor=1");
        const Scenario scenario = read(assignments);
        const DeviceSpec& gpu = scenario.cluster.node.gpu;
        device.name = device.name.empty() ? gpu.name : device.name;
        if (gpu.price.value <= 0) {
            errors.push_back({"", 0, 0,
                              fmt::format("no price of {0} is known: give --price {0}=USD, of a GPU hour", device.name),
                              ErrorCode::command_line});
        }
    }

    void list(const DeviceChoice& device) {
        std::vector<std::string> kind = assignments_of(device);
        const Scenario first = [&] {
            std::vector<std::string> all = kind;
            all.emplace_back("engine.tensor=1");
            return read(all);
        }();
        const auto& serving = first.as<ServingKind>();
        const Precision own = serving.engine.weights;
        std::vector<Precision> weights = options_.weights;
        if (weights.empty()) {
            weights.push_back(own);
            for (const Precision narrow : {Precision::fp8, Precision::fp4}) {
                if (bytes_of(narrow) < bytes_of(own) && first.cluster.node.gpu.matrix_flops(narrow) > 0) {
                    weights.push_back(narrow);
                }
            }
        }
        const std::vector<std::string> engines =
            options_.engines.empty() ? std::vector<std::string>{""} : options_.engines;
        const std::vector<std::string> routers =
            options_.routers.empty() ? std::vector<std::string>{""} : options_.routers;
        for (const Precision precision : weights) {
            for (const std::string& engine : engines) {
                for (const std::string& router : routers) {
                    Arrangement like;
                    like.assignments = kind;
                    const std::string name = precision_names()[static_cast<std::size_t>(precision)];
                    if (precision != own) {
                        like.assignments.push_back(fmt::format("engine.weights={}", name));
                    }
                    if (!engine.empty()) {
                        like.assignments.push_back(fmt::format("engine.software={}", engine));
                    }
                    like.engine = engine;
                    like.device = device.name;
                    like.price = first.cluster.node.gpu.price.value;
                    like.router = router.empty() ? "" : fmt::format("engine.router={}", router);
                    like.words = fmt::format("{}, {}{}{}", device.name, name, engine.empty() ? "" : ", " + engine,
                                             router.empty() ? "" : ", " + router);
                    list_shapes(like, serving.model, first.cluster.node.gpus);
                }
            }
        }
    }

    void list_shapes(const Arrangement& like, const ModelSpec& model, std::int64_t per_node) {
        if (options_.mixed) {
            for (const ReplicaShape& shape : mixed_shapes(model, per_node)) {
                Arrangement one = like;
                one.assignments.insert(one.assignments.end(), mixed_.begin(), mixed_.end());
                assign(shape, "engine", one.assignments);
                one.words += ", " + words_of(shape);
                std::vector<std::int64_t> budgets(std::begin(kTokenBudgets), std::end(kTokenBudgets));
                const std::int64_t own = base_.as<ServingKind>().engine.mixed.scheduler.token_budget;
                if (!base_.as<ServingKind>().engine.split &&
                    std::find(budgets.begin(), budgets.end(), own) == budgets.end()) {
                    budgets.push_back(own);
                }
                bool any = false;
                for (const std::int64_t budget : budgets) {
                    Arrangement with = one;
                    with.assignments.push_back(fmt::format("engine.scheduler.token_budget={}", budget));
                    with.words += fmt::format(", {} tokens per iteration", budget);
                    any = add(std::move(with), false) || any;
                }
                if (!any) {
                    (void)add(std::move(one), true);  // of schedulers without a budget
                }
            }
        }
        if (options_.split) {
            for (const auto& [prefill, decode] : split_shapes(model, per_node)) {
                Arrangement one = like;
                one.split = true;
                one.assignments.insert(one.assignments.end(), split_.begin(), split_.end());
                assign(prefill, "engine.prefill", one.assignments);
                assign(decode, "engine.decode", one.assignments);
                one.words += fmt::format(", prefill of {} and decode of {}", words_of(prefill), words_of(decode));
                (void)add(std::move(one), true);
            }
        }
    }

    // False: the scenario refuses it. `counts`: that is counted.
    bool add(Arrangement one, bool counts) {
        try {
            std::vector<std::string> all = with_replicas(one.assignments, one.split, {2, 2});
            if (!one.router.empty()) {
                all.push_back(one.router);
            }
            one.scenario = read(all);
        } catch (const ConfigError& error) {
            if (counts) {
                ++out_.listed;
                ++out_.refused;
                out_.why_refused = out_.why_refused.empty() ? error.what() : out_.why_refused;
            }
            return false;
        }
        ++out_.listed;
        const auto& serving = one.scenario.as<ServingKind>();
        try {
            for (const auto& [role, phase] : serving.engine.phases()) {
                check_spec(*phase, serving.model);
                (void)limits_of(serving.engine, *phase, serving.model, one.scenario.cluster.node.gpu);
            }
        } catch (const InfeasibleError& error) {
            ++(error.code() == ErrorCode::out_of_memory ? out_.do_not_fit : out_.do_not_divide);
            return true;
        }
        if (!options_.exhaustive) {
            if (is_too_slow(one.scenario, options_)) {
                ++out_.too_slow;
                return true;
            }
            one.least = least_replicas(one.scenario, options_);
        }
        out_.open.push_back(std::move(one));
        return true;
    }

    const YamlNode& root_;
    const Scenario& base_;
    const DataDirectory& data_;
    const RecommendOptions& options_;
    YamlNode bare_;                           ///< without what arrangements replace
    std::vector<std::string> mixed_, split_;  ///< what they keep of it
    ArrangementList out_;
};

}  // namespace

LatencyLimit read_limit(const std::string& text, std::vector<Diagnostic>& errors) {
    LatencyLimit out;
    const auto bad = [&](const std::string& why) {
        errors.push_back({"", 0, 0, fmt::format("--slo {}: {}", text, why), ErrorCode::command_line});
    };
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const std::size_t at = name.find("_p");
    out.metric = name.substr(0, at);
    const std::vector<std::string> known = {"ttft", "tpot", "tbt", "e2e"};
    if (std::find(known.begin(), known.end(), out.metric) == known.end()) {
        const std::string near = nearest_name(out.metric, known);
        bad(fmt::format("'{}' is no latency of ttft, tpot, tbt and e2e{}", out.metric,
                        near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
    if (at != std::string::npos &&
        (!parse_number(name.substr(at + 2), out.percentile) || out.percentile < 1 || out.percentile > 99.9)) {
        bad(fmt::format("'{}' is no percentile from 1 to 99.9, such as p95", name.substr(at + 1)));
    }
    if (out.metric == "tbt") {
        out.percentile = at == std::string::npos ? 99 : out.percentile;
        if (out.percentile != 50 && out.percentile != 90 && out.percentile != 99) {
            bad("percentiles of the time between two tokens are 50, 90 and 99");
        }
    }
    std::string problem;
    const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
    if (!parse_quantity(value, Dimension::time, out.seconds, problem) || out.seconds <= 0 || out.seconds > 1e6) {
        bad("expected METRIC_pNN=TIME, such as ttft_p95=2s");
    }
    return out;
}

std::string limit_text(const LatencyLimit& limit) {
    return fmt::format("{} p{:g} <= {}", limit.metric, limit.percentile,
                       pretty_quantity(limit.seconds, Dimension::time));
}

DeviceChoice device_choice(const std::string& name, const DataDirectory& data, std::vector<Diagnostic>& errors) {
    const PresetKind nodes{"node", "topologies/data/nodes"};
    const PresetKind devices{"device", "models/data/devices"};
    std::vector<std::string> known = data.names(nodes);
    if (std::find(known.begin(), known.end(), name) != known.end()) {
        return {name, name, 0};
    }
    std::string found;
    std::vector<std::string> all = known;
    for (const std::string& node : known) {
        const YamlNode* gpu = data.preset(nodes, node)->find("gpu");
        if (gpu == nullptr || gpu->kind != YamlNode::Kind::scalar) {
            continue;  // a price or limit of its own
        }
        all.push_back(gpu->scalar);
        const auto rank = [](const std::string& one) {
            return one.rfind("dgx", 0) == 0 ? 0 : one.rfind("hgx", 0) == 0 ? 1 : 2;
        };
        if (gpu->scalar == name && (found.empty() || rank(node) < rank(found))) {
            found = node;
        }
    }
    if (found.empty()) {
        const std::vector<std::string> presets = data.names(devices);
        const bool bare = std::find(presets.begin(), presets.end(), name) != presets.end();
        const std::string near = nearest_name(name, all);
        errors.push_back(
            {"", 0, 0,
             bare ? fmt::format("--gpus: no node with {} is described: name a node ('orrery list nodes')", name)
                  : fmt::format("--gpus: unknown device or node '{}'{}", name,
                                near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
             ErrorCode::unknown_name});
    }
    return {name, found, 0};
}

ArrangementList list_arrangements(const YamlNode& root, const Scenario& base, const DataDirectory& data,
                                  const RecommendOptions& options) {
    return Lister(root, base, data, options).list();
}

std::int64_t gpus_of(const Arrangement& arrangement, ReplicaCounts counts) {
    const EngineSpec& engine = arrangement.scenario.as<ServingKind>().engine;
    return arrangement.split ? counts.first * engine.prefill.ranks() + counts.second * engine.decode.ranks()
                             : counts.first * engine.mixed.ranks();
}

std::int64_t nodes_of(const Arrangement& arrangement, ReplicaCounts counts) {
    const EngineSpec& engine = arrangement.scenario.as<ServingKind>().engine;
    const auto per_node = static_cast<std::uint32_t>(arrangement.scenario.cluster.node.gpus);
    std::int64_t end = 0;
    for (const auto& [role, phase] : engine.phases()) {
        const std::int64_t count = role == Role::decode ? counts.second : counts.first;
        end = pool_begin(*phase, static_cast<std::uint32_t>(end), per_node) + count * phase->ranks();
    }
    return (end + per_node - 1) / per_node;
}

double cost_of(const Arrangement& arrangement, ReplicaCounts counts, bool whole_nodes) {
    const std::int64_t gpus = whole_nodes ? nodes_of(arrangement, counts) * arrangement.scenario.cluster.node.gpus
                                          : gpus_of(arrangement, counts);
    return arrangement.price * static_cast<double>(gpus);
}

std::vector<std::string> assignments_of(const Arrangement& arrangement, ReplicaCounts counts) {
    std::vector<std::string> out = arrangement.assignments;
    out.push_back(fmt::format("cluster.nodes={}", nodes_of(arrangement, counts)));
    out = with_replicas(std::move(out), arrangement.split, counts);
    if (!arrangement.router.empty() && (counts.first > 1 || counts.second > 1)) {
        out.push_back(arrangement.router);
    }
    return out;
}

Scenario scenario_of(const Arrangement& arrangement, ReplicaCounts counts) {
    Scenario out = arrangement.scenario;
    out.cluster.nodes = nodes_of(arrangement, counts);
    EngineSpec& engine = out.as<ServingKind>().engine;
    (arrangement.split ? engine.prefill : engine.mixed).replicas = counts.first;
    engine.decode.replicas = arrangement.split ? counts.second : engine.decode.replicas;
    return out;
}

}  // namespace orrery::plan
