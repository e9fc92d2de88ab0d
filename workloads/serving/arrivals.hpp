#pragma once
// Where requests come from: generators with seeded streams, and trace files that are read a line at a time.
//
// Traces: Azure 2023 and 2024 (TIMESTAMP,ContextTokens,GeneratedTokens), BurstGPT (Timestamp,Model,Request tokens,Response
// tokens,...), Mooncake JSONL (timestamp in ms, input_length, output_length,
// hash_ids of 512 tokens each), and plain CSV (arrival_s,prompt,output[,session]).
// Sources: Patel et al., "Splitwise", ISCA 2024; Wang et al., "BurstGPT", arXiv:2401.17644; Qin et al., "Mooncake", FAST 2025.
// Days: with a swing the rate rises evenly from its least at time 0 to its most half a period later, and falls again.
// Conversations: a generated prompt is what the session has said so far and a new part; when that exceeds the longest prompt
// the session starts another conversation. In a trace with sessions the prompts given are taken to contain the earlier turns.
// Limits: a turn does not wait for the answer to the one before; time runs from the first request of the file; gaps in a trace stay as they are.
// Validated by tests/workloads/serving_test.cpp.

#include "sim/config/fields.hpp"
#include "workloads/serving/request.hpp"

#include <memory>
#include <string>

namespace orrery {

/// closed: so many clients that each send their next request when the last one is answered.
enum class ArrivalKind { poisson, gamma, fixed, at_once, closed };
enum class LengthKind { fixed, uniform, lognormal };

struct LengthSpec {
    LengthKind kind = LengthKind::fixed;
    double mean = 512;
    double spread = 1;  ///< lognormal: sigma of the logarithm; uniform: half width over the mean
    std::int64_t most = 1 << 20;
};

struct RequestsSpec {
    std::string trace;  ///< file; empty: generated
    ArrivalKind arrivals = ArrivalKind::poisson;
    double rate = 1;           ///< requests a second
    std::int64_t clients = 0;  ///< of a closed loop
    double burstiness = 1;     ///< gamma: coefficient of variation of the gaps
    std::int64_t count = 0;    ///< at most so many; 0: all of a trace, 1,000 generated ones
    LengthSpec prompt;
    LengthSpec output{LengthKind::fixed, 128, 1, 1 << 20};
    double time_scale = 1;  ///< gaps of a trace times this
    double from = 0;        ///< s of a trace that are left out at its start
    double to = 0;          ///< s of a trace where it ends; 0: at its end
    double sample = 1;      ///< share of the requests that are kept, drawn
    double swing = 0;       ///< the generated rate goes from (1 - swing) times `rate` to (1 + swing) times it and back
    double period = 86400;  ///< s in which it does
    double timeout = 0;     ///< s after which a client gives up; 0: never
    std::int64_t sessions = 1;      ///< generated requests belong to one of so many sessions
    bool conversations = false;     ///< a session is a conversation: its prompts contain the earlier turns
    std::int64_t common = 0;        ///< tokens that generated prompts have before their own: a system prompt
    std::int64_t common_kinds = 1;  ///< of which there are so many
};
void describe(Fields& fields, RequestsSpec& spec);

/// Requests as `spec` says. `file`: the trace's path, already found. Throws ConfigError when it cannot be read.
[[nodiscard]] std::unique_ptr<RequestSource> make_requests(const RequestsSpec& spec, const std::string& file,
                                                           std::uint64_t seed);

}  // namespace orrery
