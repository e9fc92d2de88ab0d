#pragma once
// Policies: one file and one row each.
//
// A policy (a scheduler, a router, ...) owns its parameters: a struct with a `describe` that names them, beside the code
// that uses them. Its row goes into an explicit table; names, reading, writing, schema and `orrery list` come from there, and
// nobody else lists policies. Parameters of a policy that was not chosen are unknown keys.

#include "sim/config/fields.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orrery::config {

/// Parameters of one policy, and what they make.
template <class Base>
class PolicyParameters {
  public:
    virtual ~PolicyParameters() = default;
    [[nodiscard]] virtual std::unique_ptr<PolicyParameters> clone() const = 0;
    virtual void describe(Fields& fields) = 0;
    [[nodiscard]] virtual std::unique_ptr<Base> make() const = 0;
    /// The parameter that is the path of a file; null: none is.
    [[nodiscard]] virtual std::string* file() { return nullptr; }
};

template <class Base>
struct PolicyRow {
    const char* name;
    const char* description;
    std::unique_ptr<PolicyParameters<Base>> (*defaults)();
};

/// For policies without parameters.
struct NoParameters {
    void describe(Fields&) {}
};

/// The row of policy P, which is made from a P::Parameters.
template <class Base, class P>
[[nodiscard]] constexpr PolicyRow<Base> policy_row(const char* name, const char* description) {
    class Erased final : public PolicyParameters<Base> {
      public:
        [[nodiscard]] std::unique_ptr<PolicyParameters<Base>> clone() const override {
            return std::make_unique<Erased>(*this);
        }
        void describe(Fields& fields) override { own_.describe(fields); }
        [[nodiscard]] std::unique_ptr<Base> make() const override { return std::make_unique<P>(own_); }
        [[nodiscard]] std::string* file() override {
            if constexpr (requires { own_.file(); }) {
                return own_.file();
            } else {
                return nullptr;
            }
        }

      private:
        typename P::Parameters own_;
    };
    return {name, description, []() -> std::unique_ptr<PolicyParameters<Base>> { return std::make_unique<Erased>(); }};
}

template <class Base>
using PolicyTable = std::vector<const PolicyRow<Base>*>;

template <class Base>
[[nodiscard]] std::vector<std::string> names_of(const PolicyTable<Base>& table) {
    std::vector<std::string> names;
    for (const PolicyRow<Base>* row : table) {
        names.emplace_back(row->name);
    }
    return names;
}

/// A policy as a scenario chooses it. A value: can be copied and changed.
template <class Base>
class PolicyChoice {
  public:
    /// `table` lasts as long as the program. Precondition: it has `name`.
    PolicyChoice(const PolicyTable<Base>& table, const std::string& name) : table_(&table) { choose(name); }
    PolicyChoice(const PolicyChoice& other)
        : table_(other.table_), index_(other.index_), parameters_(other.parameters_->clone()) {}
    PolicyChoice(PolicyChoice&&) noexcept = default;
    PolicyChoice& operator=(const PolicyChoice& other) { return *this = PolicyChoice(other); }
    PolicyChoice& operator=(PolicyChoice&&) noexcept = default;

    [[nodiscard]] std::string name() const { return (*table_)[index_]->name; }
    /// Takes the policy of this name with its defaults. Precondition: the table has it.
    void choose(const std::string& name) {
        const auto row =
            std::find_if(table_->begin(), table_->end(), [&](const auto* one) { return one->name == name; });
        ORRERY_ASSERT(row != table_->end());
        index_ = static_cast<std::size_t>(row - table_->begin());
        parameters_ = (*row)->defaults();
    }
    /// Names the choice itself.
    void describe_choice(Fields& fields, const Field& field) {
        std::size_t index = index_;
        fields.choice(field, names_of(*table_), index);
        if (index != index_) {
            choose((*table_)[index]->name);
        }
    }
    /// Names the choice as a word, or as a map of `kind` and what `describe` names.
    void describe_variant(Fields& fields, const Field& field, const std::function<void(Fields&)>& describe) {
        std::size_t index = index_;
        bool parameters = true;
        const auto take = [&] {
            if (index != index_) {
                choose((*table_)[index]->name);
            }
        };
        fields.variant(field, names_of(*table_), index, parameters, [&](Fields& inner) {
            take();
            describe(inner);
        });
        take();
    }
    /// Names the parameters of the policy chosen; of all for a schema.
    void describe_parameters(Fields& fields) {
        if (!fields.names_all()) {
            fields.defaults([&](Fields& same) { (*table_)[index_]->defaults()->describe(same); });
            parameters_->describe(fields);
            return;
        }
        for (const PolicyRow<Base>* row : *table_) {
            const auto parameters = row->defaults();
            fields.alternative(row->name, row->description, [&](Fields& inner) { parameters->describe(inner); });
        }
    }
    /// Names both: a plain word, or a map with `kind` and parameters.
    void describe(Fields& fields, const Field& field) {
        describe_variant(fields, field, [&](Fields& inner) { describe_parameters(inner); });
    }
    [[nodiscard]] std::unique_ptr<Base> make() const { return parameters_->make(); }
    /// The parameter that is the path of a file; null: none is.
    [[nodiscard]] std::string* file() { return parameters_->file(); }

  private:
    const PolicyTable<Base>* table_;
    std::size_t index_ = 0;
    std::unique_ptr<PolicyParameters<Base>> parameters_;
};

}  // namespace orrery::config
