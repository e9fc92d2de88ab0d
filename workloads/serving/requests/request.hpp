#pragma once
// What clients ask for: requests with arrival time, prompt and output lengths, streamed one after another.

#include "sim/base/time.hpp"

#include <cstdint>
#include <vector>

namespace orrery::serving {

/// What of a prompt may be the same as in another request. Blocks with equal keys have equal tokens, and all before them.
struct PromptContent {
    std::uint32_t common = 0;         ///< the first tokens are those of all with the same `group`: a system prompt
    std::uint32_t group = 0;          ///< which
    std::uint64_t conversation = 0;   ///< all tokens, generated ones too, are those of this conversation; 0: of none
    std::vector<std::uint64_t> keys;  ///< of each `key_tokens` tokens of the prompt, where a trace gives them
    std::uint32_t key_tokens = 512;
    std::uint64_t branch =
        0;  ///< of the conversation, whose tokens from `forked` on are its own; 0: the conversation's
    std::uint32_t forked = 0;

    /// Key of the tokens from `index * block` on, `block` of them; 0: nobody else has them.
    [[nodiscard]] std::uint64_t key(std::uint64_t index, std::uint64_t block) const;
};

struct Request {
    SimTime arrival;
    std::uint32_t prompt = 1;   ///< tokens
    std::uint32_t output = 1;   ///< tokens, the first one included
    std::uint32_t session = 0;  ///< requests of one session stick together where a router wants it
    PromptContent content;
    std::uint32_t adapter = 0;  ///< LoRA adapter, from 1 on; 0: the model as it is
    std::uint32_t turn = 0;     ///< conversation that goes on when this is answered, from 1 on; 0: nothing follows
    std::uint32_t stage = 0;    ///< of the load, from 1 on: the arrival counts from its start; 0: there are none
};

/// Requests in order of arrival.
class RequestSource {
  public:
    virtual ~RequestSource() = default;
    /// The next request; false at the end. Throws ConfigError where a trace is malformed or goes back in time.
    [[nodiscard]] virtual bool next(Request& request) = 0;
    /// Clients of a closed loop, each of which sends its next request when the last one is answered, whatever its arrival
    /// says; 0: requests come at their arrival.
    [[nodiscard]] virtual std::uint64_t clients() const { return 0; }
    /// A request with a turn has been answered, or was not (`served` false): what its client asks next, if anything. The
    /// arrival is not before `now`.
    [[nodiscard]] virtual bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) {
        (void)turn, (void)now, (void)served, (void)request;
        return false;
    }
    /// More that the same answer lets its client ask at once, one a call; false: there is no more.
    [[nodiscard]] virtual bool another(Request& request) {
        (void)request;
        return false;
    }
    /// Requests of a session are one conversation, or one graph of requests.
    [[nodiscard]] virtual bool has_conversations() const { return false; }
    /// Fraction of the requests that have been given, as far as it is known.
    [[nodiscard]] virtual double progress() const { return 0; }
};

}  // namespace orrery::serving
