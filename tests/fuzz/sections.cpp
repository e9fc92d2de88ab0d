// Hostile scenarios by hand: what the newer sections of the language must not let pass, and what no part of it reads.

#include "tests/fuzz/attacks.hpp"

#include <fmt/format.h>

#include <iterator>

namespace orrery::test {

namespace {

// Good scenarios; `%` is where the hostile part goes.
constexpr const char* kDense =
    "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-h100, fabric: {kind: leaf-spine}}\nmodel: "
    "llama-2-7b\nplan: {tensor: 8, pipeline: 1, data: 2, micro_batch: 1, global_batch: 16, %}\n";
constexpr const char* kExperts =
    "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-h100, fabric: {kind: leaf-spine}}\nmodel: "
    "mixtral-8x7b\nplan: {tensor: 1, pipeline: 2, data: 8, expert: 8, micro_batch: 1, global_batch: 16, zero: 1, %}\n";
constexpr const char* kStages =
    "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-h100, fabric: {kind: leaf-spine}}\nmodel: "
    "llama-2-7b\nplan: {tensor: 4, pipeline: 4, data: 1, micro_batch: 1, global_batch: 16, %}\n";
constexpr const char* kEngine =
    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\nengine: {%}\nrequests: {rate: "
    "2, count: 20}\n";
constexpr const char* kRequests =
    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\nrequests: {%}\n";
constexpr const char* kFabric =
    "orrery: 1\nkind: network\ncluster: {hosts: 16, fabric: {%}}\ntraffic: {pattern: permutation, size: 1 MiB}\n";
constexpr const char* kNetwork =
    "orrery: 1\nkind: network\ncluster: {hosts: 16, fabric: {kind: leaf-spine, hosts_per_leaf: 4, spines: 4, link: 100 "
    "Gbps}}\ntraffic: {pattern: permutation, size: 1 MiB}\nnetwork: {%}\n";
constexpr const char* kFaults =
    "orrery: 1\nkind: training\ncluster: {nodes: 2, node: dgx-h100, fabric: {kind: leaf-spine}}\nmodel: "
    "llama-2-7b\nplan: {tensor: 8, pipeline: 1, data: 2, micro_batch: 1, global_batch: 16, zero: 0}\nfaults: "
    "{duration: 1 d, %}\n";
constexpr const char* kGroups =
    "orrery: 1\nkind: training\ncluster:\n  groups: %\n  fabric: {kind: single-switch}\nmodel: llama-2-7b\nplan: "
    "{tensor: 8, pipeline: 1, data: 2, micro_batch: 1, global_batch: 16}\n";

struct Part {
    const char* base;
    const char* text;
    Verdict verdict;
};

constexpr Part kParts[] = {
    {kDense, "groups: \"a,b\"", Verdict::located},
    {kDense, "groups: x", Verdict::located},
    {kDense, "spread: replicas", Verdict::any},
    {kDense, "expert: 2", Verdict::any},
    {kDense, "expert_tensor: 2", Verdict::located},
    {kDense, "capacity: 1.2", Verdict::located},
    {kDense, "pad: true", Verdict::located},
    {kDense, "router_exponent: 1", Verdict::located},
    {kDense, "dispatch: hierarchical", Verdict::located},
    {kDense, "dispatch_precision: fp8", Verdict::located},
    {kDense, "overlap: {experts: batches}", Verdict::located},
    {kDense, "recompute: experts", Verdict::located},
    {kDense, "vocabulary_parallel: one-barrier", Verdict::located},
    {kDense, "stages: [{layers: 32}]", Verdict::any},
    {kDense, "fp8_scaling: current", Verdict::located},
    {kDense, "sharding: {weights: 2}", Verdict::located},
    {kDense, "zero: 3, sharding: {secondary: 7}", Verdict::any},
    {kDense, "zero: 3, sharding: {weight_bits: 3}", Verdict::any},
    {kDense, "outer: {fragments: 4}", Verdict::located},
    {kDense, "outer: {workers: 2, steps: 4, overlap: 9}", Verdict::located},
    {kDense, "compression: {density: 0}", Verdict::located},
    {kDense, "zero: 3, compression: {density: 0.01}", Verdict::located},
    {kDense, "zero: 1, offload: {optimizer: {tier: dram}}", Verdict::located},
    {kDense, "offload: {optimizer: {tier: dram, fraction: nan}}", Verdict::located},
    {kDense, "offload: {step: delayed}", Verdict::located},
    {kDense, "offload: {prefetch: 9}", Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, runs: 1", Verdict::any},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, events: [{at: 1 h, kind: fail-stop, where: gpu0, factor: 0.5}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, events: [{at: 1 h, kind: slow, where: gpu99, factor: 0.5, lasts: 1 h}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, events: [{at: 1 h, kind: slow, where: \"\", factor: 0.5}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, events: [{at: 1 h, kind: slow, where: gpu0, factor: 0, lasts: 1 h}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, events: [{at: 1 h, kind: power-cap, where: nic0, factor: 0.5}]",
     Verdict::located},
    {kDense,
     "zero: 0}\nfaults: {duration: 1 d, events: [{at: 1 h, kind: power-cap, where: node0, factor: 0 %, lasts: 1 h}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, events: [{at: 5 d, kind: fail-stop, where: gpu0}]", Verdict::located},
    {kDense,
     "zero: 0}\nfaults: {duration: 1 d, processes: [{component: gpu, kind: fail-stop, mtbf: 1000 h, bad_factor: 5}]",
     Verdict::located},
    {kDense,
     "zero: 0}\nfaults: {duration: 1 d, processes: [{component: gpu, kind: fail-stop, mtbf: 1000 h, bad_share: 5 %}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, processes: [{component: storage, kind: link-flap, mtbf: 1000 h}]",
     Verdict::located},
    {kDense,
     "zero: 0}\nfaults: {duration: 1 d, processes: [{component: gpu, kind: fail-stop, mtbf: 1000 h, lasts: 1 h}]",
     Verdict::located},
    {kDense,
     "zero: 0}\nfaults: {duration: 1 d, processes: [{component: gpu, kind: fail-stop, mtbf: 1000 h, process: {kind: "
     "exponential, shape: 2}}]",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, checkpoint: {method: {kind: memory, group: 2, parity: 2}}",
     Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, checkpoint: {method: {kind: memory, group: 64, parity: 1}}",
     Verdict::any},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, trace: .", Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, recovery: {borrow: 5 s}", Verdict::located},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, recovery: {repair: {retire_window: 5 s}}", Verdict::located},
    {kDense,
     "zero: 0}\nfaults: {duration: 1 d, work: 2 h, events: [{at: 1 h, kind: slow, where: gpu0, factor: 0.5, lasts: 1 "
     "h}]",
     Verdict::any},
    {kDense, "zero: 0}\nfaults: {duration: 1 d, work: 9e9 s", Verdict::any},
    {kDense, "zero: 0, zero: 1", Verdict::located},
    {kDense, "sequence_parallel: yes", Verdict::located},
    {kDense, "zero: 0}\nexpect: {nope: \"< 1\"", Verdict::located},
    {kDense, "zero: 0}\nexpect: {mfu: \"< nan\"", Verdict::located},
    {kDense, "zero: 0}\nexpect: {mfu: \"< 3 s\"", Verdict::located},
    {kDense, "zero: 0}\nexpect: {mfu: \"about 3\"", Verdict::located},
    {kExperts, "pad: true", Verdict::located},
    {kExperts,
     "router_exponent: 1, router_loads: [{load: 1},{load: 1},{load: 1},{load: 1},{load: 1},{load: 1},{load: 1},{load: "
     "1}]",
     Verdict::located},
    {kExperts, "router_loads: [{load: 1}]", Verdict::located},
    {kExperts, "router_loads: [{load: 0},{load: 0},{load: 0},{load: 0},{load: 0},{load: 0},{load: 0},{load: 0}]",
     Verdict::located},
    {kExperts, "router_loads: [{load: nan}]", Verdict::located},
    {kExperts, "router_loads: [{load: 1},{load: 0},{load: 0},{load: 0},{load: 0},{load: 0},{load: 0},{load: 0}]",
     Verdict::any},
    {kExperts, "expert_tensor: 1024", Verdict::any},
    {kExperts, "capacity: 1000, pad: true", Verdict::any},
    {kExperts, "capacity: 1e-300", Verdict::any},
    {kStages, "schedule: gpipe, vocabulary_parallel: one-barrier", Verdict::located},
    {kStages, "schedule: dualpipe, chunks: 2, vocabulary_parallel: two-barriers", Verdict::located},
    {kStages, "schedule: zb-v, vocabulary_parallel: one-barrier", Verdict::located},
    {kStages, "schedule: {kind: search, held: -1}", Verdict::located},
    {kStages, "schedule: {kind: search, held: nan}", Verdict::located},
    {kStages, "schedule: {kind: search, held: 1000000, tries: 20000}", Verdict::any},
    {kStages, "schedule: {kind: search, activations: 1 B}", Verdict::any},
    {kStages, "schedule: {kind: search, activations: 1e300 GiB}", Verdict::located},
    {kStages, "schedule: {kind: search, time: 1 s}", Verdict::located},
    {kStages, "schedule: {kind: gpipe, held: 2}", Verdict::located},
    {kStages, "schedule: {held: 2}", Verdict::located},
    {kStages, "schedule: [search]", Verdict::located},
    {kStages, "schedule: {kind: search}, chunks: 2", Verdict::located},
    {kStages, "schedule: search, vocabulary_parallel: one-barrier", Verdict::located},
    {kStages, "schedule: search, stages: [{layers: 32},{layers: 0},{layers: 0},{layers: 0}]", Verdict::located},
    {kStages, "stages: [{layers: 32}]", Verdict::located},
    {kStages, "stages: [{layers: 8},{layers: 8},{layers: 8},{layers: 9}]", Verdict::located},
    {kStages, "stages: [{layers: 16},{layers: 0},{layers: 8},{layers: 8}]", Verdict::located},
    {kStages, "stages: [{layers: -8},{layers: 24},{layers: 8},{layers: 8}]", Verdict::located},
    {kStages, "stages: [{layers: 100000},{layers: 100000},{layers: 100000},{layers: 100000}]", Verdict::located},
    {kStages, "stages: 8", Verdict::located},
    {kStages, "chunks: 4", Verdict::located},
    {kStages, "schedule: interleaved, chunks: 1000", Verdict::any},
    {kEngine, "step_cost: {}", Verdict::located},
    {kEngine, "step_cost: {fixed: 0 s}", Verdict::located},
    {kEngine, "step_cost: {sequence: 1 ms, table: [{sequences: 1, time: 1 ms}]}", Verdict::located},
    {kEngine, "step_cost: {table: [{sequences: 1, time: 1 ms},{sequences: 1, time: 2 ms}]}", Verdict::located},
    {kEngine, "step_cost: {table: []}", Verdict::located},
    {kEngine, "step_cost: {mixed: 2}", Verdict::located},
    {kEngine, "step_cost: {token: 1 us, beyond: {sequences: 4}}", Verdict::located},
    {kEngine, "step_cost: {table: [{sequences: 1, time: 9 ms},{sequences: 8, time: 1 ms}]}", Verdict::any},
    {kEngine, "step_cost: {fixed: 1 ms}, software: vllm-0.6", Verdict::located},
    {kEngine, "step_cost: {table: [{sequences: 1, context: 10, time: 9 ms},{sequences: 8, context: 99, time: 1 ms}]}",
     Verdict::located},
    {kEngine, "software: {preset: vllm-0.6, kernels: nope}", Verdict::located},
    {kEngine, "software: {preset: vllm-0.6, kernels: ../../x}", Verdict::located},
    {kEngine, "software: {preset: vllm-0.6, expert_kernels: sglang}", Verdict::any},
    {kEngine, "step_cost: {fixed: 1 ms}, software: {preset: vllm-0.6, attention_kernels: units}", Verdict::located},
    {kEngine, "kv: {prefix: {nvme: 1 TiB}}", Verdict::any},
    {kEngine, "kv: {prefix: {nvme_bandwidth: 1 GB/s}}", Verdict::located},
    {kEngine, "kv: {blocks: 1}", Verdict::any},
    {kEngine, "kv: {block: 4096}", Verdict::any},
    {kEngine, "kv: {of_free: true, blocks: 1000}", Verdict::located},
    {kEngine, "kv: {host_memory: 1 GiB}", Verdict::located},
    {kEngine, "lora: {rank: 8}", Verdict::any},
    {kEngine, "mixing: {cache: 50 %}", Verdict::located},
    {kEngine, "decode: {replicas: 1}", Verdict::located},
    {kEngine, "transfer: layers", Verdict::located},
    {kEngine, "first_token: decode", Verdict::located},
    {kEngine, "handover: 5 ms", Verdict::located},
    {kEngine, "expert: 4", Verdict::any},
    {kEngine, "dispatch: all-to-all", Verdict::located},
    {kEngine, "expert_load: 5", Verdict::located},
    {kEngine, "scaling: block", Verdict::located},
    {kEngine, "experts: fp8", Verdict::located},
    {kEngine, "units: 50 %", Verdict::located},
    {kEngine, "tensor: 1, groups: 3", Verdict::any},
    {kEngine, "weights: fp4", Verdict::any},
    {kEngine, "clock: 1 %", Verdict::located},
    {kEngine, "speculation: {tokens: 64, acceptance: 100 %}", Verdict::any},
    {kEngine, "replicas: 2, router: prefix", Verdict::located},
    {kEngine, "replicas: 2, router: session", Verdict::any},
    {kEngine, "replicas: 2, autoscale: {target: 5, least: 9}", Verdict::located},
    {kEngine, "}\nfaults: {events: [{at: 1 s, kind: fail-stop, where: replica9}]", Verdict::located},
    {kEngine, "}\nfaults: {events: [{at: 1 s, kind: link-down, where: nic0}]", Verdict::located},
    {kEngine,
     "}\nfaults: {processes: [{component: software, kind: hang, mtbf: 1 h}], kv: {kind: restored, rate: 1 B/s}",
     Verdict::located},
    {kEngine, "}\nfaults: {retries: 5", Verdict::located},
    {kEngine, "autoscale: {target: 1, least: 0}, start: {weights: peer}", Verdict::located},
    {kRequests, "rate: 1, count: 10, adapters: 5", Verdict::located},
    {kRequests, "rate: 1, count: 5, period: 60 s", Verdict::located},
    {kRequests, "rate: 1, count: 5, swing: 0.5", Verdict::any},
    {kRequests, "rate: 1, count: 5, burstiness: 5", Verdict::located},
    {kRequests, "rate: 1, count: 5, clients: 5", Verdict::located},
    {kRequests, "arrivals: closed, count: 5", Verdict::located},
    {kRequests, "arrivals: closed, clients: 2, rate: 5, count: 5", Verdict::located},
    {kRequests, "rate: 1, count: 5, think: 5 s", Verdict::located},
    {kRequests, "rate: 1, count: 5, common_kinds: 5", Verdict::located},
    {kRequests, "rate: 1, count: 5, adapter_skew: 2", Verdict::any},
    {kRequests, "rate: 1, count: 5, prompt: {mean: 5}, mix: [{share: 1}]", Verdict::located},
    {kRequests, "rate: 1, count: 5, mix: []", Verdict::any},
    {kRequests, "rate: 1, count: 5, prompt: {kind: fixed, mean: 5, spread: 0.5}", Verdict::located},
    {kRequests, "rate: 1, count: 5, prompt: {kind: fixed, mean: 500, most: 5}", Verdict::any},
    {kRequests, "rate: 1, count: 5, longest: 1, prompt: {mean: 500}", Verdict::located},
    {kRequests, "rate: 1, count: 3, prompt: {mean: 16777216}", Verdict::any},
    {kRequests, "rate: 1e-6", Verdict::located},
    {kRequests, "rate: 1, count: 50, sample: 0.0001 %", Verdict::refused},
    {kRequests, "rate: 1, count: 5, time_scale: 2", Verdict::located},
    {kRequests, "rate: 1, count: 50, prompt: {kind: uniform, mean: 5, spread: 10}", Verdict::any},
    {kRequests, "rate: 1, count: 50, prompt: {kind: lognormal, mean: 5, spread: 10}", Verdict::any},
    {kFabric, "kind: torus, shape: axb", Verdict::located},
    {kFabric, "kind: torus, shape: 0x16", Verdict::located},
    {kFabric, "kind: torus, shape: 4x5", Verdict::located},
    {kFabric, "kind: torus, shape: 99999x99999x99999x99999", Verdict::located},
    {kFabric, "kind: torus, shape: 4x4x", Verdict::located},
    {kFabric, "kind: torus, shape: -4x-4", Verdict::located},
    {kFabric, "kind: torus, shape: \357\274\224x\357\274\224", Verdict::located},
    {kFabric, "kind: sites, sites: [{name: a, nodes: 8},{name: b, nodes: 8}]", Verdict::located},
    {kFabric, "kind: sites, sites: [{name: a, nodes: 9}]", Verdict::located},
    {kFabric,
     "kind: sites, sites: [{name: a, nodes: 8},{name: a, nodes: 8}], wan: [{from: a, to: a, link: 1 Gbps, latency: 1 "
     "ms}]",
     Verdict::located},
    {kFabric,
     "kind: sites, sites: [{name: a, nodes: 8},{name: b, nodes: 8}], wan: [{from: a, to: a, link: 1 Gbps, latency: 1 "
     "ms},{from: a, to: b, link: 1 Gbps, latency: 1 ms}]",
     Verdict::located},
    {kFabric, "kind: sites, sites: [{name: a, nodes: 16}], wan: [{from: a, to: zz, link: 1 Gbps, latency: 1 ms}]",
     Verdict::located},
    {kFabric,
     "kind: sites, sites: [{name: a, nodes: 8},{name: b, nodes: 8}], wan: [{from: a, to: b, link: 1 Gbps, latency: 1 "
     "s, loss: 50 %}]",
     Verdict::located},
    {kFabric,
     "kind: sites, segment: 64 KiB, initial_window: 64 B, sites: [{name: a, nodes: 8},{name: b, nodes: 8}], wan: "
     "[{from: a, to: b, link: 1 Gbps, latency: 1 ms, window: 1 B}]",
     Verdict::located},
    {kFabric, "kind: graph, switches: []", Verdict::located},
    {kFabric, "kind: graph, switches: [{name: a, nodes: 8},{name: b, nodes: 8}]", Verdict::located},
    {kFabric, "kind: graph, switches: [{name: a, nodes: 16}], links: [{from: a, to: q, link: 1 Gbps}]",
     Verdict::located},
    {kFabric, "kind: graph, switches: [{name: a, nodes: 16}], links: [{from: a, to: a, link: 1 Gbps}]",
     Verdict::located},
    {kFabric, "kind: multi-level, levels: [{size: 3, link: 1 Gbps}]", Verdict::located},
    {kFabric,
     "kind: multi-level, levels: [{size: 1000000, link: 1 Gbps},{size: 1000000, link: 1 Gbps},{size: 1000000, link: 1 "
     "Gbps},{size: 1000000, link: 1 Gbps}]",
     Verdict::located},
    {kFabric, "kind: multi-level, levels: []", Verdict::located},
    {kFabric, "kind: dragonfly, groups: 65536, routers_per_group: 65536, nics_per_router: 65536, global_links: 65536",
     Verdict::located},
    {kFabric, "kind: dragonfly, groups: 1, routers_per_group: 4, nics_per_router: 4, global_links: 9",
     Verdict::located},
    {kFabric, "kind: leaf-spine, oversubscription: 0", Verdict::located},
    {kFabric, "kind: leaf-spine, shape: 4x4", Verdict::located},
    {kFabric, "kind: single-switch, link: 1e300 GB/s", Verdict::located},
    {kFabric, "kind: single-switch, latency: -1 s", Verdict::located},
    {kNetwork, "mtu: 4096 B", Verdict::any},
    {kNetwork, "fidelity: packet, transport: {kind: nope}", Verdict::located},
    {kNetwork, "fidelity: quantum", Verdict::located},
    {kNetwork, "fidelity: packet, queues: {ecn: [9 MB, 1 B]}", Verdict::located},
    {kNetwork, "fidelity: packet, queues: {size: 1 B}", Verdict::any},
    {kNetwork, "batch: 1e9 s", Verdict::located},
    {kGroups, "[]", Verdict::located},
    {kGroups, "[{name: a, nodes: 1, node: dgx-h100}, {name: a, nodes: 1, node: dgx-a100-80g}]", Verdict::located},
    {kGroups, "[{name: a, nodes: 1000000, node: dgx-h100}, {name: b, nodes: 1000000, node: dgx-a100-80g}]",
     Verdict::located},
    {kGroups, "[{name: \"\\u202Eevil\", nodes: 1, node: dgx-h100}, {name: b, nodes: 1, node: dgx-a100-80g}]",
     Verdict::any},
    {kGroups,
     "[{name: a, nodes: 1, node: dgx-h100, fabric: {kind: torus, shape: 4x4}}, {name: b, nodes: 1, node: dgx-h100}]",
     Verdict::located},
};

}  // namespace

void attack_sections(std::vector<Attack>& out) {
    for (const Part& part : kParts) {
        std::string text = part.base;
        text.replace(text.find('%'), 1, part.text);
        out.push_back({fmt::format("section: {}", std::string(part.text).substr(0, 80)),
                       "run s.yaml",
                       {{"s.yaml", text}},
                       "s.yaml",
                       part.verdict});
    }
    // Jobs that are the file which lists them.
    out.push_back({"section: a job that is its own cluster",
                   "run s.yaml",
                   {{"s.yaml",
                     "orrery: 1\nkind: cluster\ncluster: {nodes: 2, node: dgx-h100, fabric: {kind: single-switch}}\n"
                     "jobs: [{name: a, file: s.yaml, nodes: 2}]\n"}},
                   "s.yaml",
                   Verdict::located});
}

}  // namespace orrery::test
