#include "sim/base/text.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace orrery::base {

namespace {

// Bytes of the UTF-8 character at the start of `text` and its code; 0 where there is none.
std::size_t character(std::string_view text, std::uint32_t& code) {
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t size = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
    if (size == 0 || size > text.size()) {
        return 0;
    }
    code = size == 1 ? first : first & (0x7FU >> size);
    for (std::size_t i = 1; i < size; ++i) {
        const auto next = static_cast<unsigned char>(text[i]);
        if ((next & 0xC0U) != 0x80U) {
            return 0;
        }
        code = code << 6U | (next & 0x3FU);
    }
    return size;
}

// What a terminal would act on: control characters (ISO 6429, C0 and C1) and Unicode's marks of direction.
bool acts(std::uint32_t code) {
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

void append_escaped(std::string& out, const char* format, unsigned value) {
    std::array<char, 16> buffer{};
    (void)std::snprintf(buffer.data(), buffer.size(), format, value);
    out += buffer.data();
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
    if (text.size() > most) {
        const std::size_t tail = most / 4;
        const std::string left_out = " ... (" + std::to_string(text.size()) + " bytes in all) ... ";
        return printable(text.substr(0, most - tail), most) + left_out +
               printable(text.substr(text.size() - tail), most);
    }
    std::string out;
    while (!text.empty()) {
        std::uint32_t code = 0;
        const std::size_t size = character(text, code);
        if (size == 0) {
            append_escaped(out, "\\x%02x", static_cast<unsigned char>(text[0]));
        } else if (code == '\n' || code == '\t' || code == '\r') {
            out += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
        } else if (acts(code)) {
            append_escaped(out, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
        } else {
            out += text.substr(0, size);
        }
        text.remove_prefix(std::max<std::size_t>(size, 1));
    }
    return out;
}

}  // namespace orrery::base
