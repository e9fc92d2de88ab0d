#include "tools/emulate/tokens.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

#include <array>

namespace orrery::emulate {

namespace {

constexpr std::size_t kBytes = 4;  // of a token of text
// Apart from each other and from what four bytes can be.
constexpr std::uint64_t kIds = 1ULL << 40U;
constexpr std::uint64_t kMarks = 1ULL << 41U;
constexpr std::uint64_t kKeyBits = (1ULL << 62U) - 1;  // the rest is the source's of a content (requests/request.cpp)

constexpr std::array<std::string_view, 16> kWords = {" the", " sky", " was", " dim", " and", " far", " off", " you",
                                                     " saw", " one", " orb", " arc", " its", " way", " too", " low"};

std::uint64_t token_of(std::string_view piece) {
    std::uint64_t out = piece.size();
    for (const char one : piece) {
        out = (out << 8U) | static_cast<unsigned char>(one);
    }
    return out;
}

}  // namespace

Prompt::Prompt(std::uint32_t block, std::uint32_t adapter) : block_(block), chain_(mix64(adapter)) {}

void Prompt::name(std::uint64_t token) {
    chain_ = mix64(chain_ ^ mix64(token));
    if (++named_ % block_ == 0) {
        keys_.push_back(chain_ & kKeyBits);
        ORRERY_ASSERT(keys_.size() == named_ / block_);
    }
}

void Prompt::add(std::uint64_t token) {
    ++tokens_;
    if (block_ > 0) {
        name(token);
    }
}

void Prompt::add_text(std::string_view text) {
    if (block_ == 0) {
        tokens_ += (text.size() + kBytes - 1) / kBytes;
        return;
    }
    for (std::size_t at = 0; at < text.size(); at += kBytes) {
        add(token_of(text.substr(at, kBytes)));
    }
}

void Prompt::add_id(std::uint64_t id) {
    add(kIds + id);
}

void Prompt::open_message(std::string_view role) {
    add(kMarks + (hash64(role) >> 32U));
}

void Prompt::close_message() {
    add(kMarks);
}

void Prompt::add_answer(std::uint32_t tokens) {
    for (std::uint32_t i = 0; i < tokens && block_ > 0; ++i) {
        name(token_of(kWords[i % kWords.size()]));
    }
}

std::string answer_text(std::uint32_t from, std::uint32_t to) {
    std::string out;
    out.reserve((to - from) * kBytes);
    for (std::uint32_t i = from; i < to; ++i) {
        out += kWords[i % kWords.size()];
    }
    return out;
}

}  // namespace orrery::emulate
