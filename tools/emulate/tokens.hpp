#pragma once
// Tokens of an emulated model, whose vocabulary nobody has.
//
// The rule: text counts a token for every 4 bytes, the last one of a piece for fewer; ids count as they are. A message of a chat is a
// piece of its own between two tokens that mark it, and one more opens the answer. Answers are words of 4 bytes, so that an answer which
// comes back in the next prompt counts, and is found in a prefix cache, as the tokens that were given.
// Limits: an English token of today's vocabularies has 4 to 5 bytes, code and other languages fewer.
// Validated by tests/tools/emulate_test.cpp.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::emulate {

class Prompt {
  public:
    /// `block`: tokens of a block of the prefix cache; 0: there is none, and tokens are only counted. Prompts for different
    /// adapters have nothing in common.
    explicit Prompt(std::uint32_t block, std::uint32_t adapter = 0);
    void add_text(std::string_view text);
    void add_id(std::uint64_t id);
    void open_message(std::string_view role);
    void close_message();
    /// The answer that is given, which later prompts may contain: names its blocks too, and is not counted.
    void add_answer(std::uint32_t tokens);
    [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
    /// Of each whole block; equal ones have equal tokens, and all before them.
    [[nodiscard]] const std::vector<std::uint64_t>& keys() const { return keys_; }

  private:
    void add(std::uint64_t token);
    void name(std::uint64_t token);

    std::uint32_t block_;
    std::uint64_t chain_;
    std::uint64_t named_ = 0;
    std::uint64_t tokens_ = 0;
    std::vector<std::uint64_t> keys_;
};

/// The text of an answer from its token `from` on, up to token `to`.
[[nodiscard]] std::string answer_text(std::uint32_t from, std::uint32_t to);

}  // namespace orrery::emulate
