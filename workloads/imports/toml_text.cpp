#include "workloads/imports/toml_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace orrery::imports {

namespace {

class TomlParser {
  public:
    TomlParser(const std::string& text, const std::string& name)
        : text_(text), file_(std::make_shared<const std::string>(name)) {}

    YamlNode parse() {
        YamlNode root = map_here();
        YamlNode* table = &root;
        i_ = text_.rfind("\xEF\xBB\xBF", 0) == 0 ? 3 : 0;
        for (skip_lines(); i_ < text_.size(); skip_lines()) {
            if (text_[i_] == '[') {
                table = header(root);
            } else {
                assignment(*table);
            }
            skip_spaces();
            if (i_ < text_.size() && text_[i_] != '\n' && text_[i_] != '#' && text_[i_] != '\r') {
                fail("the end of the line");
            }
        }
        return root;
    }

  private:
    [[noreturn]] void fail(const std::string& expected) const {
        const std::size_t end = std::min({text_.find('\n', i_), i_ + 20, text_.size()});
        const std::string found = i_ >= text_.size() || end == i_
                                      ? "the end of the " + std::string(i_ < text_.size() ? "line" : "file")
                                      : "'" + printable(text_.substr(i_, end - i_), 40) + "'";
        throw ConfigError({diagnostic_at(*file_, text_, std::min(i_, text_.size()),
                                         fmt::format("is no TOML: expected {}, and found {}", expected, found))});
    }

    // Lines are counted on the way: marks come in the order of the text.
    Mark mark() {
        for (; marked_ < i_; ++marked_) {
            if (text_[marked_] == '\n') {
                ++line_;
                line_start_ = marked_ + 1;
            }
        }
        ORRERY_ASSERT(line_start_ <= i_ && i_ <= text_.size());
        return {file_, line_, static_cast<int>(i_ - line_start_) + 1};
    }
    YamlNode map_here() {
        YamlNode node;
        node.kind = YamlNode::Kind::map;
        node.mark = mark();
        return node;
    }

    [[nodiscard]] char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
    void skip_spaces() {
        while (at(i_) == ' ' || at(i_) == '\t') {
            ++i_;
        }
    }
    // Blanks, ends of lines and comments.
    void skip_lines() {
        while (i_ < text_.size()) {
            if (text_[i_] == '#') {
                i_ = std::min(text_.find('\n', i_), text_.size());
            } else if (std::isspace(static_cast<unsigned char>(text_[i_])) != 0) {
                ++i_;
            } else {
                return;
            }
        }
    }

    std::string key_part() {
        skip_spaces();
        if (at(i_) == '"' || at(i_) == '\'') {
            return quoted();
        }
        const std::size_t start = i_;
        while (std::isalnum(static_cast<unsigned char>(at(i_))) != 0 || at(i_) == '_' || at(i_) == '-') {
            ++i_;
        }
        if (i_ == start) {
            fail("a key");
        }
        return text_.substr(start, i_ - start);
    }

    // The map under a key, made where it is not there; the last one of a list of tables.
    YamlNode& child(YamlNode& parent, const std::string& key, const Mark& where) {
        YamlNode* found = parent.find(key);
        if (found == nullptr) {
            parent.entries.push_back({key, where, map_here()});
            return parent.entries.back().value;
        }
        if (found->kind == YamlNode::Kind::sequence && !found->items.empty()) {
            found = &found->items.back();
        }
        if (found->kind != YamlNode::Kind::map) {
            throw ConfigError(
                {where.error(fmt::format("'{}' is a value already, and no table", key), ErrorCode::malformed_trace)});
        }
        return *found;
    }

    YamlNode* header(YamlNode& root) {
        const bool list = at(i_ + 1) == '[';
        i_ += list ? 2 : 1;
        YamlNode* table = &root;
        for (int depth = 0;; ++depth) {
            const Mark where = mark();
            const std::string key = key_part();
            skip_spaces();
            const bool last = at(i_) == ']';
            if (!last && at(i_) != '.') {
                fail("']'");
            }
            if (depth >= kDeepest) {
                fail(fmt::format("at most {} levels", kDeepest));
            }
            if (last && list) {
                YamlNode* all = table->find(key);
                if (all == nullptr) {
                    YamlNode node = map_here();
                    node.kind = YamlNode::Kind::sequence;
                    table->entries.push_back({key, where, node});
                    all = &table->entries.back().value;
                }
                if (all->kind != YamlNode::Kind::sequence) {
                    throw ConfigError(
                        {where.error(fmt::format("'{}' is no list of tables", key), ErrorCode::malformed_trace)});
                }
                all->items.push_back(map_here());
                table = &all->items.back();
            } else {
                table = &child(*table, key, where);
            }
            ++i_;
            if (last) {
                break;
            }
        }
        if (list && at(i_++) != ']') {
            --i_;
            fail("']]'");
        }
        return table;
    }

    void assignment(YamlNode& table, int depth = 0) {
        YamlNode* parent = &table;
        for (int part = 0;; ++part) {
            const Mark where = mark();
            const std::string key = key_part();
            skip_spaces();
            if (at(i_) == '.' && part < kDeepest) {
                ++i_;
                parent = &child(*parent, key, where);
                continue;
            }
            if (at(i_) != '=') {
                fail("'='");
            }
            ++i_;
            if (parent->find(key) != nullptr) {
                throw ConfigError({where.error(fmt::format("'{}' comes twice", key), ErrorCode::duplicate_key)});
            }
            skip_spaces();
            parent->entries.push_back({key, where, value(depth)});
            return;
        }
    }

    YamlNode value(int depth) {
        if (depth > kDeepest) {
            fail(fmt::format("at most {} levels", kDeepest));
        }
        YamlNode node;
        node.mark = mark();
        if (at(i_) == '"' || at(i_) == '\'') {
            node.kind = YamlNode::Kind::scalar;
            node.quoted = true;
            node.scalar = quoted();
        } else if (at(i_) == '[') {
            node.kind = YamlNode::Kind::sequence;
            ++i_;
            for (skip_lines(); at(i_) != ']'; skip_lines()) {
                if (i_ >= text_.size()) {
                    fail("']'");
                }
                node.items.push_back(value(depth + 1));
                skip_lines();
                if (at(i_) == ',') {
                    ++i_;
                } else if (at(i_) != ']') {
                    fail("',' or ']'");
                }
            }
            ++i_;
        } else if (at(i_) == '{') {
            node.kind = YamlNode::Kind::map;
            ++i_;
            for (skip_spaces(); at(i_) != '}'; skip_spaces()) {
                assignment(node, depth + 1);
                skip_spaces();
                if (at(i_) == ',') {
                    ++i_;
                } else if (at(i_) != '}') {
                    fail("',' or '}'");
                }
            }
            ++i_;
        } else {
            const std::size_t end = std::min(text_.find_first_of(",]}#\r\n", i_), text_.size());
            node.kind = YamlNode::Kind::scalar;
            node.scalar = text_.substr(i_, end - i_);
            node.scalar.erase(node.scalar.find_last_not_of(" \t") + 1);
            const bool number =
                !node.scalar.empty() &&
                node.scalar.find_first_not_of("0123456789+-._:eExXoObBaAcCdDfFinTZ ") == std::string::npos;
            if (!number && node.scalar != "true" && node.scalar != "false") {
                fail("a value: a string in quotes, a number, true or false, a list or a table");
            }
            node.scalar.erase(std::remove(node.scalar.begin(), node.scalar.end(), '_'), node.scalar.end());
            i_ = end;
        }
        return node;
    }

    std::string quoted() {
        const char quote = text_[i_];
        const bool block = at(i_ + 1) == quote && at(i_ + 2) == quote;
        i_ += block ? 3 : 1;
        i_ += block && at(i_) == '\n' ? 1 : 0;
        std::string out;
        for (; i_ < text_.size(); ++i_) {
            const char c = text_[i_];
            if (c == quote && (!block || (at(i_ + 1) == quote && at(i_ + 2) == quote))) {
                i_ += block ? 3 : 1;
                return out;
            }
            if (c == '\n' && !block) {
                break;
            }
            if (c == '\\' && quote == '"' && i_ + 1 < text_.size()) {
                const char escaped = text_[++i_];
                out += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
            } else {
                out += c;
            }
        }
        fail(fmt::format("{} at the end of a string", block ? std::string(3, quote) : std::string(1, quote)));
    }

    static constexpr int kDeepest = 64;
    const std::string& text_;
    std::shared_ptr<const std::string> file_;
    std::size_t i_ = 0;
    std::size_t marked_ = 0;
    std::size_t line_start_ = 0;
    int line_ = 1;
};

}  // namespace

YamlNode parse_toml(const std::string& text, const std::string& name) {
    return TomlParser(text, name).parse();
}

}  // namespace orrery::imports
