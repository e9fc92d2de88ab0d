// Attention through a window that keeps the first tokens of a sequence in view as well (Xiao et al., "Efficient Streaming Language
// Models with Attention Sinks", ICLR 2024, arXiv:2309.17453).

#include "workloads/model/attention/standard.hpp"

namespace orrery::model {

namespace {

class SinkAttention final : public StandardAttention {
  public:
    struct Parameters {
        std::int64_t tokens = 4;
        void describe(Fields& fields) {
            fields.integer(
                {"tokens",
                 "attention sinks: first tokens of a sequence that every token attends to in addition to its window",
                 false, 1, 1'000'000},
                tokens);
        }
    };
    explicit SinkAttention(const Parameters& parameters) : tokens_(static_cast<double>(parameters.tokens)) {}

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        Attention out = attention(at, shape);
        out.window += out.window > 0 ? tokens_ : 0;
        return out;
    }
    [[nodiscard]] std::string problem(const ModelSpec& model) const override {
        return model.window > 0 ? "" : "attention: sinks has no effect without a window";
    }

  private:
    double tokens_;
};

}  // namespace

extern const PolicyRow<AttentionForm> kSinkAttention;
const PolicyRow<AttentionForm> kSinkAttention =
    policy_row<AttentionForm, SinkAttention>("sinks", "the window and the first tokens of the sequence");

}  // namespace orrery::model
