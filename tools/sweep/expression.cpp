#include "tools/sweep/expression.hpp"

#include "sim/base/math.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace orrery::sweep {

struct Expression::Node {
    std::string op;  ///< an operator, a function, "name" or "literal"
    ExpressionValue value;
    std::vector<std::shared_ptr<const Node>> operands;
};

namespace {

using Node = Expression::Node;
using NodePointer = std::shared_ptr<const Node>;

constexpr std::size_t kMaxLength = 4096;
constexpr int kMaxDepth = 64;

struct Function {
    const char* name;
    std::size_t arguments;
};
constexpr Function kFunctions[] = {{"min", 2},   {"max", 2},  {"floor", 1}, {"ceil", 1},
                                   {"round", 1}, {"log2", 1}, {"if", 3}};

// Recursive descent, weakest binding first.
class Parser {
  public:
    Parser(const std::string& text, const Mark& mark, std::vector<std::string>& names)
        : text_(text), mark_(mark), names_(names) {}

    NodePointer parse() {
        if (text_.size() > kMaxLength) {
            fail(fmt::format("is longer than {} characters", kMaxLength));
        }
        NodePointer node = either();
        skip_space();
        if (at_ < text_.size()) {
            fail(fmt::format("'{}' was not expected", text_.substr(at_, 10)));
        }
        return node;
    }

  private:
    [[noreturn]] void fail(const std::string& why) const {
        throw ConfigError(
            {mark_.error(fmt::format("expression '{}', character {}: {}",
                                     text_.size() > 80 ? text_.substr(0, 80) + "..." : text_, at_ + 1, why))});
    }

    void skip_space() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
            ++at_;
        }
    }

    static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

    bool take(const std::string& token) {
        skip_space();
        if (text_.compare(at_, token.size(), token) != 0) {
            return false;
        }
        const bool word = is_word(token[0]);
        if (word && at_ + token.size() < text_.size() && is_word(text_[at_ + token.size()])) {
            return false;
        }
        at_ += token.size();
        return true;
    }

    static NodePointer make(std::string op, std::vector<NodePointer> operands) {
        return std::make_shared<Node>(Node{std::move(op), 0.0, std::move(operands)});
    }

    NodePointer either() {
        if (++depth_ > kMaxDepth) {
            fail(fmt::format("nested deeper than {} levels", kMaxDepth));
        }
        NodePointer left = both();
        while (take("||") || take("or")) {
            left = make("or", {left, both()});
        }
        --depth_;
        return left;
    }

    NodePointer both() {
        NodePointer left = comparison();
        while (take("&&") || take("and")) {
            left = make("and", {left, comparison()});
        }
        return left;
    }

    NodePointer comparison() {
        NodePointer left = sum();
        for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
            if (take(op)) {
                return make(op, {left, sum()});
            }
        }
        return left;
    }

    NodePointer sum() {
        NodePointer left = product();
        for (;;) {
            if (take("+")) {
                left = make("+", {left, product()});
            } else if (take("-")) {
                left = make("-", {left, product()});
            } else {
                return left;
            }
        }
    }

    NodePointer product() {
        NodePointer left = unary();
        for (;;) {
            if (take("*")) {
                left = make("*", {left, unary()});
            } else if (take("/")) {
                left = make("/", {left, unary()});
            } else if (take("%")) {
                left = make("%", {left, unary()});
            } else {
                return left;
            }
        }
    }

    NodePointer unary() {
        if (++depth_ > kMaxDepth) {
            fail(fmt::format("nested deeper than {} levels", kMaxDepth));
        }
        NodePointer node;
        if (take("-")) {
            node = make("negate", {unary()});
        } else if (take("!=")) {
            fail("a value was expected");
        } else if (take("!") || take("not")) {
            node = make("not", {unary()});
        } else {
            node = primary();
        }
        --depth_;
        return node;
    }

    NodePointer primary() {
        skip_space();
        if (at_ >= text_.size()) {
            fail("a value was expected");
        }
        if (take("(")) {
            NodePointer inner = either();
            if (!take(")")) {
                fail("')' was expected");
            }
            return inner;
        }
        const char first = text_[at_];
        if (first == '\'' || first == '"') {
            const auto end = text_.find(first, at_ + 1);
            if (end == std::string::npos) {
                fail("this quote is never closed");
            }
            const std::string word = text_.substr(at_ + 1, end - at_ - 1);
            at_ = end + 1;
            return std::make_shared<Node>(Node{"literal", word, {}});
        }
        if (!is_word(first)) {
            fail(fmt::format("a value was expected, not '{}'", first));
        }
        return std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '.' ? number() : name();
    }

    NodePointer number() {
        const std::size_t start = at_;
        while (at_ < text_.size() && (is_word(text_[at_]) || ((text_[at_] == '+' || text_[at_] == '-') &&
                                                              (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))) {
            ++at_;
        }
        double value = 0;
        const std::string word = text_.substr(start, at_ - start);
        if (!parse_number(word, value)) {
            at_ = start;
            fail(fmt::format("'{}' is not a number", word));
        }
        return std::make_shared<Node>(Node{"literal", value, {}});
    }

    NodePointer name() {
        const std::size_t start = at_;
        while (at_ < text_.size() && is_word(text_[at_])) {
            ++at_;
        }
        const std::string word = text_.substr(start, at_ - start);
        if (take("(")) {
            for (const Function& function : kFunctions) {
                if (word == function.name) {
                    return call(function);
                }
            }
            at_ = start;
            fail(fmt::format("unknown function '{}'; there are min, max, floor, ceil, round, log2 and if", word));
        }
        if (word == "true" || word == "false") {
            return std::make_shared<Node>(Node{"literal", word == "true" ? 1.0 : 0.0, {}});
        }
        if (std::find(names_.begin(), names_.end(), word) == names_.end()) {
            names_.push_back(word);
        }
        return std::make_shared<Node>(Node{"name", word, {}});
    }

    NodePointer call(const Function& function) {
        std::vector<NodePointer> operands = {either()};
        while (take(",")) {
            operands.push_back(either());
        }
        if (!take(")")) {
            fail("')' was expected");
        }
        if (operands.size() != function.arguments) {
            fail(fmt::format("{} takes {} values, not {}", function.name, function.arguments, operands.size()));
        }
        return make(function.name, std::move(operands));
    }

    const std::string& text_;
    const Mark& mark_;
    std::vector<std::string>& names_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

class Evaluator {
  public:
    Evaluator(const Expression& expression, const Expression::Lookup& lookup)
        : expression_(expression), lookup_(lookup) {}

    [[nodiscard]] ExpressionValue value(const Node& node) const {
        if (node.op == "literal") {
            return node.value;
        }
        if (node.op == "name") {
            return lookup_(std::get<std::string>(node.value));
        }
        if (node.op == "if") {
            return value(*node.operands[number(*node.operands[0]) != 0 ? 1 : 2]);
        }
        if (node.op == "and" || node.op == "or") {
            const bool left = number(*node.operands[0]) != 0;
            return left == (node.op == "or") ? (left ? 1.0 : 0.0) : (number(*node.operands[1]) != 0 ? 1.0 : 0.0);
        }
        if (node.operands.size() == 1) {
            return unary(node.op, number(*node.operands[0]));
        }
        const ExpressionValue left = value(*node.operands[0]);
        const ExpressionValue right = value(*node.operands[1]);
        const bool texts = std::holds_alternative<std::string>(left) || std::holds_alternative<std::string>(right);
        if (texts && (node.op == "==" || node.op == "!=")) {
            return (text_of_value(left) == text_of_value(right)) == (node.op == "==") ? 1.0 : 0.0;
        }
        if (texts && node.op == "+") {
            return text_of_value(left) + text_of_value(right);
        }
        return binary(node.op, number(left), number(right));
    }

    [[nodiscard]] double number(const ExpressionValue& value) const {
        if (const double* number = std::get_if<double>(&value)) {
            return *number;
        }
        fail(fmt::format("'{}' is a text where a number is needed", std::get<std::string>(value)));
    }

  private:
    [[nodiscard]] double number(const Node& node) const { return number(value(node)); }

    [[noreturn]] void fail(const std::string& why) const {
        throw ConfigError({expression_.mark().error(fmt::format("expression '{}': {}", expression_.text(), why))});
    }

    [[nodiscard]] double unary(const std::string& op, double a) const {
        if (op == "negate") {
            return -a;
        }
        if (op == "not") {
            return a == 0 ? 1 : 0;
        }
        if (op == "log2") {
            if (a <= 0) {
                fail("log2 of a number that is not positive");
            }
            return log2_pinned(a);
        }
        return op == "floor" ? std::floor(a) : op == "ceil" ? std::ceil(a) : std::round(a);
    }

    [[nodiscard]] double binary(const std::string& op, double a, double b) const {
        if ((op == "/" || op == "%") && b == 0) {
            fail("division by zero");
        }
        if (op == "+" || op == "-") {
            return op == "+" ? a + b : a - b;
        }
        if (op == "*" || op == "/") {
            return op == "*" ? a * b : a / b;
        }
        if (op == "%") {
            return std::fmod(a, b);
        }
        if (op == "min" || op == "max") {
            return op == "min" ? std::min(a, b) : std::max(a, b);
        }
        const bool holds = op == "=="   ? a == b
                           : op == "!=" ? a != b
                           : op == "<=" ? a <= b
                           : op == ">=" ? a >= b
                           : op == "<"  ? a < b
                                        : a > b;
        return holds ? 1 : 0;
    }

    const Expression& expression_;
    const Expression::Lookup& lookup_;
};

}  // namespace

ExpressionValue value_of_text(const std::string& text) {
    double number = 0;
    if (parse_number(text, number)) {
        return number;
    }
    if (text == "true" || text == "false") {
        return text == "true" ? 1.0 : 0.0;
    }
    // Words are no quantities: all that parse_quantity would say of their units need not be put together.
    if (text.empty() || std::string_view("0123456789+-.").find(text.front()) == std::string_view::npos) {
        return text;
    }
    std::string problem;
    for (const Dimension dimension : {Dimension::time, Dimension::bytes, Dimension::rate, Dimension::flops,
                                      Dimension::frequency, Dimension::power, Dimension::fraction}) {
        if (parse_quantity(text, dimension, number, problem)) {
            return number;
        }
    }
    return text;
}

std::string text_of_value(const ExpressionValue& value) {
    if (const std::string* text = std::get_if<std::string>(&value)) {
        return *text;
    }
    const double number = std::get<double>(value);
    return number == std::floor(number) && std::abs(number) < 1e15 ? fmt::format("{:.0f}", number + 0.0)
                                                                   : fmt::format("{}", number);
}

Expression::Expression(const std::string& text, Mark mark) : text_(text), mark_(std::move(mark)) {
    root_ = Parser(text_, mark_, names_).parse();
}

ExpressionValue Expression::evaluate(const Lookup& lookup) const {
    return Evaluator(*this, lookup).value(*root_);
}

bool Expression::is_true(const Lookup& lookup) const {
    const Evaluator evaluator(*this, lookup);
    return evaluator.number(evaluator.value(*root_)) != 0;
}

}  // namespace orrery::sweep
