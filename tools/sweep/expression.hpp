#pragma once
// Small, safe expressions over the parameters of a point: arithmetic, comparisons, and, or, not.
//
// Used by `derive` and `where` of sweep files and by `orrery table --where`. There are no loops, no assignments and no
// calls beyond min, max, floor, ceil, round, log2 and if, so every expression ends. Names may hold dots
// ("plan.tensor"). A quantity with a unit counts in base units (s, B, B/s).

#include "sim/config/yaml_tree.hpp"

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace orrery::sweep {

/// A number (comparisons give 0 or 1) or a text.
using ExpressionValue = std::variant<double, std::string>;

/// What a text stands for: a number, a quantity in base units, true/false as 1/0, else itself.
[[nodiscard]] ExpressionValue value_of_text(const std::string& text);
/// A number as shortest text that reads back exactly (whole numbers without a point), a text as it is.
[[nodiscard]] std::string text_of_value(const ExpressionValue& value);

class Expression {
  public:
    struct Node;
    /// Looks up a name; throws ConfigError for names it does not know.
    using Lookup = std::function<ExpressionValue(const std::string& name)>;

    /// Parses. Throws ConfigError at `mark` that names the place in the text and what was expected.
    Expression(const std::string& text, Mark mark);
    /// Throws ConfigError at the expression's mark: a text where a number is needed, division by zero, an unknown name.
    [[nodiscard]] ExpressionValue evaluate(const Lookup& lookup) const;
    [[nodiscard]] bool is_true(const Lookup& lookup) const;
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] const Mark& mark() const { return mark_; }

  private:
    std::string text_;
    Mark mark_;
    std::shared_ptr<const Node> root_;
    std::vector<std::string> names_;
};

}  // namespace orrery::sweep
