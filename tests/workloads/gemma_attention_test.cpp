// Layers of Gemma 2 to 4: weights, caches and kernels of both kinds in closed forms.

#include "sim/config/yaml_tree.hpp"
#include "tests/support/presets.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <doctest/doctest.h>

#include <string>
#include <variant>

using namespace orrery;
using test::preset;

namespace {

constexpr LayerKind kFull{false, false};
constexpr LayerKind kWindow{false, true};

}  // namespace

TEST_CASE("gemma: layers that see everything have wider heads and one product for keys and values") {
    const ModelSpec m = preset("gemma-4-31b");
    const double h = 5376;
    CHECK(m.attention_parameters(kWindow) == h * 256 * (2 * 32 + 2 * 16));
    CHECK(m.attention_parameters(kFull) == h * 512 * (2 * 32 + 4));
    CHECK(m.parameters() == doctest::Approx(30.7e9).epsilon(0.01));
    CHECK(cached_values(m, kWindow) == 2 * 16 * 256);
    CHECK(cached_values(m, kFull) == 2 * 4 * 512);
    CHECK(cache_bytes_per_token(m, Precision::bf16) == 2.0 * (50 * 2 * 16 * 256 + 10 * 2 * 4 * 512));
    CoreShape shape;
    shape.heads = 32;
    shape.keys = 5000;
    const auto core = [&](LayerKind kind) {
        return std::get<Attention>(model::attention_core({m, kind, {}, LayerPhase::decode, 1}, shape));
    };
    CHECK(core(kFull).head_dim == 512);
    CHECK(core(kFull).group == 8);
    CHECK(core(kFull).window == 0);
    CHECK(core(kWindow).head_dim == 256);
    CHECK(core(kWindow).group == 2);
    CHECK(core(kWindow).window == 1024);
    // Over eight ranks there are four different pairs of keys and values.
    const model::LayerContext shared{m, kFull, {8, 8, 1}, LayerPhase::decode, 1};
    CHECK(before_attention(shared).front().out == 32 / 8 * 512 + 512);
}

TEST_CASE("gemma: some layers take keys and values of others, and embeddings of layers are gated") {
    const ModelSpec m = preset("gemma-4-e2b");
    // 15 of 35 layers make keys and values.
    const double h = 1536;
    CHECK(m.attention_parameters(kWindow) ==
          doctest::Approx(h * 256 * (2 * 8 + 2 * 15.0 / 35) + 2 * h * 256));  // the gate and its way back are 256 wide
    CHECK(cached_values(m, kWindow) == doctest::Approx(2 * 256 * 15.0 / 35));
    CHECK(cached_values(m, kFull) == doctest::Approx(2 * 512 * 15.0 / 35));
    std::size_t norms = 0;
    for (const LayerOperation& one : after_attention({m, kFull})) {
        norms += one.role == LayerRole::inner_norm ? 1 : 0;
    }
    CHECK(norms == 2);  // of both blocks' results, and of what the embedding adds
}
