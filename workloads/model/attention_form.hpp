#pragma once
// The interface of forms of attention (attention/): what a layer multiplies, how it attends, what it leaves in the cache. One form per
// file, one row each.
//
// Layers with latent attention, linear attention and state-space layers have the forms that their own sections describe; of all others the
// model's 'attention' names the form.

#include "sim/config/policy.hpp"
#include "workloads/model/layer_program.hpp"

#include <string>

namespace orrery::model {

class AttentionForm {
  public:
    virtual ~AttentionForm() = default;
    [[nodiscard]] virtual LayerOperations before(const LayerContext& at) const = 0;
    [[nodiscard]] virtual LayerOperations after(const LayerContext& at) const = 0;
    /// Kernels that go before the core and see the same.
    [[nodiscard]] virtual LayerOperations beside(const LayerContext&, const CoreShape&) const { return {}; }
    [[nodiscard]] virtual const char* name() const { return "attention"; }
    [[nodiscard]] virtual Operation core(const LayerContext& at, const CoreShape& shape) const = 0;
    [[nodiscard]] virtual double cached(const ModelSpec& model) const = 0;
    /// What the form contradicts in a model; empty: nothing.
    [[nodiscard]] virtual std::string problem(const ModelSpec&) const { return {}; }
};

/// The form of a layer's attention, or of its scan.
[[nodiscard]] const AttentionForm& attention_form(const ModelSpec& model, LayerKind kind);

/// Products of attention over a whole sequence, as a share of those of standard attention through the same window.
[[nodiscard]] double computed_share(const ModelSpec& model, LayerKind kind);

/// A product of `rows`, whose weights this device has.
[[nodiscard]] inline LayerOperation product_of(const char* name, LayerRole role, double rows, double in, double out) {
    LayerOperation one{name, role, rows, in, out, 1, in * out};
    one.kept = role == LayerRole::input ? out : 0;
    return one;
}

}  // namespace orrery::model
