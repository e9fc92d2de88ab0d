// Attention to some of the blocks before a token, as many as a density says.
//
// Claims: a decoding step reads that share of its keys, in whole blocks. The queries of a prompt or of training compute that share
// of what causal attention would and, in the mean, half a block more, as fast as a kernel does that computes as much through a
// window. Limit: choosing the blocks takes no time.

#include "workloads/model/attention/standard.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::model {

namespace {

// The window through which `queries`, the last of `keys` tokens, see as much as of blocks of this size.
double equal_window(double queries, double keys, double density, double block) {
    const double before = keys - queries;
    const double all = (keys * keys - before * before) / 2;
    const double seen = std::min(all, density * all + queries * block / 2);
    if (seen <= queries * before) {
        return seen / queries;  // all of them see a whole window
    }
    return keys - std::sqrt(std::max(0.0, keys * keys - 2 * seen - before * before));
}

class BlockSparseAttention final : public StandardAttention {
  public:
    struct Parameters {
        double density = 0.25;
        std::int64_t block = 64;
        void describe(Fields& fields) {
            fields.number({"density", "share of the keys before a token that it attends to", false, 1e-6, 1}, density);
            fields.integer({"block", "tokens of a block of keys", false, 1, 1'000'000}, block);
        }
    };
    explicit BlockSparseAttention(const Parameters& parameters)
        : density_(parameters.density), block_(static_cast<double>(parameters.block)) {}

    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        Attention out = attention(at, shape);
        if (out.queries <= 1) {
            out.keys = std::min(out.keys, block_ * std::ceil(density_ * out.keys / block_));
        } else if (density_ < 1) {
            out.window = std::min(out.keys, equal_window(out.queries, out.keys, density_, block_));
        }
        return out;
    }
    [[nodiscard]] std::string problem(const ModelSpec& model) const override {
        return model.window == 0 ? "" : "attention: block-sparse chooses among all keys, and this model has a window";
    }

  private:
    double density_, block_;
};

}  // namespace

extern const PolicyRow<AttentionForm> kBlockSparseAttention;
const PolicyRow<AttentionForm> kBlockSparseAttention =
    policy_row<AttentionForm, BlockSparseAttention>("block-sparse", "a share of the keys, in blocks");

}  // namespace orrery::model
