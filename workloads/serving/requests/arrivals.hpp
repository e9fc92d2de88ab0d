#pragma once
// Where requests come from: generators with seeded streams, and trace files that are read a line at a time.
//
// Formats of traces: formats/, one row each.
// Source: Xiang et al., "ServeGen", arXiv:2505.09999 (a load as its clients).
// Days: with a swing the rate rises evenly from its least at time 0 to its most half a period later, and falls again.
// Conversations: a generated prompt is what the session has said so far and a new part; when that exceeds the longest prompt
// the session starts another conversation. In a trace with sessions the prompts given are taken to contain the earlier turns.
// Turns: with `turns` what arrives are conversations; each next question comes a time to think after the answer to the one
// before (or, when that was not given, never), as long as the conversation lasts and its prompt is not too long.
// Branches: an agent that calls sub-agents or several tools. Each question after the first is so many requests at once, which all begin with
// what the conversation has said and go on with parts of their own; the next comes when the last is answered, and has said all of it.
// Samples: with `samples` each prompt is asked so many times in a row, each time for an answer of a length of its own; a prefix cache
// finds all of the prompt again.
// Data sets are filtered: with `longest` a request that is longer in all is drawn anew, so that no length piles up at a limit.
// Stages: with `stages` a load is a ladder of rates. A stage sends rate x duration requests (rounded down) and ends when all of them
// are accounted for; the next begins a pause later. Queues are empty between stages, caches stay. Source: kubernetes-sigs/inference-perf@7de5ef2,
// loadgen/load_generator.py and load_timer.py (whose Poisson counts of each second come to an ordinary Poisson process, but for the last
// request of a second).
// Questions: with `questions` there are so many different prompts to each system prompt (or in all), in an order drawn once; requests go round it, and
// each stage begins at its start (inference-perf's shared prefixes). A prompt that is asked again is the same to its last token.
// A client's cap: with `concurrency` a request waits with its client while so many are under way; its times count from its sending.
// Mixes: clients with shares of the rate, burstiness and lengths of their own; all requests are those of all clients together.
// Limits: without `turns` a question does not wait for the answer before it; time runs from the first request of the file;
// gaps in a trace stay as they are.
// Validated by tests/workloads/serving_test.cpp.

#include "sim/config/fields.hpp"
#include "workloads/serving/requests/request.hpp"

#include <memory>
#include <string>
#include <vector>

namespace orrery::serving {

/// closed: so many clients that each send their next request when the last one is answered.
enum class ArrivalKind { poisson, gamma, fixed, at_once, closed };
enum class LengthKind { fixed, uniform, lognormal };

struct LengthSpec {
    LengthKind kind = LengthKind::fixed;
    double mean = 512;
    double spread = 1;  ///< lognormal: sigma of the logarithm; uniform: half width over the mean
    std::int64_t most = 1 << 20;
};

/// A `count` of generated requests that no run comes to the end of.
inline constexpr std::int64_t kEndlessRequests = std::int64_t{1} << 60;

/// One client of a mix.
struct ClientSpec {
    double share = 1;       ///< of the rate, over the sum of all shares
    double burstiness = 1;  ///< coefficient of variation of the gaps; 1: Poisson
    LengthSpec prompt;
    LengthSpec output{LengthKind::fixed, 128, 1, 1 << 20};
    std::int64_t adapter = 0;  ///< that its requests name; 0: none
};

/// Requests at one rate.
struct LoadStage {
    double rate = 1;       ///< requests per second
    double duration = 60;  ///< s

    [[nodiscard]] std::int64_t requests() const { return static_cast<std::int64_t>(rate * duration + 1e-9); }
};

struct RequestsSpec {
    std::string trace;         ///< file; empty: generated
    std::string trace_format;  ///< a row of formats/ or recorded/; empty: its content tells
    ArrivalKind arrivals = ArrivalKind::poisson;
    double rate = 1;           ///< requests per second
    std::int64_t clients = 0;  ///< of a closed loop
    double burstiness = 1;     ///< gamma: coefficient of variation of the gaps
    std::int64_t count =
        0;  ///< at most so many; 0: all of a trace, 1,000 generated ones (LoadEnd: or what a run asks for)
    LengthSpec prompt;
    LengthSpec output{LengthKind::fixed, 128, 1, 1 << 20};
    std::int64_t longest = 0;  ///< tokens of prompt and output: generated requests beyond are drawn anew; 0: none is
    double time_scale = 1;     ///< gaps of a trace times this
    double from = 0;           ///< s of a trace that are left out at its start
    double to = 0;             ///< s of a trace where it ends; 0: at its end
    double sample = 1;         ///< share of the requests that are kept, drawn
    double swing = 0;       ///< the generated rate goes from (1 - swing) times `rate` to (1 + swing) times it and back
    double period = 86400;  ///< s in which it does
    double timeout = 0;     ///< s after which a client gives up; 0: never
    std::int64_t sessions = 1;      ///< generated requests belong to one of so many sessions
    bool conversations = false;     ///< a session is a conversation: its prompts contain the earlier turns
    std::int64_t samples = 1;       ///< answers to each prompt, which are requests of their own
    std::int64_t common = 0;        ///< tokens that generated prompts have before their own: a system prompt
    std::int64_t common_kinds = 1;  ///< of which there are so many
    double turns = 0;               ///< mean questions of a conversation, each after the answer before; 0: none waits
    double think = 0;               ///< s, mean time from an answer to the next question
    std::int64_t branches = 1;  ///< requests side by side that each question after the first is, until all are answered
    std::int64_t adapters = 0;  ///< that requests name; 0: none
    double adapter_skew = 0;    ///< the k-th most wanted has 1 / k^skew of the first one's requests
    std::vector<ClientSpec> mix;    ///< clients; empty: one, as said above
    std::vector<LoadStage> stages;  ///< one after another, each when all before is answered; empty: one rate
    double pause = 0;               ///< s between the end of a stage and the start of the next
    std::int64_t questions = 0;     ///< different prompts to each system prompt, asked in turn; 0: all are different
    std::int64_t concurrency = 0;   ///< requests that the client has under way at most; 0: any number

    /// Requests of all stages.
    [[nodiscard]] std::int64_t in_stages() const;
    /// Whether some request names an adapter.
    [[nodiscard]] bool names_adapters() const;
};
/// What of a specification goes together with nothing else of it; empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const RequestsSpec& spec);
void describe(Fields& fields, RequestsSpec& spec);

/// Requests as `spec` says. `file`: the trace's path, already found. Throws ConfigError when it cannot be read.
[[nodiscard]] std::unique_ptr<RequestSource> make_requests(const RequestsSpec& spec, const std::string& file,
                                                           std::uint64_t seed);

}  // namespace orrery::serving
