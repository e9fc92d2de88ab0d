#include "workloads/imports/shell_arithmetic.hpp"

#include "workloads/imports/shell_lexer.hpp"

#include <algorithm>

namespace orrery::imports {

namespace {

constexpr int kDeepest = 64;      // parentheses and variables inside each other
constexpr int kMostTerms = 4096;  // of one expression, with those of its variables

class Arithmetic {
  public:
    using Lookup = std::function<const std::string*(const std::string&)>;
    Arithmetic(const std::string& text, const Lookup& lookup, int& left) : text_(text), lookup_(lookup), left_(left) {}

    std::optional<std::int64_t> value(int depth) {
        const std::optional<std::int64_t> out = choice(depth);
        skip();
        return i_ == text_.size() ? out : std::nullopt;
    }

  private:
    // `a > b ? c : d`, and comparisons alone.
    std::optional<std::int64_t> choice(int depth) {
        const std::optional<std::int64_t> condition = comparison(depth);
        skip();
        if (!condition || i_ >= text_.size() || text_[i_] != '?') {
            return condition;
        }
        ++i_;
        const std::optional<std::int64_t> yes = sum(depth + 1);
        skip();
        if (i_ >= text_.size() || text_[i_] != ':') {
            return std::nullopt;
        }
        ++i_;
        const std::optional<std::int64_t> no = sum(depth + 1);
        return *condition != 0 ? yes : no;
    }
    std::optional<std::int64_t> comparison(int depth) {
        const std::optional<std::int64_t> left = sum(depth);
        skip();
        const std::string two = text_.substr(std::min(i_, text_.size()), 2);
        const bool with_equals = two == "<=" || two == ">=" || two == "==" || two == "!=";
        if (!left || (!with_equals && two.substr(0, 1) != "<" && two.substr(0, 1) != ">")) {
            return left;
        }
        i_ += with_equals ? 2 : 1;
        const std::optional<std::int64_t> right = sum(depth);
        if (!right) {
            return std::nullopt;
        }
        return two == "<="     ? *left <= *right
               : two == ">="   ? *left >= *right
               : two == "=="   ? *left == *right
               : two == "!="   ? *left != *right
               : two[0] == '<' ? *left < *right
                               : *left > *right;
    }
    void skip() {
        while (i_ < text_.size() && is_shell_space(text_[i_])) {
            ++i_;
        }
    }
    std::optional<std::int64_t> sum(int depth) {
        std::optional<std::int64_t> left = product(depth);
        for (skip(); left && i_ < text_.size() && (text_[i_] == '+' || text_[i_] == '-'); skip()) {
            const char sign = text_[i_++];
            const std::optional<std::int64_t> right = product(depth);
            std::int64_t out = 0;
            if (!right || (sign == '+' ? __builtin_add_overflow(*left, *right, &out)
                                       : __builtin_sub_overflow(*left, *right, &out))) {
                return std::nullopt;
            }
            left = out;
        }
        return left;
    }
    std::optional<std::int64_t> product(int depth) {
        std::optional<std::int64_t> left = factor(depth);
        for (skip(); left && i_ < text_.size() && (text_[i_] == '*' || text_[i_] == '/' || text_[i_] == '%'); skip()) {
            const char sign = text_[i_++];
            const std::optional<std::int64_t> right = factor(depth);
            std::int64_t out = 0;
            if (!right || (sign != '*' && (*right == 0 || *right == -1)) ||
                (sign == '*' && __builtin_mul_overflow(*left, *right, &out))) {
                return std::nullopt;
            }
            left = sign == '*' ? out : sign == '/' ? *left / *right : *left % *right;
        }
        return left;
    }
    std::optional<std::int64_t> factor(int depth) {
        skip();
        if (i_ >= text_.size() || depth > kDeepest || --left_ < 0) {
            return std::nullopt;
        }
        if (text_[i_] == '-' || text_[i_] == '+') {
            const bool minus = text_[i_++] == '-';
            const std::optional<std::int64_t> value = factor(depth + 1);
            return value && minus && *value != INT64_MIN ? std::optional(-*value) : value;
        }
        if (text_[i_] == '(') {
            ++i_;
            const std::optional<std::int64_t> value = choice(depth + 1);
            skip();
            if (i_ >= text_.size() || text_[i_] != ')') {
                return std::nullopt;
            }
            ++i_;
            return value;
        }
        const std::size_t start = i_;
        while (i_ < text_.size() && is_shell_name(text_[i_])) {
            ++i_;
        }
        const std::string word = text_.substr(start, i_ - start);
        if (word.empty() || word.size() > 18) {
            return std::nullopt;
        }
        if (std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
            return std::stoll(word);
        }
        const std::string* variable = lookup_(word);
        return variable == nullptr ? std::nullopt : Arithmetic(*variable, lookup_, left_).value(depth + 1);
    }

    const std::string& text_;
    const Lookup& lookup_;
    int& left_;  ///< terms that may still come
    std::size_t i_ = 0;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(const std::string& text,
                                             const std::function<const std::string*(const std::string&)>& lookup) {
    int left = kMostTerms;
    return Arithmetic(text, lookup, left).value(0);
}

}  // namespace orrery::imports
