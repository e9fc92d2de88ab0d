#include "workloads/serving/spec.hpp"

#include "sim/base/error.hpp"
#include "sim/config/given.hpp"
#include "sim/device/memory_tier.hpp"
#include "workloads/serving/cost/streamed_weights.hpp"
#include "workloads/serving/engine_memory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::serving {

namespace {

constexpr PresetKind kDevices{"device", "models/data/devices"};

const std::vector<std::string> kEvictions = {"lru", "lfu"};

const std::vector<std::string> kWeightsFrom = {"storage", "host", "peer"};

// `restarts`: faults stop replicas, which start again.
void describe_start(Fields& fields, PhaseSpec& phase, bool restarts, bool spares) {
    StartSpec& start = phase.start;
    const bool fresh = phase.scales || spares;
    constexpr const char* kFresh = "new machines (autoscale or faults.recovery.spares)";
    fields.when(
        phase.scales || restarts, "replicas that start (autoscale, or faults that stop some)", [&](Fields& all) {
            all.section(
                {"start", "start-up phases of a replica before its first request, in sequence"}, [&](Fields& inner) {
                    inner.when(fresh, kFresh, [&](Fields& same) {
                        same.quantity({"provision", "time until a replica's machine is there", false, 0, 1e6},
                                      Dimension::time, start.provision_s);
                    });
                    inner.when(fresh && start.registry > 0,
                               "new machines (autoscale or faults.recovery.spares) and the rate of a registry",
                               [&](Fields& same) {
                                   same.quantity(
                                       {"image", "size of the container image on each new machine", false, 0, 1e13},
                                       Dimension::bytes, start.image);
                               });
                    inner.when(start.image > 0, "an image", [&](Fields& same) {
                        same.quantity({"registry", "link over which all images come; 0 B/s: at once", false, 0, 1e15},
                                      Dimension::rate, start.registry);
                    });
                    inner.quantity({"initialise", "time to start processes, contexts and communicators", false, 0, 1e6},
                                   Dimension::time, start.initialise_s);
                    inner.enumeration({"weights",
                                       "source of the weights: storage, host memory (lost on a machine that broke), "
                                       "or a running replica"},
                                      kWeightsFrom, start.weights);
                    inner.quantity({"storage", "link over which all weights come; 0 B/s: at once", false, 0, 1e15},
                                   Dimension::rate, start.storage);
                    inner.quantity({"warm_up", "time from loaded weights to the first request", false, 0, 1e6},
                                   Dimension::time, start.warm_up_s);
                });
        });
}

void describe_scaling(Fields& fields, PhaseSpec& phase) {
    ScalingSpec& scaling = phase.scaling;
    auto least = static_cast<std::int64_t>(scaling.least);
    fields.optional(
        {"autoscale", "number of running replicas, which follows the load"}, phase.scales, [&](Fields& inner) {
            inner.enumeration(
                {"rule", "quantity that the number of replicas follows: outstanding requests, or arriving ones"},
                {"queue", "rate"}, scaling.rule);
            inner.number({"target", "load per replica: outstanding requests, or requests per second", true, 0.001, 1e6},
                         scaling.target);
            inner.integer({"least", "replicas that always run; 0: the first request starts one", false, 0, 1 << 16},
                          least);
            inner.quantity({"interval", "interval between two looks at the load", false, 1, 1e6}, Dimension::time,
                           scaling.interval_s);
            inner.quantity(
                {"scrape", "interval between two measurements of the load; 0 s: one at each look", false, 0, 1e6},
                Dimension::time, scaling.scrape_s);
            inner.quantity({"delay", "time from a measurement until a look can see it", false, 0, 1e6}, Dimension::time,
                           scaling.delay_s);
            inner.quantity({"cooldown", "time after a start in which no replica is stopped", false, 0, 1e6},
                           Dimension::time, scaling.cooldown_s);
            inner.quantity({"keep_alive", "time that a replica without requests stays", false, 0, 1e6}, Dimension::time,
                           scaling.keep_alive_s);
        });
    scaling.least = static_cast<std::uint32_t>(least);
}

void describe_phase(Fields& fields, PhaseSpec& phase, const EngineSpec& engine) {
    fields.integer({"replicas", "engines that share the requests", false, 1, 1 << 16}, phase.replicas);
    fields.integer({"tensor", "tensor-parallel ranks of a pipeline stage", false, 1, 1024}, phase.tensor);
    fields.integer({"pipeline", "pipeline stages of a replica", false, 1, 256}, phase.pipeline);
    fields.integer({"groups", "groups of `tensor` ranks that attend to sequences of their own", false, 1, 1024},
                   phase.groups);
    fields.integer({"expert", "expert-parallel degree over all ranks of a stage", false, 1, 4096}, phase.expert);
    fields.integer(
        {"redundant_experts", "redundant copies of routed experts per layer, placed on the expert-parallel ranks",
         false, 0, 1 << 20},
        phase.redundant_experts);
    fields.section({"scheduler", "policy that chooses the sequences of each iteration"},
                   [&](Fields& inner) { describe(inner, phase.scheduler); });
    describe_scaling(fields, phase);
    describe_start(fields, phase, stops_replicas(engine.faults), engine.faults.recovery.spares > 0);
    fields.needs("scheduler", engine.prefix_cache || !phase.scheduler.needs().prefix_cache,
                 "a prefix cache (kv.prefix), where it goes by prefixes");
    fields.optional({"device", "device of these replicas, in place of the nodes' own"}, kDevices, phase.other_device,
                    [&](Fields& inner) { describe(inner, phase.device); });
    fields.text({"group", "group of the cluster on whose nodes these replicas run"}, phase.group);
    fields.quantity({"clock", "clock of the compute units relative to the usual one: a cap on power", false, 0.05, 2},
                    Dimension::fraction, phase.clock);
    fields.quantity(
        {"units", "share of the compute units for this phase, where both phases use the same devices", false, 0.01, 1},
        Dimension::fraction, phase.units);
}

void describe_mixing(Fields& fields, EngineSpec& engine) {
    auto tokens = static_cast<std::int64_t>(engine.mixing.prompt_tokens);
    fields.optional({"planner", "GPUs that move between prefill and decode replicas, by a schedule or by the load"},
                    engine.planner.given, [&](Fields& inner) { describe(inner, engine.planner); });
    fields.optional(
        {"mixing", "conditions under which replicas for prompts or decoding do both"}, engine.mixes,
        [&](Fields& inner) {
            inner.integer(
                {"prompt_tokens",
                 "tokens of prompts waiting on a prefill replica above which decode replicas compute prompts; 0: never",
                 false, 0, 1LL << 40},
                tokens);
            inner.quantity({"cache",
                            "cache in use on every decode replica above which prefill replicas decode what they have "
                            "begun; 0: never",
                            false, 0, 1},
                           Dimension::fraction, engine.mixing.cache);
        });
    engine.mixing.prompt_tokens = static_cast<std::uint64_t>(tokens);
}

void describe_adapters(Fields& fields, EngineSpec& engine) {
    AdapterSpec& adapters = engine.adapters;
    fields.optional(
        {"lora", "adapters that requests may name, brought from host memory"}, engine.lora, [&](Fields& inner) {
            inner.integer({"rank", "rank of the low-rank factors", true, 1, 4096}, adapters.rank);
            inner.integer({"slots", "adapters on a replica's devices", false, 1, 4096}, adapters.slots);
            inner.enumeration({"targets", "products that have adapters"}, {"attention", "all"}, adapters.targets);
            inner.enumeration({"eviction", "unused block that is evicted"}, kEvictions, adapters.eviction);
        });
    fields.optional(
        {"models",
         "models as large as this one that requests may name (requests.adapters), brought from "
         "host memory"},
        adapters.whole, [&](Fields& inner) {
            inner.integer({"slots", "number of further models on a replica's devices", false, 1, 4096}, adapters.slots);
            inner.enumeration({"eviction", "unused block that is evicted"}, kEvictions, adapters.eviction);
        });
}

void describe_expert_cache(Fields& fields, EngineSpec& engine) {
    ExpertCacheSpec& cache = engine.expert_cache;
    fields.optional(
        {"expert_cache", "experts live in the memories of node.host; the devices keep some of each layer"},
        engine.caches_experts, [&](Fields& inner) {
            inner.integer({"experts", "experts of each layer on a replica's devices", true, 1, 4096}, cache.experts);
            inner.text({"tier", "tier of node.host that has all experts"}, cache.tier);
            inner.quantity({"host", "DRAM of a replica that keeps experts which came from drives", false, 0, 1e15},
                           Dimension::bytes, cache.host);
            inner.enumeration({"eviction", "expert that leaves when another comes"}, kEvictions, cache.eviction);
            inner.integer({"pinned", "number of most popular experts that are never evicted", false, 0, 4096},
                          cache.pinned);
            inner.number(
                {"skew", "Zipf exponent of expert popularity: the k-th expert is chosen in proportion to 1 / k^skew",
                 false, 0, 10},
                cache.skew);
            inner.enumeration({"brings", "experts to fetch: those that tokens chose, or all of a layer"},
                              {"needed", "layer"}, cache.brings);
            inner.optional({"prefetch", "prefetch of missing experts before their layer, by prediction"},
                           cache.prefetches, [&](Fields& prediction) {
                               prediction.integer({"layers", "layers to prefetch ahead", false, 1, 1024}, cache.ahead);
                               prediction.quantity(
                                   {"hit_rate", "share of the missing experts that the prediction names", false, 0, 1},
                                   Dimension::fraction, cache.hit_rate);
                           });
        });
}

void describe_swap(Fields& fields, EngineSpec& engine) {
    fields.optional(
        {"swap", "transfer of preempted blocks to host memory and back, where a scheduler swaps"}, engine.has_swap,
        [&](Fields& inner) {
            inner.quantity(
                {"call", "host time to start a copy: one for keys and one for values of each layer", false, 0, 1},
                Dimension::time, engine.swap_call);
            inner.when(engine.swap_call > 0, "the time of a call", [&](Fields& same) {
                same.integer({"run", "number of adjacent blocks per copy", false, 1, 1 << 20}, engine.swap_run);
            });
            inner.boolean({"asynchronous", "running sequences do not wait for blocks that come back"},
                          engine.swaps_in_behind);
            inner.boolean({"reuse",
                           "host memory keeps what it has of sequences that are back: only what is new goes "
                           "there again"},
                          engine.keeps_copies);
        });
}

// Tokens of a draft after those with a share of their own have the chance of the last of these.
void extend(SpeculationSpec& speculation) {
    std::vector<double>& shares = speculation.positions;
    while (!shares.empty() && shares.size() < speculation.tokens) {
        shares.push_back(shares.back() * speculation.chance(shares.size() - 1));
    }
}

}  // namespace

void describe(Fields& fields, EngineSpec& engine) {
    const bool swaps = engine.any_phase([](const PhaseSpec& phase) { return phase.scheduler.needs().swaps; });
    const bool several = engine.any_phase([](const PhaseSpec& phase) { return phase.replicas > 1; });
    auto draft_tokens = std::max<std::int64_t>(1, engine.speculation.tokens);
    fields.when(!engine.split, "replicas that are all alike (those of prefill and of decode have their own)",
                [&](Fields& same) { describe_phase(same, engine.mixed, engine); });
    fields.optional({"prefill", "replicas for prompts alone; 'decode' then takes the rest"}, engine.split,
                    [&](Fields& inner) { describe_phase(inner, engine.prefill, engine); });
    fields.optional({"decode", "replicas that only decode"}, engine.decodes,
                    [&](Fields& inner) { describe_phase(inner, engine.decode, engine); });
    fields.when(
        engine.split && !engine.same_devices, "prefill and decode replicas on devices of their own", [&](Fields& same) {
            same.enumeration(
                {"transfer",
                 "transfer of a prompt's cache to its decode replica: whole after the prompt, or layer by layer"},
                {"whole", "layers"}, engine.transfer);
            same.enumeration({"first_token",
                              "replica that sends a request's first token: prefill at once, or decode with the next "
                              "(Dynamo, SGLang, vLLM)"},
                             {"prefill", "decode"}, engine.first_token);
            same.quantity({"handover",
                           "latency of a KV transfer from prefill to decode in addition to its bytes: routing, "
                           "connections, polling",
                           false, 0, 1e3},
                          Dimension::time, engine.handover);
        });
    fields.boolean(
        {"same_devices", "run both phases on the same GPUs, each on its share of the units, without KV transfers"},
        engine.same_devices);
    describe_mixing(fields, engine);
    describe_adapters(fields, engine);
    describe_expert_cache(fields, engine);
    fields.when(
        several, "several replicas to choose from",
        [&](Fields& same) {
            engine.router.describe(same, {"router", "policy that assigns a request to a replica"});
        },
        Unmet::noted);
    fields.needs("router", engine.prefix_cache || !engine.router.make()->needs().prefix_cache,
                 "a prefix cache (kv.prefix), where it goes by prefixes");
    fields.section({"gateway", "gateway between clients and the engines' front ends"}, [&](Fields& inner) {
        inner.quantity({"latency", "time of each request: proxies, the choice of a replica", false, 0, 1e3},
                       Dimension::time, engine.gateway.latency);
        inner.quantity({"prompt_token", "time of each token of a prompt: tokenisation, hashing", false, 0, 1},
                       Dimension::time, engine.gateway.prompt_token_s);
    });
    fields.enumeration({"weights", "precision of the weights"}, precision_names(), engine.weights);
    fields.enumeration({"experts", "precision of routed experts"}, precision_names(), "weights", engine.experts);
    fields.enumeration({"scaling", "scales of low-precision experts: one per tensor, or one per block"},
                       {"tensor", "block"}, engine.scaling);
    fields.enumeration({"dispatch", "transfer of tokens to experts on other attention groups"},
                       {"gather", "all-to-all", "coherent", "hierarchical"}, engine.dispatch);
    fields.number({"expert_load", "tokens of the busiest expert group over their mean", false, 1, 1000},
                  engine.expert_load);
    fields.when(
        engine.dispatch == Dispatch::coherent, "tokens that stay with their experts (dispatch: coherent)",
        [&](Fields& same) {
            same.quantity(
                {"affinity",
                 "share of the tokens whose expert in the next layer is on their rank, where dispatch is coherent; "
                 "0: by chance",
                 false, 0, 1},
                Dimension::fraction, engine.affinity);
        });
    fields.optional({"software", "version of the inference engine, for what the host costs"}, kEnginePresets,
                    engine.has_software, [&](Fields& inner) { describe(inner, engine.software); });
    fields.optional({"step_cost", "time of an iteration of a pipeline stage, in place of prices of kernels"},
                    engine.has_step_cost, [&](Fields& inner) { describe(inner, engine.step_cost); });
    fields.section({"kv", "KV cache of a replica"}, [&](Fields& inner) {
        inner.integer({"block", "tokens of a block", false, 1, 4096}, engine.block);
        inner.quantity({"memory", "share of a device's memory that the engine may use", false, 0.05, 1},
                       Dimension::fraction, engine.memory_fraction);
        inner.when(engine.blocks == 0, "memory that bounds the cache (kv.blocks replaces it)", [&](Fields& same) {
            same.boolean({"of_free", "`memory` is the cache's share of what weights and buffers leave"},
                         engine.of_free);
        });
        inner.integer(
            {"blocks", "blocks of a replica's cache; 0: as many as its memory has room for", false, 0, 1LL << 40},
            engine.blocks);
        inner.when(swaps, "a scheduler that swaps (vllm-v0 or priority)", [&](Fields& same) {
            same.quantity({"host_memory", "host memory of a replica for swapped blocks", false, 0, 1e15},
                          Dimension::bytes, engine.host_memory);
        });
        inner.when(engine.host_memory > 0, "host_memory to swap to",
                   [&](Fields& same) { describe_swap(same, engine); });
        inner.optional({"compression", "fewer bits than `precision` has, and what repairs the loss"},
                       engine.compression.given, [&](Fields& packed) { describe(packed, engine.compression); });
        inner.enumeration({"precision", "precision of keys and values"}, precision_names(), engine.cache);
        inner.optional(
            {"prefix", "blocks outlive their sequence and are found again by content"}, engine.prefix_cache,
            [&](Fields& tiers) {
                tiers.quantity({"host", "host memory of a replica below the devices", false, 0, 1e15}, Dimension::bytes,
                               engine.prefix_host);
                tiers.quantity({"nvme", "NVMe of a replica below the host memory", false, 0, 1e16}, Dimension::bytes,
                               engine.prefix_nvme);
                tiers.when(engine.prefix_nvme > 0, "nvme", [&](Fields& same) {
                    same.quantity(
                        {"nvme_bandwidth", "bandwidth of a node's NVMe in each direction; 0 B/s: takes no time", false,
                         0, 1e13},
                        Dimension::rate, engine.nvme_bandwidth);
                });
                tiers.enumeration({"eviction", "unused block that leaves a tier"}, kEvictions, engine.prefix_eviction);
                tiers.optional({"shared", "sharing of KV blocks through a store and between replicas"},
                               engine.shared.given, [&](Fields& shared) { describe(shared, engine.shared); });
                tiers.enumeration({"reads",
                                   "who reads a prefix that several decoding sequences have: each of them, or all "
                                   "together once, as a matrix product (Hydragen)"},
                                  {"each", "once"}, engine.prefix_reads);
            });
    });
    fields.optional(
        {"speculation", "speculative decoding: drafts of several tokens, verified in one iteration"}, engine.speculates,
        [&](Fields& inner) {
            inner.integer({"tokens", "number of tokens per draft", true, 1, 64}, draft_tokens);
            inner.items({.key = "positions",
                         .doc = "shares of drafts whose first, second, ... token is accepted, as vLLM logs them; later "
                                "tokens have the last one's chance",
                         .alone = "share"},
                        engine.speculation.positions, [](Fields& one, double& share) {
                            one.quantity({"share", "share of all drafts", true, 0, 1}, Dimension::fraction, share);
                        });
            inner.when(engine.speculation.positions.empty(), "no positions, which say it themselves",
                       [&](Fields& same) {
                           same.quantity({"acceptance", "chance of a draft token after an accepted one", false, 0, 1},
                                         Dimension::fraction, engine.speculation.acceptance);
                       });
            inner.boolean({"sampled", "acceptance is drawn; otherwise every sequence gets the mean"},
                          engine.speculation.sampled);
            inner.quantity({"step", "time of the draft for one token of every sequence", false, 0, 1}, Dimension::time,
                           engine.speculation.step_s);
            inner.integer({"layers",
                           "layers like the model's own that draft, with the LM head, a pass for each token "
                           "(multi-token prediction, EAGLE)",
                           false, 0, 16},
                          engine.speculation.layers);
        });
    engine.speculation.tokens = engine.speculates ? static_cast<std::uint32_t>(draft_tokens) : 0;
    extend(engine.speculation);
    fields.optional({"front_end",
                     "cores and limits of what takes requests in and streams answers out, in place of the "
                     "serial front end of `software`"},
                    engine.front_end.given, [&](Fields& inner) { describe(inner, engine.front_end); });
    fields.integer({"nano_batches",
                    "nano-batches of an iteration whose products, attention and collectives overlap, where that is "
                    "faster (NanoFlow)",
                    false, 1, 16},
                   engine.nano_batches);
    fields.optional(
        {"streamed", "layers come to the devices when an iteration needs them, from drives or host memory (TPI-LLM)"},
        engine.streamed.given, [&](Fields& inner) { describe(inner, engine.streamed); });
    fields.enumeration({"all_reduce",
                        "sums over tensor-parallel ranks: by the library, or by messages through the first rank (star) "
                        "or round all ranks"},
                       {"library", "star", "ring"}, engine.sums);
    fields.integer({"stream_interval", "tokens that the server gathers before it sends them", false, 1, 1 << 20},
                   engine.stream_interval);
    fields.integer({"max_context", "longest prompt with output, in tokens; 0: what fits", false, 0, 1 << 24},
                   engine.max_context);
    fields.quantity({"step_overhead", "host time of an iteration", false, 0, 10}, Dimension::time,
                    engine.step_overhead);
    fields.quantity({"sequence_overhead", "host time of a sequence in an iteration", false, 0, 1}, Dimension::time,
                    engine.sequence_overhead);
    fields.quantity({"reserved_memory",
                     "memory of a device for context, buffers and activations; without it what `software` takes, or 2 "
                     "GiB",
                     false, 0, 1e12},
                    Dimension::bytes, engine.reserved_memory);
    fields.quantity({"other_weights",
                     "extra weights of a replica in addition to the model's, such as a vision encoder or a draft model",
                     false, 0, 1e13},
                    Dimension::bytes, engine.other_weights);
    for (const auto& [key, time] : {std::pair{"software.request", &engine.software.request},
                                    {"software.frontend", &engine.software.frontend},
                                    {"software.prompt_token", &engine.software.prompt_token}}) {
        // A preset's time is what the front end leaves of it.
        fields.needs(key, !engine.front_end.given || time->how != kGivenInScenario,
                     "the serial front end (front_end says itself what requests take)");
    }
    for (const char* key : {"software", "step_overhead", "sequence_overhead", "lora", "nano_batches", "kv.compression",
                            "same_devices", "clock", "prefill.clock", "decode.clock", "scaling", "dispatch", "affinity",
                            "expert_load", "streamed", "all_reduce"}) {
        fields.needs(key, !engine.has_step_cost, "prices of kernels in place of a step_cost");
    }
}

void describe(Fields& fields, MeasureSpec& measure) {
    fields.quantity({"from", "requests from then on count", false, 0, 9e6}, Dimension::time, measure.from);
    fields.quantity({"to", "end of the measured period; 0 s: the end of the run", false, 0, 9e6}, Dimension::time,
                    measure.to);
}

void describe(Fields& fields, SloSpec& slo) {
    fields.quantity({"ttft", "longest time to the first token; 0 s: no limit", false, 0, 1e6}, Dimension::time,
                    slo.ttft);
    fields.quantity({"tpot", "longest mean time per output token; 0 s: no limit", false, 0, 1e6}, Dimension::time,
                    slo.tpot);
    fields.quantity({"tbt", "longest time between two tokens; 0 s: no limit", false, 0, 1e6}, Dimension::time, slo.tbt);
    fields.quantity(
        {"session", "deadline of a conversation: longest time from its first request to its last answer; 0 s: none",
         false, 0, 1e6},
        Dimension::time, slo.session);
}

std::vector<std::pair<Role, const PhaseSpec*>> EngineSpec::phases() const {
    if (split) {
        return {{Role::prefill, &prefill}, {Role::decode, &decode}};
    }
    return {{Role::mixed, &mixed}};
}

bool EngineSpec::any_phase(const std::function<bool(const PhaseSpec&)>& is) const {
    const auto all = phases();
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return is(*one.second); });
}

Quantisation EngineSpec::quantisation(const DeviceSpec& device) const {
    return Quantisation{weights, experts.value_or(weights), cache, scaling, device.flops_fp4.value > 0};
}

namespace {

void check_same_devices(const EngineSpec& engine, std::vector<std::string>& problems) {
    const PhaseSpec& prefill = engine.prefill;
    const PhaseSpec& decode = engine.decode;
    const auto require = [&](bool holds, const char* problem) {
        if (!holds) {
            problems.emplace_back(problem);
        }
    };
    require(engine.split, "'same_devices' is for 'prefill' and 'decode' replicas: both are missing");
    require(prefill.replicas == decode.replicas && prefill.tensor == decode.tensor &&
                prefill.pipeline == decode.pipeline && prefill.groups == decode.groups &&
                prefill.expert == decode.expert && !prefill.other_device && !decode.other_device,
            "on the same devices 'prefill' and 'decode' have equal replicas, degrees and devices");
    require(!prefill.scales && !decode.scales && !engine.faults.given && !engine.prefix_cache && !engine.mixes,
            "on the same devices there is no 'autoscale', no 'faults', no prefix cache and no 'mixing'");
    // A prompt that took its blocks piece by piece could wait for decodes that wait for it.
    require(prefill.scheduler.policy.make()->takes_whole_prompts(),
            "on the same devices the scheduler of 'prefill' takes room for whole prompts: sarathi, vllm-v0, in-flight, "
            "orca or static");
    require(!decode.scheduler.policy.make()->takes_whole_outputs(),
            "on the same devices the scheduler of 'decode' takes room as tokens come: not static, orca or in-flight");
}

// Where experts may live in the host's memories.
void check_expert_cache(const EngineSpec& engine, const ModelSpec& model, std::vector<std::string>& problems) {
    const ExpertCacheSpec& cache = engine.expert_cache;
    const auto require = [&](bool holds, const std::string& problem) {
        if (!holds) {
            problems.push_back(problem);
        }
    };
    require(model.experts.count > 0, "'expert_cache' keeps experts, of which this model has none");
    require(
        model.experts.count == 0 || cache.experts <= model.experts.count,
        fmt::format("'expert_cache' keeps {} experts of a layer, which has {}", cache.experts, model.experts.count));
    require(cache.pinned <= cache.experts,
            fmt::format("'expert_cache' pins {} experts of the {} that it keeps", cache.pinned, cache.experts));
    for (const PhaseSpec* phase : {&engine.mixed, &engine.prefill, &engine.decode}) {
        require(phase->pipeline == 1 && phase->groups == 1 && phase->expert == 1,
                "'expert_cache' is for replicas of one stage and one group whose ranks share every expert: without "
                "'pipeline', 'groups' and 'expert'");
    }
    require(!engine.faults.given && !engine.same_devices, "'expert_cache' does not go with 'faults' or 'same_devices'");
}

// Where every rank holds the cache of all tokens, so that a token may stay with its one expert.
void check_coherent(const EngineSpec& engine, const ModelSpec& model, std::vector<std::string>& problems) {
    const auto require = [&](bool holds, const char* problem) {
        if (!holds) {
            problems.emplace_back(problem);
        }
    };
    const PhaseSpec& phase = engine.mixed;
    require(
        !engine.split && phase.groups > 1 && phase.tensor == 1 && phase.pipeline == 1 && phase.expert == phase.groups,
        "'dispatch: coherent' is for replicas of one stage whose ranks attend alone and have experts of their own: "
        "'groups' of one rank each, and 'expert' as many");
    require(model.experts.topk <= 1,
            "'dispatch: coherent' leaves a token with its expert, and this model sends it to several");
    require(engine.nano_batches == 1 && !engine.compression.given && engine.host_memory <= 0 &&
                engine.prefix_host <= 0 && engine.prefix_nvme <= 0 && !engine.shared.given,
            "'dispatch: coherent' repeats the cache on every rank: without 'nano_batches', 'kv.compression', "
            "'kv.host_memory' and tiers of 'kv.prefix'");
}

// Where a prefix is read once for all that have it.
void check_shared_reads(const EngineSpec& engine, const ModelSpec& model, std::vector<std::string>& problems) {
    const auto require = [&](bool holds, const char* problem) {
        if (!holds) {
            problems.emplace_back(problem);
        }
    };
    require(!engine.any_phase([](const PhaseSpec& phase) { return phase.groups > 1; }),
            "'kv.prefix.reads: once' is of one attention group: without 'groups'");
    require(engine.nano_batches == 1 && !engine.compression.given && !engine.has_step_cost,
            "'kv.prefix.reads: once' does not go with 'nano_batches', 'kv.compression' and 'step_cost'");
    require(
        model.latent.kv_rank == 0 && model.windowed_layers() == 0,
        "'kv.prefix.reads: once' is of keys and values that every layer reads whole: no latent attention, windows or "
        "linear attention");
}

// Where layers come to the devices in every iteration.
void check_streamed(const EngineSpec& engine, const ModelSpec& model, std::vector<std::string>& problems) {
    const auto require = [&](bool holds, const std::string& problem) {
        if (!holds) {
            problems.push_back(problem);
        }
    };
    require(model.experts.count == 0, "'streamed' is of dense models; 'expert_cache' brings experts");
    require(!engine.adapters.whole && !engine.same_devices && engine.speculation.layers == 0,
            "'streamed' does not go with 'models', 'same_devices' and 'speculation.layers'");
    require(!engine.sized_by_engine(),
            "'streamed' layers are not in the memory that 'software' sizes: give 'reserved_memory'");
    std::int64_t least = model.layers;
    for (const auto& [role, phase] : engine.phases()) {
        least = std::min(least, model.layers / std::max<std::int64_t>(1, phase->pipeline));
    }
    require(engine.streamed.window < least,
            fmt::format("'streamed.window' of {} layers holds all {} of a stage: nothing would come",
                        engine.streamed.window, least));
}

// One share for each token of a draft, each of them at most the one before.
void check_positions(const SpeculationSpec& speculation, std::vector<std::string>& problems) {
    const std::vector<double>& shares = speculation.positions;
    if (shares.size() > speculation.tokens) {
        problems.push_back(fmt::format("'speculation.positions' has {} shares for drafts of {} tokens", shares.size(),
                                       speculation.tokens));
    }
    if (!std::is_sorted(shares.rbegin(), shares.rend())) {
        problems.emplace_back(
            "'speculation.positions' falls from token to token: a token is accepted when all before it are");
    }
}

// What does not go with places of GPUs that have a replica of either role.
void check_planner(const EngineSpec& engine, std::vector<std::string>& problems) {
    const PhaseSpec& prefill = engine.prefill;
    const PhaseSpec& decode = engine.decode;
    if (!engine.split || !engine.decodes) {
        problems.emplace_back("'planner' is for 'prefill' and 'decode' replicas: both are missing");
        return;
    }
    if (prefill.ranks() != decode.ranks() || prefill.tensor != decode.tensor || prefill.groups != decode.groups ||
        prefill.other_device || decode.other_device || !prefill.group.empty() || !decode.group.empty()) {
        problems.emplace_back("with a 'planner' replicas of 'prefill' and 'decode' have equal degrees and devices");
    }
    if (prefill.scales || decode.scales || engine.same_devices || engine.faults.given || engine.mixes) {
        problems.emplace_back("with a 'planner' there is no 'autoscale', 'same_devices', 'faults' or 'mixing'");
    }
    for (const std::string& problem : problems_of(engine.planner, prefill.replicas + decode.replicas)) {
        problems.push_back(problem);
    }
}

// What a given step cost leaves without a meaning.
void check_step_cost(const EngineSpec& engine, std::vector<std::string>& problems) {
    for (const std::string& problem : problems_of(engine.step_cost)) {
        problems.push_back(problem);
    }
}

}  // namespace

const std::vector<std::string>& start_part_names() {
    static const std::vector<std::string> kNames = {"provision", "image", "initialise", "weights", "warm_up"};
    return kNames;
}

LoadEnd load_end(const EngineSpec& engine, const RequestsSpec& requests, const MeasureSpec& measure) {
    const bool once = requests.mix.empty() && requests.arrivals == ArrivalKind::at_once;
    if (requests.count > 0 || !requests.stages.empty() || !requests.trace.empty() || once ||
        !engine.faults.events.empty() || !engine.faults.trace.empty()) {
        return LoadEnd::count;
    }
    const bool swings = requests.swing > 0 && requests.arrivals != ArrivalKind::closed;
    return measure.to > 0 || swings ? LoadEnd::time : LoadEnd::steady;
}

std::vector<std::string> problems_of(const EngineSpec& engine, const RequestsSpec& requests, const ModelSpec& model) {
    std::vector<std::string> problems;
    if (engine.same_devices) {
        check_same_devices(engine, problems);
    } else if (engine.prefill.units < 1 || engine.decode.units < 1 || engine.mixed.units < 1) {
        problems.emplace_back("'units' are shared out between phases on the same devices: say 'same_devices: true'");
    }
    if (engine.has_step_cost) {
        check_step_cost(engine, problems);
    }
    if (engine.planner.given) {
        check_planner(engine, problems);
    }
    check_positions(engine.speculation, problems);
    for (const std::string& problem : problems_of(engine.front_end)) {
        problems.push_back(problem);
    }
    std::int64_t replicas = 0;
    for (const auto& [role, phase] : engine.phases()) {
        replicas += phase->replicas;
    }
    for (const std::string& problem : problems_of(engine.shared, replicas)) {
        problems.push_back(problem);
    }
    for (const PhaseSpec* phase : {&engine.mixed, &engine.prefill, &engine.decode}) {
        if (phase->scales && phase->scaling.least > phase->replicas) {
            problems.push_back(fmt::format("'autoscale' runs at least {} replicas, and there are {}",
                                           phase->scaling.least, phase->replicas));
        }
        if (phase->scales && phase->scaling.least == 0 && engine.split) {
            problems.emplace_back("'autoscale' of 'prefill' and 'decode' replicas runs at least one of each");
        }
        if (phase->start.weights != WeightsFrom::storage && phase->start.storage <= 0) {
            problems.emplace_back(
                "'start' takes weights from storage where no other place has them: it needs the rate of 'storage'");
        }
    }
    if (engine.split != engine.decodes) {
        problems.emplace_back("'prefill' and 'decode' replicas come together: one of them is missing");
    }
    if (engine.mixes && !engine.split) {
        problems.emplace_back("'mixing' is for 'prefill' and 'decode' replicas: both are missing");
    }
    if (engine.caches_experts) {
        check_expert_cache(engine, model, problems);
    }
    if (engine.prefix_cache && engine.prefix_reads == PrefixReads::once) {
        check_shared_reads(engine, model, problems);
    }
    if (engine.streamed.given) {
        check_streamed(engine, model, problems);
    }
    if (engine.sums != SumRoute::library &&
        !engine.any_phase([](const PhaseSpec& phase) { return phase.tensor > 1; })) {
        problems.emplace_back("'all_reduce' is of several tensor-parallel ranks: 'tensor' is 1");
    }
    if (engine.dispatch == Dispatch::coherent && model.experts.count > 0) {
        check_coherent(engine, model, problems);
    }
    if (requests.names_adapters() && !engine.names()) {
        problems.emplace_back("requests name adapters, but the engine has no 'lora' and no 'models'");
    }
    if (engine.names() && engine.split) {
        problems.emplace_back("'lora' and 'models' are for replicas that do prompts and decoding");
    }
    if (model.hybrid() && (engine.lora || engine.compression.given || engine.nano_batches > 1)) {
        problems.emplace_back(
            "'lora', 'kv.compression' and 'nano_batches' are not modelled beside a 'pattern' of layers");
    }
    if (engine.compression.given && model.latent.kv_rank > 0) {
        problems.emplace_back("'kv.compression' packs keys and values, not the vectors of latent attention");
    }
    if (engine.compression.given && engine.cache != Precision::bf16 && engine.cache != Precision::fp16) {
        problems.emplace_back("'kv.compression' says the bits of keys and values: 'kv.precision' would change nothing");
    }
    if (engine.nano_batches > 1 && engine.same_devices) {
        problems.emplace_back("'nano_batches' share whole devices, and 'same_devices' have parts of them");
    }
    if (engine.lora && engine.adapters.whole) {
        problems.emplace_back("'lora' and 'models' are two kinds of what requests name: give one");
    }
    if (engine.adapters.whole && engine.mixed.scheduler.max_sequences != 1) {
        problems.emplace_back("'models' answer one request at a time: scheduler: {max_sequences: 1}");
    }
    if (engine.lora && model.latent.kv_rank > 0) {
        problems.emplace_back("'lora' stands beside ordinary attention, not latent attention");
    }
    return problems;
}

void check_spec(const PhaseSpec& phase, const ModelSpec& model) {
    const auto require = [](bool fits, const std::string& text, ErrorCode code = ErrorCode::infeasible) {
        if (!fits) {
            throw InfeasibleError(text, code);
        }
    };
    require(model.heads % phase.tensor == 0,
            fmt::format("tensor {} must divide the {} heads", phase.tensor, model.heads), ErrorCode::does_not_divide);
    require(model.layers >= phase.pipeline,
            fmt::format("{} pipeline stages, but {} layers", phase.pipeline, model.layers));
    const ExpertsSpec& experts = model.experts;
    if (experts.count == 0) {
        require(phase.groups == 1 && phase.expert == 1,
                "'groups' and 'expert' share out experts, of which this model has none");
        return;
    }
    require(experts.topk >= 1 && experts.topk <= experts.count && experts.ffn > 0,
            fmt::format("a token goes to {} of {} experts of width {}: 1 to all of them, and a width, are needed",
                        experts.topk, experts.count, experts.ffn));
    require(experts.group_topk <= experts.groups && (experts.groups == 0 || experts.count % experts.groups == 0),
            fmt::format("group_topk {} and groups {}: at most all groups, and these share the {} experts evenly",
                        experts.group_topk, experts.groups, experts.count));
    require(experts.dense_layers < model.layers,
            fmt::format("{} dense layers leave none of the {} for experts", experts.dense_layers, model.layers));
    require(phase.stage_ranks() % phase.expert == 0,
            fmt::format("expert {} must divide the {} ranks of a stage", phase.expert, phase.stage_ranks()),
            ErrorCode::does_not_divide);
    const std::int64_t copies = phase.redundant_experts;
    require(copies == 0 || phase.expert > 1, "'redundant_experts' lie on expert-parallel ranks: 'expert' is 1");
    require((experts.count + copies) % phase.expert == 0,
            copies > 0 ? fmt::format("expert {} must divide the {} experts with their {} copies", phase.expert,
                                     experts.count, copies)
                       : fmt::format("expert {} must divide the {} experts ('redundant_experts' adds copies of some)",
                                     phase.expert, experts.count),
            ErrorCode::does_not_divide);
}

// Of one routed expert, on each of the ranks that share it.
static double expert_bytes_per_rank(const ModelSpec& model, const Quantisation& quantisation, std::int64_t ranks) {
    return model.routed_parameters() / static_cast<double>(model.experts.count) * bytes_of(quantisation.experts) /
           static_cast<double>(ranks);
}

double weight_bytes(const ModelSpec& model, const Quantisation& quantisation, const PhaseSpec& phase,
                    std::int64_t stage) {
    const double share =
        static_cast<double>(stage_layers(model.layers, stage, phase.pipeline)) / static_cast<double>(model.layers);
    const double copies = phase.redundant_experts == 0
                              ? 0
                              : share * static_cast<double>(model.expert_layers() * phase.redundant_experts) *
                                    expert_bytes_per_rank(model, quantisation, phase.stage_ranks());
    return weight_bytes_per_rank(model, quantisation, phase.tensor, phase.groups, stage, phase.pipeline) + copies;
}

std::optional<ExpertPool> experts_of(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                                     const DeviceSpec& device, const NodeHost* host, double replicas,
                                     const Mark& mark) {
    if (!engine.caches_experts) {
        return std::nullopt;
    }
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const ExpertCacheSpec& spec = engine.expert_cache;
    if (host == nullptr) {
        throw InfeasibleError(
            fmt::format("'expert_cache' keeps experts in '{}', but the nodes have no 'host' with memories", spec.tier));
    }
    const std::size_t home = host->find(spec.tier);
    if (home == host->tiers.size()) {
        std::vector<std::string> names;
        for (const MemoryTier& tier : host->tiers) {
            names.push_back(tier.name);
        }
        const std::string nearest = nearest_name(spec.tier, names);
        throw ConfigError({mark.error(
            fmt::format("expert_cache: the node has no tier '{}'{}; it has {}", spec.tier,
                        nearest.empty() ? "" : " (did you mean '" + nearest + "'?)", fmt::join(names, ", ")),
            ErrorCode::unknown_name)});
    }
    ExpertPool out{spec, {}, expert_bytes_per_rank(model, engine.quantisation(device), phase.tensor)};
    const double expert = out.rank_bytes * static_cast<double>(phase.tensor);
    const double all = expert * static_cast<double>(model.expert_layers() * model.experts.count);
    const MemoryTier& tier = host->tiers[home];
    if (all > tier.bytes()) {
        throw InfeasibleError(
            fmt::format("{} experts of {} layers are {:.1f} GiB: more than the {:.1f} GiB of '{}'", model.experts.count,
                        model.expert_layers(), all / kGiB, tier.bytes() / kGiB, spec.tier),
            ErrorCode::out_of_memory);
    }
    if (spec.host > 0 && (tier.addressed() || host->dram() == host->tiers.size())) {
        throw InfeasibleError(
            fmt::format("'expert_cache.host' keeps in DRAM what comes from drives, but experts come from '{}'{}",
                        spec.tier, tier.addressed() ? ", which is memory" : " and node.host has no DRAM"));
    }
    if (spec.host > 0 && spec.host * replicas > host->tiers[host->dram()].bytes()) {
        throw InfeasibleError(
            fmt::format(
                "'expert_cache.host' of {:.0f} replicas of a node is {:.1f} GiB: more than the {:.1f} GiB of '{}'",
                replicas, spec.host * replicas / kGiB, host->tiers[host->dram()].bytes() / kGiB,
                host->tiers[host->dram()].name),
            ErrorCode::out_of_memory);
    }
    out.shape.layers = static_cast<std::uint32_t>(model.expert_layers());
    out.shape.count = static_cast<std::uint32_t>(model.experts.count);
    out.shape.topk = static_cast<std::uint32_t>(model.experts.topk);
    out.shape.host_experts = static_cast<std::uint64_t>(spec.host / expert);
    return out;
}

// Blocks of an attention group whose engine sizes its cache itself.
static std::uint64_t started_blocks(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                                    const DeviceSpec& device) {
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const EngineCache cache = engine_cache(engine, phase, model, device);
    const RankMemory& rank = cache.rank;
    if (!cache.refusal.empty()) {
        throw InfeasibleError(cache.refusal, ErrorCode::out_of_memory);
    }
    if (cache.capacity < static_cast<double>(engine.block)) {
        throw InfeasibleError(
            fmt::format(
                "{} does not start, as the model does not fit: {:.1f} GiB of weights{}, {:.1f} GiB at the peak of {} "
                "tokens and {} "
                "sequences and {:.1f} GiB of context and communicators leave no room for a cache in {:.0f} % of "
                "{:.1f} GiB; use more tensor-parallel ranks, fewer bits or smaller batches",
                engine.software.name, (rank.weights + rank.slots) / kGiB,
                engine.adapters.whole ? " of all models"
                : rank.slots > 0      ? " and adapters"
                                      : "",
                rank.peak / kGiB, phase.scheduler.token_budget, phase.scheduler.max_sequences, rank.other / kGiB,
                engine.memory_fraction * 100, rank.total / kGiB),
            ErrorCode::out_of_memory);
    }
    return static_cast<std::uint64_t>(cache.capacity / static_cast<double>(engine.block));
}

EngineLimits limits_of(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                       const DeviceSpec& device) {
    EngineLimits limits;
    static_cast<CacheRules&>(limits) = engine;
    limits.block = static_cast<std::uint32_t>(engine.block);
    limits.block_bytes =
        cache_bytes_per_token(model, engine.cache, engine.compression) * static_cast<double>(engine.block);
    // Per rank, of all layers: what a compressed cache has beside its blocks.
    const double buffers = kv_buffer_tokens(engine.compression) * cache_bytes_per_token(model, Precision::bf16) /
                               cache_ranks(model, phase.tensor) * static_cast<double>(phase.scheduler.max_sequences) /
                               static_cast<double>(phase.groups) +
                           state_bytes_per_rank(model, phase);
    const double ranks = cache_ranks(model, phase.tensor);
    const double device_memory = device.memory.value;
    const Quantisation quantisation = engine.quantisation(device);
    const bool sized = engine.sized_by_engine();
    // Attention groups have caches of their own, over which sequences are spread evenly, unless all of them hold the same.
    const std::int64_t caches = engine.dispatch == Dispatch::coherent ? 1 : phase.groups;
    if (sized) {
        limits.blocks = started_blocks(engine, phase, model, device) * static_cast<std::uint64_t>(caches);
        if (engine.same_devices) {  // one cache, beside the larger of both phases' batches
            for (const PhaseSpec* other : {&engine.prefill, &engine.decode}) {
                limits.blocks = std::min(
                    limits.blocks, started_blocks(engine, *other, model, device) * static_cast<std::uint64_t>(caches));
            }
        }
    }
    for (std::int64_t stage = 0; stage < phase.pipeline; ++stage) {
        const double all = weight_bytes(model, quantisation, phase, stage);
        const std::int64_t layers = stage_layers(model.layers, stage, phase.pipeline);
        const double elsewhere =
            engine.streamed.given
                ? layer_bytes_per_rank(model, quantisation.weights, layers - engine.streamed.window, phase.tensor)
            : engine.caches_experts ? static_cast<double>(model.expert_layers()) *
                                          static_cast<double>(model.experts.count - engine.expert_cache.experts) *
                                          expert_bytes_per_rank(model, quantisation, phase.tensor)
                                    : 0;
        const double adapters =
            engine.adapters.whole ? all : adapter_bytes_per_rank(model, engine.adapters, phase.tensor, layers);
        const double weights = all - elsewhere + engine.other_weights / static_cast<double>(phase.ranks());
        limits.adapter_bytes += adapters * static_cast<double>(phase.stage_ranks());
        const double slots = adapters * static_cast<double>(engine.adapters.slots);
        if (sized) {
            continue;
        }
        const double share = static_cast<double>(layers) / static_cast<double>(model.layers);
        const double whole = engine.of_free
                                 ? (device_memory - weights - slots - engine.reserved()) * engine.memory_fraction
                                 : device_memory * engine.memory_fraction - weights - slots - engine.reserved();
        const double room = whole - buffers * share;
        const double block_per_rank = limits.block_bytes / ranks * share;
        if (room < block_per_rank) {
            constexpr double kGiB = 1024.0 * 1024 * 1024;
            throw InfeasibleError(
                fmt::format("the model does not fit: {:.1f} GiB of weights{} and {:.1f} GiB reserved leave no room for "
                            "a cache in "
                            "{:.0f} % of {:.1f} GiB; use more tensor-parallel ranks or fewer bits",
                            (weights + slots) / kGiB,
                            engine.adapters.whole ? " of all models"
                            : slots > 0           ? " and adapters"
                                                  : "",
                            engine.reserved() / kGiB, engine.memory_fraction * 100, device_memory / kGiB),
                ErrorCode::out_of_memory);
        }
        // A token is cached on all stages: the fullest one decides.
        const auto blocks = static_cast<std::uint64_t>(room / block_per_rank) * static_cast<std::uint64_t>(caches);
        limits.blocks = stage == 0 ? blocks : std::min(limits.blocks, blocks);
    }
    if (engine.blocks > 0) {
        limits.blocks = static_cast<std::uint64_t>(engine.blocks);
    }
    limits.host_blocks = static_cast<std::uint64_t>(engine.host_memory / limits.block_bytes);
    limits.copy_blocks = static_cast<std::uint32_t>(engine.swap_run);
    limits.draft_tokens = engine.speculation.tokens;
    limits.host_cache = static_cast<std::uint64_t>(engine.prefix_host / limits.block_bytes);
    limits.nvme_cache = static_cast<std::uint64_t>(engine.prefix_nvme / limits.block_bytes);
    limits.adapter_eviction = engine.adapters.eviction;
    limits.adapter_slots = engine.names() ? static_cast<std::uint32_t>(engine.adapters.slots) : 0;
    limits.batches = static_cast<std::uint32_t>(phase.pipeline);
    limits.max_sequences = static_cast<std::uint32_t>(phase.scheduler.max_sequences);
    limits.token_budget = static_cast<std::uint32_t>(phase.scheduler.token_budget);
    limits.max_context = static_cast<std::uint32_t>(engine.max_context);
    return limits;
}

}  // namespace orrery::serving
