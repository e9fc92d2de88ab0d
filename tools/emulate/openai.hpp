#pragma once
// Requests and answers of OpenAI's completions and chat completions, in the dialect of vLLM's server.
//
// Scope: one prompt and one answer a request. What would shape the text (temperature, stop, tools, ...) is taken and changes nothing, since
// answers are filler of a given number of tokens; what would shape the answer's form (n, best_of, logprobs, echo) is refused by name.
// Without max_tokens an answer has the scenario's mean length and ends with `stop`, else it has max_tokens and ends with `length`.
// Sources: OpenAI's API reference; vLLM 0.10, vllm/entrypoints/openai/protocol.py.
// Validated by tests/tools/emulate_test.py.

#include "tools/emulate/tokens.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace orrery::emulate {

/// Refused in OpenAI's form.
struct ApiError {
    int status;
    std::string message;
    std::string param = "";  ///< that it is about; empty: none
};
[[nodiscard]] std::string error_body(const ApiError& error);

struct Ask {
    bool chat = false;
    bool stream = false;
    bool usage = false;  ///< a last chunk with it
    std::optional<std::uint32_t> most;
    std::string user;
};

/// The body of a request. All calls throw ApiError where it is not as it should be.
class Body {
  public:
    explicit Body(const std::string& text);
    ~Body();
    Body(const Body&) = delete;
    Body& operator=(const Body&) = delete;
    /// Nothing: it names none.
    [[nodiscard]] std::optional<std::string> model() const;
    /// What both kinds of request have.
    [[nodiscard]] Ask ask(bool chat) const;
    /// Adds the prompt of either kind.
    void add_prompt(bool chat, Prompt& prompt) const;
    [[nodiscard]] bool has_messages() const;

  private:
    struct Parsed;
    std::unique_ptr<Parsed> parsed_;
};

/// The parts of an answer, whose number makes its id.
class Writer {
  public:
    Writer(const Ask& ask, const std::string& model, std::uint64_t number, std::int64_t created,
           std::uint64_t prompt_tokens);
    /// The first event of a stream; empty where there is none.
    [[nodiscard]] std::string opening() const;
    /// The event of tokens `from` to `to`; `finish`: with the last ones, why.
    [[nodiscard]] std::string event(std::uint32_t from, std::uint32_t to, const char* finish) const;
    /// What ends a stream after its last token.
    [[nodiscard]] std::string closing(std::uint32_t tokens) const;
    /// An answer that is not streamed.
    [[nodiscard]] std::string whole(std::uint32_t tokens, const char* finish) const;

  private:
    [[nodiscard]] std::string usage(std::uint32_t tokens) const;

    Ask ask_;
    std::string head_;  ///< id, creation and model
    std::uint64_t prompt_tokens_;
};

}  // namespace orrery::emulate
