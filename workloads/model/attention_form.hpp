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
    /// Values of a token that a layer leaves in the cache.
    [[nodiscard]] virtual double cached(const ModelSpec& model, LayerKind kind) const = 0;
    /// B of them, with what an indexer keeps of the token.
    [[nodiscard]] virtual double cached_bytes(const ModelSpec& model, LayerKind kind, Precision cache) const {
        return cached(model, kind) * bytes_of(cache) + indexed_bytes(model, kind);
    }
    /// B that a sequence has in a layer however long it is, on each of so many ranks. Linear attention: LinearSpec::state_bytes().
    [[nodiscard]] virtual double sequence_bytes(const ModelSpec&, LayerKind, Precision, double) const { return 0; }
    /// Whether layers that model.full_every leaves to the window have other products than the rest.
    [[nodiscard]] virtual bool by_kind() const { return false; }
    /// What layers of a kind are called.
    [[nodiscard]] virtual const char* kind_name(LayerKind) const { return nullptr; }
    /// What the form contradicts in a model; empty: nothing.
    [[nodiscard]] virtual std::string problem(const ModelSpec&) const { return {}; }
};

/// The form of a layer's attention, or of its scan.
[[nodiscard]] const AttentionForm& attention_form(const ModelSpec& model, LayerKind kind);

/// Layers of the second kind of a model that has two which mix tokens by other products: those that full_every leaves to linear attention or
/// to a form that tells kinds apart, or state-space layers of a pattern; 0: there is one kind.
[[nodiscard]] std::int64_t other_layers(const ModelSpec& model);
/// A layer's kind, with or without experts, as one of these or as one of the first.
[[nodiscard]] LayerKind mixing_kind(const ModelSpec& model, bool experts, bool other);

/// Products of attention over a whole sequence, as a share of those of standard attention through the same window.
[[nodiscard]] double computed_share(const ModelSpec& model, LayerKind kind);

/// A product of `rows`, whose weights this device has.
[[nodiscard]] inline LayerOperation product_of(const char* name, LayerRole role, double rows, double in, double out) {
    LayerOperation one{name, role, rows, in, out, 1, in * out};
    one.kept = role == LayerRole::input ? out : 0;
    return one;
}

}  // namespace orrery::model
