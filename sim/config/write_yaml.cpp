#include "sim/config/write_yaml.hpp"

#include <algorithm>
#include <cctype>

namespace orrery::config {

namespace {

constexpr std::size_t kLine = 100;

std::string double_quoted(const std::string& text) {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (byte < 0x20 || byte == 0x7f) {
            out += "\\x";
            out += kHex[byte / 16];
            out += kHex[byte % 16];
        } else {
            out += c;
        }
    }
    return out + '"';
}

// Whether a text is the same without quotes wherever it stands, in braces too.
bool is_plain(const std::string& text) {
    if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.back() == ':') {
        return false;
    }
    const auto harmless = [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return std::isalnum(byte) != 0 || c == ' ' || c == '_' || c == '-' || c == '.' || c == '/' || c == '%' ||
               c == '+' || c == '(' || c == ')' || c == '=' || byte >= 0x80;
    };
    const bool starts = std::isalnum(static_cast<unsigned char>(text.front())) != 0 || text.front() == '/' ||
                        text.front() == '.' || text.front() == '_';
    const bool negative =
        text.size() > 1 && text.front() == '-' && std::isdigit(static_cast<unsigned char>(text[1])) != 0;
    return (starts || negative) && std::all_of(text.begin(), text.end(), harmless);
}

std::string yaml_word(const std::string& text, bool quoted) {
    return quoted || !is_plain(text) ? double_quoted(text) : text;
}

std::string in_braces(const YamlNode& node) {
    std::string out;
    switch (node.kind) {
        case YamlNode::Kind::null:
            return "null";
        case YamlNode::Kind::scalar:
            return yaml_word(node.scalar, node.quoted);
        case YamlNode::Kind::sequence:
            for (const YamlNode& item : node.items) {
                out += (out.empty() ? "" : ", ") + in_braces(item);
            }
            return "[" + out + "]";
        case YamlNode::Kind::map:
            for (const YamlNode::Entry& entry : node.entries) {
                out += (out.empty() ? "" : ", ") + yaml_word(entry.key, false) + ": " + in_braces(entry.value);
            }
            return "{" + out + "}";
    }
    return out;
}

void write_block(std::string& out, const YamlNode& node, std::size_t indent) {
    const std::string spaces(indent, ' ');
    for (const YamlNode::Entry& entry : node.entries) {
        const std::string key = spaces + yaml_word(entry.key, false) + ":";
        const YamlNode& value = entry.value;
        const std::string line = key + " " + in_braces(value);
        const bool opens = indent == 0 && value.kind == YamlNode::Kind::map && value.entries.size() > 1;
        if (value.kind == YamlNode::Kind::map && !value.entries.empty() && (opens || line.size() > kLine)) {
            out += key + "\n";
            write_block(out, value, indent + 2);
        } else if (value.kind == YamlNode::Kind::sequence && line.size() > kLine) {
            out += key + "\n";
            for (const YamlNode& item : value.items) {
                out += spaces + "  - " + in_braces(item) + "\n";
            }
        } else {
            out += line + "\n";
        }
    }
}

}  // namespace

std::string yaml_text(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map || node.entries.empty()) {
        return in_braces(node) + "\n";
    }
    std::string out;
    write_block(out, node, 0);
    return out;
}

}  // namespace orrery::config
