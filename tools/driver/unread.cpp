#include "tools/driver/unread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace orrery::inline driver {

namespace {

// The value at a path such as "faults.processes.0.lasts", or what is there of it.
const YamlNode& nearest_at(const YamlNode& root, const std::string& path) {
    const YamlNode* at = &root;
    for (std::size_t from = 0; from <= path.size();) {
        const std::size_t end = std::min(path.find('.', from), path.size());
        const std::string key = path.substr(from, end - from);
        const YamlNode* next = at->find(key);
        if (at->kind == YamlNode::Kind::sequence) {
            const std::size_t index = std::stoul(key);
            next = index < at->items.size() ? &at->items[index] : nullptr;
        }
        if (next == nullptr) {
            break;
        }
        at = next;
        from = end + 1;
    }
    return *at;
}

bool is_override(const YamlNode& node) {
    return node.mark.file && node.mark.file->rfind("--set", 0) == 0;
}

bool has_override(const YamlNode& node) {
    return is_override(node) || std::any_of(node.items.begin(), node.items.end(), has_override) ||
           std::any_of(node.entries.begin(), node.entries.end(),
                       [](const YamlNode::Entry& entry) { return has_override(entry.value); });
}

class Unread {
  public:
    Unread(const YamlNode& root, std::vector<Diagnostic>& errors)
        : root_(root), errors_(errors), overridden_(has_override(root)) {}

    /// `given`: the value differs from its default. `reader`: what reads it, and is not there.
    void refuse(bool given, const std::string& path, bool read, const char* reader) {
        if (!given || read) {
            return;
        }
        // What an override has left without a meaning stays: a trace in place of a generator, another kind of arrivals.
        if (const YamlNode& at = nearest_at(root_, path); !overridden_ || is_override(at)) {
            errors_.push_back(at.mark.error(fmt::format("'{}' changes nothing: it needs {}", path, reader)));
        }
    }

  private:
    const YamlNode& root_;
    std::vector<Diagnostic>& errors_;
    bool overridden_;
};

void refuse_requests(Unread& unread, const RequestsSpec& spec) {
    const RequestsSpec usual;
    const auto lengths = [](const LengthSpec& a, const LengthSpec& b) {
        return a.kind != b.kind || a.mean != b.mean || a.spread != b.spread || a.most != b.most;
    };
    const bool made = spec.trace.empty();
    const bool mixed = !spec.mix.empty();
    const bool closed = spec.arrivals == ArrivalKind::closed;
    const bool timed = made && !closed && (mixed || spec.arrivals != ArrivalKind::at_once);
    unread.refuse(spec.clients > 0, "requests.clients", closed, "arrivals: closed");
    unread.refuse(spec.rate != usual.rate, "requests.rate", timed,
                  "generated requests that come by it: a trace, a closed loop and arrivals at once have none");
    unread.refuse(spec.burstiness != usual.burstiness, "requests.burstiness",
                  timed && !mixed && spec.arrivals == ArrivalKind::gamma,
                  "arrivals: gamma (clients of a 'mix' have their own)");
    unread.refuse(spec.swing > 0, "requests.swing", timed, "generated requests that come at a rate");
    unread.refuse(spec.period != usual.period, "requests.period", spec.swing > 0, "a 'swing'");
    for (const auto& [own, other, path] : {std::tuple{&spec.prompt, &usual.prompt, "requests.prompt"},
                                           {&spec.output, &usual.output, "requests.output"}}) {
        unread.refuse(lengths(*own, *other), path, made && !mixed,
                      "generated requests: a trace and the clients of a 'mix' have lengths of their own");
        unread.refuse(own->spread != other->spread, std::string(path) + ".spread", own->kind != LengthKind::fixed,
                      "kind: uniform or lognormal");
    }
    unread.refuse(spec.longest > 0, "requests.longest", made, "generated requests");
    unread.refuse(spec.common > 0, "requests.common", made, "generated requests");
    unread.refuse(spec.common_kinds > 1, "requests.common_kinds", spec.common > 0, "'common' tokens");
    unread.refuse(spec.adapter_skew > 0, "requests.adapter_skew", spec.adapters > 0, "'adapters'");
}

}  // namespace

void refuse_unread_model(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    const ModelSpec& model = scenario.model;
    const LatentSpec usual;
    const char* latent = "latent attention: a 'kv_rank'";
    unread.refuse(model.full_every > 0, "model.full_every", model.window > 0, "a 'window'");
    unread.refuse(model.latent.q_rank > 0, "model.latent.q_rank", model.latent.kv_rank > 0, latent);
    unread.refuse(model.latent.rotary != usual.rotary, "model.latent.rotary", model.latent.kv_rank > 0, latent);
}

void refuse_unread_serving(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    refuse_requests(unread, scenario.requests);
    const EngineSpec& engine = scenario.engine;
    const bool experts = scenario.model.experts.count > 0;
    const char* of_experts = "a model with experts";
    unread.refuse(engine.experts_differ, "engine.experts", experts, of_experts);
    unread.refuse(engine.dispatch != Dispatch::gather, "engine.dispatch", experts, of_experts);
    unread.refuse(engine.scaling != Scaling::tensor, "engine.scaling", experts, of_experts);
    unread.refuse(engine.expert_load != 1, "engine.expert_load", experts, of_experts);
    unread.refuse(engine.transfer != Transfer::whole, "engine.transfer", engine.split,
                  "'prefill' and 'decode' replicas");
    unread.refuse(engine.of_free, "engine.kv.of_free", engine.blocks == 0, "'memory', and 'blocks' replaces it");
    unread.refuse(engine.nvme_bandwidth > 0, "engine.kv.prefix.nvme_bandwidth", engine.prefix_nvme > 0, "'nvme'");
    unread.refuse(engine.router.name() == std::string("prefix"), "engine.router", engine.prefix_cache,
                  "a prefix cache: 'kv.prefix'");
    const auto swaps = [](const PhaseSpec& phase) { return phase.scheduler.policy.name() == "vllm-v0"; };
    unread.refuse(engine.host_memory > 0, "engine.kv.host_memory",
                  engine.split ? swaps(engine.prefill) || swaps(engine.decode) : swaps(engine.mixed),
                  "a scheduler that swaps: vllm-v0");
    const bool fails = engine.failure.down_s > 0 || engine.failures.mean_between_s > 0;
    unread.refuse(engine.failure.at_s > 0, "engine.failures.at", engine.failure.down_s > 0,
                  "'down', the time it is gone");
    unread.refuse(engine.failures.mean_repair_s > 0, "engine.failures.mean_repair", engine.failures.mean_between_s > 0,
                  "'mean_between'");
    unread.refuse(engine.fails, "engine.failures", fails, "a failure: 'down' or 'mean_between'");
}

void refuse_unread_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    const FaultsSpec& faults = scenario.faults;
    const RecoverySpec usual;
    for (std::size_t i = 0; i < faults.processes.size(); ++i) {
        const ProcessSpec& process = faults.processes[i];
        const std::string at = fmt::format("faults.processes.{}.", i);
        unread.refuse(process.bad_share > 0, at + "bad_share", process.bad_factor > 1, "a 'bad_factor' above 1");
        unread.refuse(process.bad_factor > 1, at + "bad_factor", process.bad_share > 0, "a 'bad_share' above 0 %");
    }
    const RecoverySpec& recovery = faults.recovery;
    unread.refuse(recovery.borrow_s != usual.borrow_s, "faults.recovery.borrow", recovery.spares > 0, "'spares'");
    unread.refuse(recovery.retire_window_s != usual.retire_window_s, "faults.recovery.repair.retire_window",
                  recovery.retire_after > 0, "'retire_after'");
}

}  // namespace orrery::inline driver
