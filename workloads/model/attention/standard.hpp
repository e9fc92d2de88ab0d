#pragma once
// Attention with keys and values of heads, which other forms change in what they read.

#include "workloads/model/attention_form.hpp"

namespace orrery::model {

class StandardAttention : public AttentionForm {
  public:
    using Parameters = NoParameters;
    explicit StandardAttention(const Parameters& = {}) {}
    [[nodiscard]] LayerOperations before(const LayerContext& at) const override;
    [[nodiscard]] LayerOperations after(const LayerContext& at) const override;
    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        return attention(at, shape);
    }
    [[nodiscard]] double cached(const ModelSpec& model, LayerKind) const override { return 2 * model.kv_width(); }

  protected:
    [[nodiscard]] static Attention attention(const LayerContext& at, const CoreShape& shape);
};

}  // namespace orrery::model
