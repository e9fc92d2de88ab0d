#include "sim/base/random.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace orrery;
using namespace orrery::test;

TEST_CASE("serving: static batches run until their longest sequence ends, finished places padded") {
    // Two places: the third request waits for the whole first batch.
    CHECK(iterations(spec_of("static", 100, 2, 100), {request(0, 4, 1), request(0.5, 5, 3), request(0.5, 6, 2)}) ==
          Lines{"0:4", "1:5 2:6", "1:1 2:1", "1:1 +1"});
}

TEST_CASE("serving: what comes in one instant is planned once, after all of it has come") {
    // Three equal requests at the start are one batch: as many iterations as tokens.
    const std::vector<Request> three(3, request(0, 4, 3));
    CHECK(iterations(spec_of("chunked-prefill", 100, 8, 100), three) ==
          Lines{"0:4 1:4 2:4", "0:1 1:1 2:1", "0:1 1:1 2:1"});
    // A request that comes in the instant in which an iteration ends is in the next one.
    CHECK(iterations(spec_of("chunked-prefill", 100, 8, 100), {request(0, 4, 2), request(1, 4, 1)}) ==
          Lines{"0:4", "0:1 1:4"});
}

TEST_CASE("serving: who plans ahead has put the next batch together before a request comes") {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 100);
    spec.pools[0].plans_ahead = true;
    // The iteration from 1 s on was planned at 0 s, the one from 2 s on at 1 s.
    CHECK(iterations(spec, {request(0, 4, 4), request(0.5, 4, 1), request(1.5, 5, 1)}) ==
          Lines{"0:4", "0:1", "0:1 1:4", "0:1 2:5"});
    // Where nothing else is to do, it starts at once with what has come.
    CHECK(iterations(spec, {request(0, 4, 1), request(0.5, 4, 1)}) == Lines{"0:4", "1:4"});
    CHECK(iterations(spec, {request(0, 4, 1), request(2, 4, 1)}) == Lines{"0:4", "1:4"});
    // A policy that sorts who waits knows who has come meanwhile.
    ServiceSpec sorted = spec_of("shortest-first", 100, 1, 100);
    sorted.pools[0].plans_ahead = true;
    CHECK(iterations(sorted, {request(0, 4, 2), request(0.5, 9, 1), request(0.5, 3, 1)}) ==
          Lines{"0:4", "0:1", "2:3", "1:9"});
}

TEST_CASE("serving: Orca admits whenever a place is free, and sets the longest output aside") {
    // One iteration a second; request 0 starts alone because the others come while it runs.
    CHECK(iterations(spec_of("orca", 100, 2, 100), {request(0, 4, 3), request(0.5, 5, 2), request(0.5, 6, 2)}) ==
          Lines{"0:4", "0:1 1:5", "0:1 1:1", "2:6", "2:1"});
    // Three blocks of four: a request of 4 + 4 tokens holds two, so the next of that size does not fit beside it.
    CHECK(iterations(spec_of("orca", 100, 8, 3), {request(0, 4, 4), request(0, 4, 4)}) ==
          Lines{"0:4", "0:1", "0:1", "0:1", "1:4", "1:1", "1:1", "1:1"});
}

TEST_CASE("serving: vLLM 0 runs prompts before decodes, and preempts who came last") {
    CHECK(iterations(spec_of("vllm-v0", 12, 8, 100),
                     {request(0, 4, 3), request(0.5, 5, 2), request(0.5, 6, 2), request(0.5, 7, 1)}) ==
          Lines{"0:4", "1:5 2:6", "3:7", "0:1 1:1 2:1", "0:1"});
    // Four blocks of four: both prompts fit, both want a fifth token, there is a block for one of them only when the other
    // gives way; request 1 starts anew with its prompt and what it had generated.
    CHECK(iterations(spec_of("vllm-v0", 100, 8, 3), {request(0, 4, 5), request(0.5, 4, 3)}) ==
          Lines{"0:4", "1:4", "0:1", "0:1", "0:1", "0:1", "1:5", "1:1"});
}

TEST_CASE("serving: swapped sequences come back before new prompts and keep what they computed") {
    ServiceSpec spec = spec_of("vllm-v0", 100, 8, 3);
    spec.pools[0].scheduler = scheduler("{kind: vllm-v0, preemption: swap}");
    spec.pools[0].limits.host_blocks = 10;
    spec.pools[0].limits.block_bytes = 1000;
    // As above, but request 1 decodes on where it was.
    CHECK(iterations(spec, {request(0, 4, 5), request(0.5, 4, 3)}) ==
          Lines{"0:4", "1:4", "0:1", "0:1", "0:1", "0:1", "1:1", "1:1"});
}

TEST_CASE("serving: chunked prefill fills the token budget, decodes first") {
    CHECK(iterations(spec_of("chunked-prefill", 4, 8, 100), {request(0, 4, 3), request(0, 9, 2)}) ==
          Lines{"0:4", "0:1 1:3", "0:1 1:3", "1:3", "1:1"});
}

TEST_CASE("serving: Sarathi-Serve admits a prompt when the whole of it has room, vLLM 1 when its first piece has") {
    // Five blocks of four: request 0 holds three at the end, request 1 needs three for its prompt of nine.
    const std::vector<Request> requests = {request(0, 4, 8), request(0.5, 9, 1)};
    CHECK(iterations(spec_of("sarathi", 4, 8, 4), requests) ==
          Lines{"0:4", "0:1", "0:1", "0:1", "0:1", "0:1", "0:1", "0:1", "1:4", "1:4", "1:1"});
    CHECK(iterations(spec_of("chunked-prefill", 4, 8, 4), requests) ==
          Lines{"0:4", "0:1 1:3", "0:1 1:3", "0:1", "0:1 1:3", "0:1", "0:1 1:3", "0:1", "1:4", "1:4", "1:1"});
    // With room for all both give the decodes first.
    CHECK(iterations(spec_of("sarathi", 4, 8, 100), {request(0, 4, 3), request(0, 9, 2)}) ==
          Lines{"0:4", "0:1 1:3", "0:1 1:3", "1:3", "1:1"});
}

TEST_CASE("serving: SplitFuse puts short prompts together and splits long ones to exactly the budget") {
    CHECK(iterations(spec_of("splitfuse", 6, 8, 100),
                     {request(0, 6, 3), request(0, 2, 2), request(0, 3, 2), request(0, 9, 1)}) ==
          Lines{"0:6", "0:1 1:2 2:3", "0:1 1:1 2:1 3:3", "3:6"});
    // Three blocks of four: request 1 waits with its block until request 0 has left instead of starting anew ...
    CHECK(iterations(spec_of("splitfuse", 8, 8, 3), {request(0, 4, 5), request(0.5, 4, 3)}) ==
          Lines{"0:4", "0:1 1:4", "0:1", "0:1", "0:1", "1:1", "1:1"});
    // ... and when both wait for a block, who came last does.
    CHECK(iterations(spec_of("splitfuse", 16, 8, 4), {request(0, 8, 6), request(0.5, 8, 2)}) ==
          Lines{"0:8", "0:1 1:4", "0:1", "0:1", "0:1", "0:1", "1:8", "1:1"});
}

TEST_CASE("serving: known lengths can order who waits: the shortest prompt, or the most output for its prompt") {
    const std::vector<Request> requests = {request(0, 4, 1), request(0.5, 9, 1), request(0.5, 3, 1),
                                           request(0.5, 8, 20)};
    CHECK(iterations(spec_of("shortest-first", 100, 1, 100), requests)[1] == "2:3");
    const Lines heavy = iterations(spec_of("decode-heavy", 100, 1, 100), requests);
    CHECK(heavy[1] == "3:8");
    CHECK(Lines(heavy.end() - 2, heavy.end()) == Lines{"2:3", "1:9"});
}

TEST_CASE("serving: earliest deadline first, by arrival and length of the prompt") {
    ServiceSpec spec = spec_of("earliest-deadline", 100, 1, 100);
    const std::vector<Request> requests = {request(0, 4, 1), request(0.1, 9, 1), request(0.2, 3, 1),
                                           request(0.9, 1, 1)};
    // All due a second after they came: in order of arrival.
    CHECK(iterations(spec, requests) == Lines{"0:4", "1:9", "2:3", "3:1"});
    // A second more per token of the prompt: due at 9.1, 3.2 and 1.9 s.
    spec.pools[0].scheduler = scheduler("{kind: earliest-deadline, deadline_per_token: 1 s}");
    CHECK(iterations(spec, requests) == Lines{"0:4", "3:1", "2:3", "1:9"});
}

TEST_CASE("serving: FastServe lets short prompts pass long ones and sinks who has used its quantum") {
    ServiceSpec spec = spec_of("fastserve", 4, 1, 100);
    spec.pools[0].scheduler = scheduler("{kind: fastserve, levels: 3, first_quantum: 4}");
    // Request 0 (prompt 8) joins the second level (quantum 8); request 1 (prompt 2) comes during its first piece at the
    // highest level and goes first until it has used four tokens, in the end on the second level, where 0 came before it.
    CHECK(iterations(spec, {request(0, 8, 2), request(0.5, 2, 4)}) ==
          Lines{"0:4", "1:2", "1:1", "1:1", "0:4", "1:1", "0:1"});
}

TEST_CASE("serving: fair shares serve the session that has had the least") {
    // Session 0 asks three times, session 1 once, later: it goes before the rest of session 0.
    CHECK(iterations(spec_of("fair", 100, 1, 100), {request(0, 4, 1, 0), request(0, 4, 1, 0), request(0, 4, 1, 0),
                                                    request(0.5, 4, 1, 1)}) == Lines{"0:4", "3:4", "1:4", "2:4"});
}

TEST_CASE("serving: a lone request takes its prompt's iteration and one for each further token") {
    ListSource source({request(1, 512, 128)});
    AffineStep cost(2e-3, 1e-5, 1e-7);
    const ServiceResult result = serve_with(spec_of("chunked-prefill", 1024, 8, 100, 16), source, cost);
    REQUIRE(result.requests.size() == 1);
    CHECK(result.requests[0].ttft * 1e3 == doctest::Approx((2e-3 + 512e-5) * 1e3).epsilon(1e-6));
    // Token i + 1 looks back on 512 + i tokens.
    const double decodes = 127 * (2e-3 + 1e-5) + 1e-7 * (127 * 512 + 127 * 128 / 2.0);
    CHECK(result.requests[0].e2e * 1e3 == doctest::Approx((2e-3 + 512e-5 + decodes) * 1e3).epsilon(1e-6));
    CHECK(result.output_tokens == 128);
    CHECK(result.tbt.count() == 127);
}

TEST_CASE("serving: without queueing every request takes the same time") {
    std::vector<Request> requests;
    for (int i = 0; i < 50; ++i) {
        requests.push_back(request(0.5 * i, 512, 128));
    }
    ListSource source(requests);
    AffineStep cost(1e-3, 1e-5, 0);
    const ServiceResult result = serve_with(spec_of("vllm-v0", 1024, 8, 1000, 16), source, cost);
    for (const RequestOutcome& outcome : result.requests) {
        CHECK(outcome.ttft == result.requests[0].ttft);
        CHECK(outcome.e2e == result.requests[0].e2e);
    }
}

TEST_CASE("serving: with a prefill and a decode replica the first token takes exactly the prompt's time") {
    FabricShape shape = test::rail_nodes(2);
    shape.intra_latency = 1e-6;
    const Fabric fabric(shape);
    for (const Transfer transfer : {Transfer::whole, Transfer::layers}) {
        ServiceSpec spec = spec_of("vllm-v0", 1024, 8, 1000, 16);
        spec.pools.push_back(spec.pools[0]);
        spec.pools[0].role = Role::prefill;
        spec.pools[1].role = Role::decode;
        spec.pools[1].first_gpu = 8;  // on the other node
        spec.fabric = &fabric;
        spec.transfer = transfer;
        spec.layers = 80;
        spec.cache_token_bytes = 320e3;
        std::vector<Request> requests;
        for (int i = 0; i < 20; ++i) {
            requests.push_back(request(0.5 * i, 512, 128));
        }
        ListSource source(requests);
        AffineStep cost(1e-3, 1e-5, 0);
        const ServiceResult result = serve_with(spec, source, cost);
        REQUIRE(result.requests.size() == 20);
        CHECK(result.kv_transfers == 20);
        // 512 tokens at 50 GB/s from NIC to NIC; by layer the last of 80 goes after the prompt.
        const double wire = 512 * 320e3 / 50e9 / (transfer == Transfer::layers ? 80 : 1);
        const double latency = fabric.route(GpuId(0), GpuId(8), PathChoice::spray, 0).latency;
        CHECK(result.kv_transfer_s / 20 * 1e6 == doctest::Approx((wire + latency) * 1e6).epsilon(1e-6));
        for (const RequestOutcome& outcome : result.requests) {
            CHECK(static_cast<double>(outcome.ttft) * 1e3 == doctest::Approx((1e-3 + 512e-5) * 1e3).epsilon(1e-6));
            CHECK(static_cast<double>(outcome.e2e) * 1e3 ==
                  doctest::Approx((1e-3 + 512e-5 + wire + latency + 127 * (1e-3 + 1e-5)) * 1e3).epsilon(1e-6));
        }
    }
}

TEST_CASE("serving: transfers of caches contend on the fabric") {
    const Fabric fabric(test::rail_nodes(2));
    ServiceSpec spec = spec_of("vllm-v0", 4096, 8, 1000, 16);
    spec.pools.push_back(spec.pools[0]);
    spec.pools[0].role = Role::prefill;
    spec.pools[1].role = Role::decode;
    spec.pools[1].first_gpu = 8;
    spec.fabric = &fabric;
    spec.cache_token_bytes = 320e3;
    ListSource source({request(0, 512, 2), request(0.5, 512, 2), request(0.5, 512, 2)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    // The first prompt runs alone, the other two together: their caches share the NIC and take twice as long each.
    const double alone = 512 * 320e3 / 50e9;
    CHECK(result.kv_transfer_s * 1e6 == doctest::Approx(5 * alone * 1e6).epsilon(1e-3));
}

TEST_CASE("serving: a decode replica makes room before a cache is sent to it, and nothing is lost") {
    const Fabric fabric(test::rail_nodes(2));
    RandomStream random(11, "split");
    for (int round = 0; round < 40 * test::scale(); ++round) {
        ServiceSpec spec = spec_of(any_of(scheduler_table(), random), 64, 8, 40);
        spec.pools.push_back(spec.pools[0]);
        spec.pools[0].role = Role::prefill;
        spec.pools[0].replicas = 1 + static_cast<std::uint32_t>(random.below(3));
        spec.pools[1].role = Role::decode;
        spec.pools[1].replicas = 1 + static_cast<std::uint32_t>(random.below(2));
        spec.pools[1].scheduler.policy.choose(any_of(scheduler_table(), random));
        spec.pools[1].limits.blocks = 12 + random.below(20);
        spec.pools[1].first_gpu = 8;
        spec.fabric = &fabric;
        spec.transfer = static_cast<Transfer>(random.below(2));
        spec.layers = 4;
        spec.cache_token_bytes = 1e9;
        std::vector<Request> requests;
        std::uint64_t tokens = 0;
        double at = 0;
        for (int i = 0; i < 30; ++i) {
            at += random.exponential(1);
            requests.push_back(request(at, 1 + static_cast<std::uint32_t>(random.below(30)),
                                       1 + static_cast<std::uint32_t>(random.below(15))));
            tokens += requests.back().output;
        }
        ListSource source(requests);
        AffineStep cost(0.5, 0.01, 0.001);
        const ServiceResult result = serve_with(spec, source, cost);
        CHECK(result.requests.size() == 30);
        CHECK(result.output_tokens == tokens);
    }
}

TEST_CASE("serving: one place and fixed lengths are the queue M/D/1") {
    RequestsSpec requests;
    requests.rate = 0.7;
    requests.count = 40000;
    requests.prompt.mean = 10;
    requests.output.mean = 1;
    const auto source = make_requests(requests, "", 3);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec_of("orca", 100, 1, 100), *source, cost);
    double wait = 0;
    for (const RequestOutcome& outcome : result.requests) {
        wait += outcome.ttft - 1;
    }
    // Pollaczek-Khinchine: rho / (2 (1 - rho)) services.
    CHECK(wait / static_cast<double>(result.requests.size()) == doctest::Approx(0.7 / (2 * 0.3)).epsilon(0.05));
}

TEST_CASE("serving: every request is accounted for under every scheduler, router and shortage of blocks") {
    const Fabric fabric(test::rail_nodes(2));
    RandomStream random(5, "serving");
    for (int round = 0; round < 60 * test::scale(); ++round) {
        for (const std::string& kind : built_in(scheduler_table())) {
            ServiceSpec spec = spec_of(kind, 1 + static_cast<std::uint32_t>(random.below(40)),
                                       1 + static_cast<std::uint32_t>(random.below(10)), 4 + random.below(40));
            spec.pools[0].replicas = 1 + static_cast<std::uint32_t>(random.below(3));
            spec.router.choose(any_of(router_table(), random));
            if (random.below(2) == 1 && kind == "vllm-v0") {
                spec.pools[0].scheduler = scheduler("{kind: vllm-v0, preemption: swap}");
            }
            spec.pools[0].limits.host_blocks = random.below(20);
            spec.pools[0].limits.block_bytes = 1e9;
            spec.pools[0].host_bandwidth = static_cast<double>(random.below(2)) * 1e10;
            spec.pools[0].limits.prefix_cache = random.below(2) == 0;
            spec.pools[0].limits.host_cache = random.below(20);
            spec.pools[0].limits.nvme_cache = random.below(20);
            spec.nvme_bandwidth = 1e10;
            spec.pools[0].limits.batches = 1 + static_cast<std::uint32_t>(random.below(3));
            spec.pools[0].gpus = spec.pools[0].limits.batches;
            spec.fabric = &fabric;
            spec.hidden_bytes = 1e9;
            std::vector<Request> requests;
            std::uint64_t tokens = 0;
            std::uint64_t refused = 0;
            double at = 0;
            const EngineState judge(spec.pools[0].limits);
            for (std::uint64_t i = 10 + random.below(40); i > 0; --i) {
                at += random.exponential(2);
                requests.push_back(request(at, 1 + static_cast<std::uint32_t>(random.below(60)),
                                           1 + static_cast<std::uint32_t>(random.below(20)),
                                           static_cast<std::uint32_t>(random.below(3))));
                requests.back().content.conversation = random.below(4);
                const bool fits = judge.accepts(requests.back());
                tokens += fits ? requests.back().output : 0;
                refused += fits ? 0 : 1;
            }
            ListSource source(requests);
            AffineStep cost(1, 0.01, 0.001);
            CAPTURE(kind);
            const ServiceResult result = serve_with(spec, source, cost);
            CHECK(result.requests.size() + result.refused == requests.size());
            CHECK(result.refused == refused);
            CHECK(result.output_tokens == tokens);
            CHECK(result.most_blocks <= spec.pools[0].limits.blocks);
        }
    }
}

TEST_CASE("serving: traces of the published formats are read, from their first request on") {
    const std::string path =
        (std::filesystem::temp_directory_path() / fmt::format("orrery-requests-{}", getpid())).string();
    const auto read = [&](const std::string& text) {
        std::ofstream(path) << text;
        RequestsSpec spec;
        spec.count = 0;
        const auto source = make_requests(spec, path, 1);
        std::vector<Request> out;
        Request one;
        while (source->next(one)) {
            out.push_back(one);
        }
        return out;
    };
    const auto refused = [&](const std::string& text) {
        try {
            (void)read(text);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto azure = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-30 23:59:59.5000000,374,44\n"
        "2023-12-01 00:00:00.7500000,396,0\n");
    REQUIRE(azure.size() == 2);
    CHECK(azure[0].arrival == SimTime());
    CHECK(azure[1].arrival.seconds() == doctest::Approx(1.25).epsilon(1e-6));
    CHECK(azure[1].prompt == 396);
    CHECK(azure[1].output == 1);  // none asked for: the end-of-text token
    const auto burst = read(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,"
        "Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n");
    REQUIRE(burst.size() == 2);
    CHECK(burst[1].arrival.seconds() == doctest::Approx(40));
    CHECK(burst[1].output == 230);
    const auto mooncake =
        read("{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47]}\n");
    REQUIRE(mooncake.size() == 1);
    CHECK(mooncake[0].prompt == 6955);
    CHECK(mooncake[0].content.keys == std::vector<std::uint64_t>{47, 48});
    CHECK(refused("{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 5, \"hash_ids\": [4, x]}\n")
              .find("list of whole numbers") != std::string::npos);
    CHECK(refused("{\"timestamp\": 1, \"input_length\": 6, \"output_length\": 5, \"hash_ids\": [4\n")
              .find("has no end") != std::string::npos);
    CHECK(refused("arrival_s,prompt,output\n").find("has no request") != std::string::npos);
    CHECK(refused("a,b\n1,2\n").find(":1:1: error: the header names no arrival") != std::string::npos);
    CHECK(refused("arrival_s,prompt,output\n5,1,1\n6,1,1\n4,1,1\n").find(":4:1: error: goes back in time") !=
          std::string::npos);
    CHECK(refused("arrival_s,prompt,output\n5,many,1\n").find("not 'many'") != std::string::npos);
    CHECK(refused("arrival_s,prompt,output\n5\n").find("the header names 3 columns") != std::string::npos);
    std::filesystem::remove(path);
}

TEST_CASE("serving: generated gaps and lengths have the asked for means and burstiness") {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::gamma;
    spec.rate = 4;
    spec.burstiness = 2;
    spec.count = 50000;
    spec.prompt = {LengthKind::lognormal, 800, 0.7, 1 << 20};
    const auto source = make_requests(spec, "", 9);
    Request one;
    double last = 0;
    double sum = 0;
    double squares = 0;
    double tokens = 0;
    while (source->next(one)) {
        const double gap = one.arrival.seconds() - last;
        last = one.arrival.seconds();
        sum += gap;
        squares += gap * gap;
        tokens += one.prompt;
    }
    const double mean = sum / 50000;
    CHECK(mean == doctest::Approx(0.25).epsilon(0.03));
    CHECK(std::sqrt(squares / 50000 - mean * mean) / mean == doctest::Approx(2).epsilon(0.05));
    CHECK(tokens / 50000 == doctest::Approx(800).epsilon(0.02));
}

TEST_CASE("serving: a scenario that cannot run says why") {
    const char* text = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-a100-80g}
model: llama-2-70b
engine: {tensor: 1}
requests: {count: 10}
)";
    const auto problem = [&](const std::vector<std::string>& changes) {
        YamlNode tree = parse_yaml(text, "test.yaml");
        for (const std::string& change : changes) {
            apply_override(tree, change);
        }
        try {
            (void)run_scenario(read_scenario(tree, "test", test::data()), test::model_cache(), {});
        } catch (const Error& error) {
            return fmt::format("{} {}", error.exit_code(), error.what());
        }
        return std::string();
    };
    CHECK(problem({}).find("3 the model does not fit: 128") != std::string::npos);
    CHECK(problem({"engine.tensor=16"}).find("3 1 replicas of 16 ranks need 16 GPUs") != std::string::npos);
    CHECK(problem({"engine.tensor=3"}).find("must divide the 64 heads") != std::string::npos);
    CHECK(problem({"engine.tensor=4", "requests.trace=nowhere.csv"}).find("2 nowhere.csv: error: cannot be read") !=
          std::string::npos);
    CHECK(problem({"engine.tensor=4"}).empty());
}

TEST_CASE("serving: output tokens cost what the GPUs of all replicas cost while the run lasts") {
    Scenario s = test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-70b
engine: {replicas: 2, tensor: 4}
requests: {count: 50, rate: 10}
)");
    s.cluster.node.gpu.price.value = 3.6;  // USD per hour: a thousandth a second
    const Summary summary = run_scenario(s, test::model_cache(), {}).summary;
    const double rate = summary.find("output_tokens_per_s")->value;
    CHECK(summary.find("cost_per_million_tokens_usd")->value == doctest::Approx(8 * 0.001 / rate * 1e6).epsilon(1e-9));
}
