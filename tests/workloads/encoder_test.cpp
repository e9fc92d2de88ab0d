// Encoders: weights, FLOPs, kernels, memory and times of models with an encoder of images on the first pipeline stage.

#include "workloads/training/plan/encoder.hpp"
#include "tests/support/passes.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/explain/explain.hpp"
#include "tools/plan/estimate.hpp"
#include "tools/plan/search.hpp"
#include "workloads/training/memory/memory.hpp"
#include "workloads/training/passes/pass_cost.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

using namespace orrery;

namespace {

using test::train;

constexpr const char* kEncoder =
    "encoder: {layers: 6, hidden: 1024, heads: 16, patch_width: 588, tokens: 577, dropped: 1, images: 2, projector: "
    "2048";
constexpr const char* kText =
    "layers: 16, hidden: 2048, heads: 16, ffn: 8192, vocabulary: 1024, sequence: 2048, tied_embeddings: false";
constexpr const char* kPlan = "data: 8, global_batch: 16";

std::string model_with(const std::string& encoder = "", const std::string& text = kText) {
    return fmt::format("{{{}, {}{}}}}}", text, kEncoder, encoder);
}
std::string text_model(const std::string& text = kText) {
    return fmt::format("{{{}}}", text);
}

std::string text_with(const std::string& plan, const std::string& model, const std::string& more = "") {
    return fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {}
plan: {{{}}}
software: {{preset: megatron-core-2024, launch: 1 ns}}
{})",
                       model, plan, more);
}

Scenario with_plan(const std::string& plan, const std::string& model = model_with()) {
    return test::scenario(text_with(plan, model));
}

TrainingResult train(const std::string& plan, const std::string& model = model_with()) {
    return train(with_plan(plan, model));
}

std::string infeasible(const std::string& plan, const std::string& model = model_with()) {
    try {
        (void)train(plan, model);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// All of the encoder in a pass.
Price whole(const PassCost& cost, const ModelSpec& model, PassWork work) {
    Price sum = cost.encoder(EncoderPart::patches, work);
    sum += cost.encoder(EncoderPart::layer, work) * static_cast<double>(model.encoder.layers);
    return sum += cost.encoder(EncoderPart::projector, work);
}

MemoryUse first_stage(const std::string& plan, const std::string& model = model_with()) {
    const Scenario s = with_plan(plan, model);
    return memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software)[0];
}

}  // namespace

TEST_CASE("encoder: published models have their published numbers of parameters") {
    const auto of = [](const std::string& model) { return with_plan(kPlan, model).as<TrainingKind>().model; };
    // CLIP ViT-L/14 at 336 pixels has 303.5 million weights without its text side and its projection; LLaVA-1.5-7B has
    // 7,063,427,072 on Hugging Face, of them 20,979,712 of the projector.
    const ModelSpec llava =
        of("{preset: llama-2-7b, encoder: {layers: 24, hidden: 1024, heads: 16, patch_width: 588, tokens: 577, "
           "dropped: 1, "
           "projector: 4096}}");
    const EncoderSpec& clip = llava.encoder;
    CHECK(clip.patch_parameters() + clip.layer_parameters() == 24.0 * (12 * 1024 * 1024 + 4 * 1024) + 1165 * 1024);
    CHECK(clip.patch_parameters() + clip.layer_parameters() == doctest::Approx(303'507'456.0).epsilon(0.001));
    CHECK(clip.projector_parameters(llava.hidden) == doctest::Approx(20'979'712.0).epsilon(0.001));
    CHECK(llava.parameters() == doctest::Approx(7'063'427'072.0).epsilon(0.001));
    CHECK(clip.places() == 576);
    // InternViT-6B-448px-V1-5 has 5.54 billion, its projector in InternVL2-Llama3-76B four tokens in one of 8192.
    const ModelSpec internvl = of(
        "{preset: llama-3-70b, sequence: 8192, encoder: {layers: 45, hidden: 3200, heads: 25, ffn: 12800, patch_width: "
        "588, tokens: 1025, dropped: 1, merged: 4, images: 16, projector: 8192}}");
    const EncoderSpec& vit = internvl.encoder;
    CHECK(vit.patch_parameters() + vit.layer_parameters() == doctest::Approx(5.54e9).epsilon(0.002));
    CHECK(vit.places() == 256);
    CHECK(vit.projector_parameters(8192) == 12800.0 * 8192 + 8192.0 * 8192);
    CHECK(internvl.parameters() == doctest::Approx(76.3e9).epsilon(0.005));
}

TEST_CASE("encoder: weights and model FLOPs are closed forms, trained and frozen") {
    const ModelSpec m = with_plan(kPlan).as<TrainingKind>().model;
    const ModelSpec frozen = with_plan(kPlan, model_with(", trained: false")).as<TrainingKind>().model;
    const ModelSpec text = with_plan(kPlan, text_model()).as<TrainingKind>().model;
    const double e = 1024;
    const double layers = 6 * 12 * e * e;
    const double first = e * 2048;
    const double second = 2048.0 * 2048;
    CHECK(m.encoder_parameters() == layers + 6 * 4 * e + (588 + 577) * e + first + second);
    CHECK(m.parameters() == text.parameters() + m.encoder_parameters());
    CHECK(m.trained_encoder_parameters() == m.encoder_parameters());
    CHECK(frozen.parameters() == m.parameters());
    CHECK(frozen.trained_encoder_parameters() == first + second);
    // Of two images: 6 a weight and token; attention to all 577 tokens, which causality does not halve; pixels need no gradient.
    const double attended = 12.0 * 6 * e * 577;
    const double all = 2 * (577 * (6 * layers + attended) + 576 * (4 * 588 * e + 6 * (first + second)));
    CHECK(m.encoder_flops() == doctest::Approx(all));
    const double forward = 2 * (577 * (2 * layers + attended / 3) + 576 * (2 * 588 * e + 4 * first + 6 * second));
    CHECK(frozen.encoder_flops() == doctest::Approx(forward));
    CHECK(2048 * (m.flops_per_token() - text.flops_per_token()) == doctest::Approx(all));
    CHECK(weights_of(m, with_plan(kPlan).as<TrainingKind>().plan, mix_of(m, 0, 16, true), 2).total() == m.parameters());
    CHECK(weights_of(m, with_plan(kPlan).as<TrainingKind>().plan, mix_of(m, 0, 16), 2).total() == text.parameters());
    // What the devices do is what the model has, with fused attention's scores once more on the way back.
    for (const char* encoder : {"", ", trained: false", ", merged: 4", ", rotary: true, gated: true"}) {
        const bool frozen_one = std::string(encoder) == ", trained: false";
        const auto base = train(kPlan, text_model());
        const auto with = train(kPlan, model_with(encoder));
        const double scores = frozen_one ? 0 : 16 * 2 * 577 * attended / 6;
        CHECK_MESSAGE(with.hardware_flops - base.hardware_flops ==
                          doctest::Approx(with.model_flops - base.model_flops + scores).epsilon(1e-6),
                      encoder);
    }
}

TEST_CASE("encoder: a layer is priced as any layer, without a causal half, and a frozen one has no backward pass") {
    const double rows = 2 * 577;
    const double layer = 2 * rows * 12 * 1024.0 * 1024 + 4 * rows * 577 * 1024;
    for (const char* more : {"", ", trained: false"}) {
        const bool trained = std::string(more).empty();
        test::priced(with_plan(kPlan, model_with(more)), [&](const PassCost& cost) {
            CHECK(cost.encoder(EncoderPart::layer, PassWork::forward).flops == doctest::Approx(layer));
            CHECK(cost.encoder(EncoderPart::patches, PassWork::forward).flops == 2 * 2 * 576.0 * 588 * 1024);
            const double projector = 2 * 2 * 576.0 * (1024 * 2048 + 2048 * 2048);
            CHECK(cost.encoder(EncoderPart::projector, PassWork::forward).flops == projector);
            CHECK(cost.encoder(EncoderPart::projector, PassWork::backward).flops ==
                  2 * projector - (trained ? 0 : 2 * 2 * 576.0 * 1024 * 2048));
            CHECK((cost.encoder(EncoderPart::layer, PassWork::backward).total() > 0) == trained);
            CHECK((cost.encoder(EncoderPart::patches, PassWork::backward).total() > 0) == trained);
            // The gradient of attention has two and a half times its FLOPs.
            const double attention = 4 * rows * 577 * 1024;
            CHECK(cost.encoder(EncoderPart::layer, PassWork::backward).flops ==
                  doctest::Approx(trained ? 2 * layer + attention / 2 : 0));
            return 0;
        });
    }
    // Cut over tensor-parallel ranks with the language model: sums after the products, no sequence parallelism.
    const auto of = [](const std::string& plan) {
        return test::priced(with_plan(plan), [](const PassCost& cost) {
            std::map<std::string, int> names;
            for (const PassOperation& one : cost.encoder_program(EncoderPart::layer, PassWork::forward).operations()) {
                names[one.name] += one.seconds > 0 ? 1 : 0;
            }
            return std::pair{cost.encoder(EncoderPart::layer, PassWork::forward), names};
        });
    };
    const auto one = of(kPlan);
    auto four = of("tensor: 4, data: 2, global_batch: 16, sequence_parallel: true");
    CHECK(four.first.flops == doctest::Approx(one.first.flops / 4));
    CHECK(one.first[Category::tensor_communication] == 0);
    CHECK(four.first[Category::tensor_communication] > 0);
    CHECK(four.second["sum output"] == 2);
    CHECK(four.second["gather input"] == 0);
    // Ranks of a sequence encode all its images, each of them.
    const auto two = of("context: 2, data: 4, global_batch: 16");
    CHECK(two.first.total() == doctest::Approx(one.first.total()));
}

TEST_CASE("encoder: a step is longer by its passes and its optimizer, where nothing else is on the way") {
    for (const char* more : {"", ", trained: false", ", recompute: true"}) {
        const std::string plan = "tensor: 8, global_batch: 6, recompute: full";
        const Scenario s = with_plan(plan, model_with(more));
        const auto& training = s.as<TrainingKind>();
        const double passes = test::priced(s, [&](const PassCost& cost) {
            const double once = whole(cost, training.model, PassWork::forward).total() +
                                whole(cost, training.model, PassWork::backward).total();
            CHECK(cost.encoder_seconds() == doctest::Approx(once));
            const auto updated = [&](double encoders) {
                const bool with = encoders > 0;
                const double weights =
                    weights_of(training.model, training.plan, mix_of(training.model, 0, 16, with), 2).total();
                return cost.optimizer(weights, weights).total();
            };
            return 6 * once + updated(1) - updated(0);
        });
        CHECK_MESSAGE(
            train(s).iteration_s - train(plan, text_model()).iteration_s == doctest::Approx(passes).epsilon(1e-6),
            more);
    }
    const auto seconds = [](const char* more) {
        return train("tensor: 8, global_batch: 6, recompute: full", model_with(more)).iteration_s;
    };
    CHECK(seconds(", trained: false") < seconds(""));
    CHECK(seconds("") < seconds(", recompute: true"));
    // Images are a mean: half of them take half of the attention's work and about half of the products'.
    const auto flops = [](const char* images) {
        std::string model = model_with();
        model.replace(model.find("images: 2"), 9, images);
        return with_plan(kPlan, model).as<TrainingKind>().model.encoder_flops();
    };
    CHECK(flops("images: 0.5") == doctest::Approx(flops("images: 2") / 4));
}

TEST_CASE("encoder: where it makes the first stage the slowest, a 1F1B step is that stage's passes") {
    // Its forward pass takes longer than both of any other stage, so that it never waits for gradients.
    const std::string heavy =
        "{" + std::string(kText) +
        ", encoder: {layers: 12, hidden: 2048, heads: 16, tokens: 1024, images: 2, projector: 2048}}";
    const std::string plan = "pipeline: 8, global_batch: 24, overlap: {pipeline: true}";
    Scenario s = with_plan(plan, heavy);
    auto& training = s.as<TrainingKind>();
    training.software.waits_at_ends = false;
    const auto [stage, update] = test::priced(s, [&](const PassCost& cost) {
        double passes = 0;
        for (const PassWork work : {PassWork::forward, PassWork::backward}) {
            const bool forward = work == PassWork::forward;
            const double own = whole(cost, training.model, work).total();
            const double layers =
                2 * (forward ? cost.layer_forward(LayerKind()) : cost.layer_backward(LayerKind())).total();
            passes += own + layers + (forward ? cost.embedding_forward() : cost.embedding_backward()).total();
        }
        const double weights = weights_of(training.model, training.plan, mix_of(training.model, 0, 2, true), 1).total();
        return std::pair{passes, cost.optimizer(weights, weights).total()};
    });
    const TrainingResult result = train(s);
    CHECK(result.iteration_s ==
          doctest::Approx(24 * stage + update + training.software.step_overhead.value).epsilon(1e-6));
    // All others wait for it.
    const TrainingResult text = train(plan, text_model());
    CHECK(result.bubble_s > 5 * text.bubble_s);
    // Fewer layers beside it recover time, and the estimate of plans sees it.
    const auto with = [&](const std::string& stages) { return with_plan(plan + ", stages: [" + stages + "]", heavy); };
    const Scenario uneven =
        with("{layers: 0}, {layers: 3}, {layers: 3}, {layers: 2}, {layers: 2}, {layers: 2}, {layers: 2}, {layers: 2}");
    CHECK(train(uneven).iteration_s < 0.9 * result.iteration_s);
    const auto estimated = [](const Scenario& of) {
        const Fabric fabric(shape_of(of.cluster, of.cluster_mark));
        const TrainingInput in = training_input(of, test::model_cache(), fabric, Placement(fabric));
        return Estimator()
            .iteration(in, of.as<TrainingKind>().plan.schedule->bubble(of.as<TrainingKind>().plan.shape()))
            .value();
    };
    CHECK(estimated(s) == doctest::Approx(result.iteration_s).epsilon(0.15));
    CHECK(estimated(uneven) == doctest::Approx(train(uneven).iteration_s).epsilon(0.15));
}

TEST_CASE("encoder: memory of the first stage is its weights, states and activations in bytes") {
    const ModelSpec m = with_plan(kPlan).as<TrainingKind>().model;
    const MemoryUse text = first_stage(kPlan, text_model());
    const MemoryUse one = first_stage(kPlan);
    const double w = m.encoder_parameters();
    CHECK(one.weights - text.weights == doctest::Approx(2 * w));
    CHECK(one.optimizer - text.optimizer == doctest::Approx(12 * w));
    CHECK((one.gradients - text.gradients) / w ==
          doctest::Approx(text.gradients / with_plan(kPlan, text_model()).as<TrainingKind>().model.parameters()));
    // Of a layer's token 8 widths around its products and 8 of queries, keys, values and what attention made, 16 in the feed-forward;
    // of the projector what comes in and its two middles.
    const double layers = 2 * 577 * 6 * 32 * 1024.0;
    const double projector = 2 * 576 * (2 * 1024.0 + 4 * 2048);
    CHECK(one.activations - text.activations == doctest::Approx(layers + projector));
    const MemoryUse cut = first_stage("tensor: 4, data: 2, global_batch: 16");
    const MemoryUse cut_text = first_stage("tensor: 4, data: 2, global_batch: 16", text_model());
    CHECK(cut.activations - cut_text.activations ==
          doctest::Approx(2 * 577 * 6 * 1024.0 * (8 + 24.0 / 4) + 2 * 576 * (2 * 1024.0 + 2048)));
    const double patches = m.encoder.patch_parameters();  // whole on each rank
    CHECK(cut.weights - cut_text.weights == doctest::Approx(2 * ((w - patches) / 4 + patches)));
    // Frozen: weights alone, and what the projector needs.
    const MemoryUse frozen = first_stage(kPlan, model_with(", trained: false"));
    const double trained = m.encoder.projector_parameters(m.hidden);
    CHECK(frozen.weights == doctest::Approx(one.weights));
    CHECK(frozen.optimizer - text.optimizer == doctest::Approx(12 * trained));
    CHECK(frozen.activations - text.activations == doctest::Approx(projector));
    // Computed again: a layer's input each, and one layer in work.
    const MemoryUse again = first_stage("data: 8, global_batch: 16, recompute: full", model_with(", recompute: true"));
    const MemoryUse again_text = first_stage("data: 8, global_batch: 16, recompute: full", text_model());
    CHECK(again.activations - again_text.activations == doctest::Approx(2 * 577 * 1024.0 * (6 * 2 + 32) + projector));
    // ZeRO-3 shares frozen weights too.
    const MemoryUse sharded = first_stage("data: 8, global_batch: 16, zero: 3", model_with(", trained: false"));
    CHECK(sharded.weights == doctest::Approx(frozen.weights / 8));
    // Of a pipeline the first stage holds as many micro-batches' images as it holds passes of its first part.
    const std::string piped = "pipeline: 4, data: 2, global_batch: 32";
    const auto held = [&](const std::string& plan) {
        return (first_stage(plan).activations - first_stage(plan, text_model()).activations) / (layers + projector);
    };
    CHECK(held(piped) == doctest::Approx(4));
    CHECK(held(piped + ", schedule: gpipe") == doctest::Approx(16));
    CHECK(held(piped + ", schedule: interleaved, chunks: 2") == doctest::Approx(8));
    CHECK(held(piped + ", stages: [{layers: 0}, {layers: 6}, {layers: 5}, {layers: 5}]") == doctest::Approx(4));
    const Scenario s = with_plan(piped);
    const std::vector<MemoryUse> stages =
        memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software);
    const Scenario plain = with_plan(piped, text_model());
    const std::vector<MemoryUse> before = memory_by_stage(plain.as<TrainingKind>().model, plain.as<TrainingKind>().plan,
                                                          plain.as<TrainingKind>().software);
    for (std::size_t stage = 1; stage < 4; ++stage) {
        CHECK(stages[stage].total() == before[stage].total());
    }
}

TEST_CASE("encoder: where its activations do not fit, computing its layers again is named") {
    const Scenario s = with_plan(
        "tensor: 8, pipeline: 1, global_batch: 4, sequence_parallel: true",
        "{preset: llama-3-8b, encoder: {layers: 60, hidden: 3200, heads: 32, head_dim: 128, ffn: 12800, tokens: 1025, "
        "dropped: 1, merged: 4, images: 30, projector: 4096}}");
    std::string said;
    try {
        (void)run_scenario(s, test::model_cache(), {});
    } catch (const InfeasibleError& error) {
        said = error.what();
    }
    CHECK_MESSAGE(said.find("model.encoder.recompute=true with plan.recompute=full (") != std::string::npos, said);
    Scenario again = s;
    again.as<TrainingKind>().model.encoder.recompute = true;
    again.as<TrainingKind>().plan.recompute = Recompute::full;
    CHECK(run_scenario(again, test::model_cache(), {}).training->iteration_s > 0);
}

TEST_CASE("encoder: every schedule and way of sharing runs with it, and folded runs give the times of all ranks") {
    for (const char* plan :
         {"pipeline: 2, data: 4, global_batch: 16",
          "pipeline: 4, data: 2, global_batch: 16, schedule: zb-h1",
          "pipeline: 4, data: 2, global_batch: 16, schedule: zb-h2",
          "pipeline: 4, data: 2, global_batch: 16, schedule: zb-v, chunks: 2",
          "pipeline: 4, data: 2, global_batch: 16, schedule: v-half, chunks: 2",
          "pipeline: 4, data: 2, global_batch: 16, schedule: gpipe",
          "pipeline: 4, data: 2, global_batch: 16, schedule: hanayo, chunks: 2",
          "pipeline: 4, data: 2, global_batch: 32, schedule: dualpipe, chunks: 2",
          "pipeline: 4, data: 2, global_batch: 32, schedule: dualpipev, chunks: 2",
          "pipeline: 4, data: 2, global_batch: 16, schedule: search",
          "pipeline: 4, data: 2, global_batch: 16, schedule: interleaved, chunks: 2, overlap: {data: true}",
          "pipeline: 4, data: 2, global_batch: 16, vocabulary_parallel: one-barrier",
          "pipeline: 4, data: 2, global_batch: 16, stages: [{layers: 0}, {layers: 6}, {layers: 5}, {layers: 5}]",
          "pipeline: 2, data: 4, global_batch: 16, zero: 3",
          "tensor: 2, data: 4, global_batch: 16, zero: 1, sequence_parallel: true, overlap: {tensor: full, data: true, "
          "parameters: true}",
          "tensor: 2, data: 4, global_batch: 16, overlap: {tensor: tiles}",
          "context: 2, data: 4, global_batch: 16",
          "data: 8, global_batch: 16, zero: 2, overlap: {data: true}",
          "data: 8, global_batch: 16, zero: 3, overlap: {data: true}",
          "data: 8, global_batch: 16, zero: 3",
          "data: 8, global_batch: 16, precision: fp8",
          "data: 8, global_batch: 16, recompute: selective, attention: unfused",
          "data: 8, global_batch: 16, recompute: half",
          "data: 8, global_batch: 16, compression: {density: 0.01}",
          "data: 8, global_batch: 16, outer: {workers: 2, steps: 10}",
          "data: 8, global_batch: 16, zero: 3, sharding: {weights: 4, weight_bits: 8}",
          "pipeline: 2, data: 4, global_batch: 16, schedule: breadth-first, chunks: 2",
          "data: 8, global_batch: 16, recompute: modules, recompute_modules: 'norm, ffn'"}) {
        for (const char* more : {"", ", trained: false", ", recompute: true"}) {
            const bool again = std::string(plan).find("recompute") != std::string::npos;
            if (std::string(more) == ", recompute: true" && !again) {
                continue;
            }
            const double plain = train(plan, text_model()).iteration_s;
            Scenario s = with_plan(plan, model_with(more));
            const TrainingResult folded = train(s);
            s.network.fold = false;
            CHECK_MESSAGE(folded.iteration_s == doctest::Approx(train(s).iteration_s).epsilon(1e-9), plan);
            CHECK_MESSAGE(folded.iteration_s > plain, plan << more);
        }
    }
}

TEST_CASE("encoder: gradients of the first stage's reductions and what checkpoints hold grow by what is trained") {
    const auto reduced = [](const std::string& model) {
        RunOptions options;
        options.timeline = true;
        options.check_memory = false;
        double bytes = 0;
        for (const Span& span : run_scenario(with_plan(kPlan, model), test::model_cache(), options).timeline.spans) {
            for (const auto& [name, value] : span.arguments) {
                bytes +=
                    std::string(name) == "bytes" && span.name.find("reduce") != std::string::npos && span.process == 0
                        ? value
                        : 0;
            }
        }
        return bytes;
    };
    const ModelSpec m = with_plan(kPlan).as<TrainingKind>().model;
    const double plain = checkpoint_bytes(with_plan(kPlan, text_model()));
    CHECK(checkpoint_bytes(with_plan(kPlan)) - plain == doctest::Approx(14 * m.encoder_parameters()));
    CHECK(checkpoint_bytes(with_plan(kPlan, model_with(", trained: false"))) - plain ==
          doctest::Approx(14 * m.encoder.projector_parameters(m.hidden)));
    const double text = reduced(text_model());
    REQUIRE(text > 0);
    const double each = text / with_plan(kPlan, text_model()).as<TrainingKind>().model.parameters();
    CHECK((reduced(model_with()) - text) / each == doctest::Approx(m.encoder_parameters()).epsilon(1e-6));
    CHECK((reduced(model_with(", trained: false")) - text) / each ==
          doctest::Approx(m.encoder.projector_parameters(m.hidden)).epsilon(1e-6));
}

TEST_CASE("encoder: its kernels and collectives have names of their own in explanations and timelines") {
    const Scenario s = with_plan("tensor: 2, pipeline: 2, data: 2, global_batch: 8");
    const Explanation e = explain_scenario(s, test::model_cache());
    std::set<std::string> named;
    double seconds = 0;
    for (const KernelRow& row : e.kernels) {
        if (row.name.rfind("encoder: ", 0) == 0) {
            named.insert(row.name.substr(9));
            seconds += row.stream == "kernels" ? row.seconds : 0;
        }
    }
    for (const char* name : {"attention", "patches", "weight gradient of patches", "projector, in", "projector, out",
                             "sum output", "sum gradient", "tokens of images"}) {
        CHECK_MESSAGE(named.contains(name), name);
    }
    CHECK(seconds > 0);
    RunOptions options;
    options.timeline = true;
    std::map<std::string, std::set<double>> drawn;  // layers by name
    double first = 0;
    double last = 0;
    for (const Span& span : run_scenario(s, test::model_cache(), options).timeline.spans) {
        if (span.name.rfind("encoder: ", 0) == 0) {
            double layer = -1;
            double stage = -1;
            for (const auto& [name, value] : span.arguments) {
                layer = std::string(name) == "layer" ? value : layer;
                stage = std::string(name) == "stage" ? value : stage;
            }
            CHECK(stage == 0);
            drawn[span.name].insert(layer);
        }
        // In a forward pass the patches come first and the projector's output before the layers.
        first = first == 0 && span.name == "encoder: patches" ? span.start_us : first;
        last = last == 0 && span.name == "encoder: tokens of images" ? span.start_us : last;
    }
    CHECK(drawn["encoder: attention"] == std::set<double>{0, 1, 2, 3, 4, 5});
    CHECK(drawn["encoder: projector, in"] == std::set<double>{-1});
    CHECK(first < last);
    CHECK(first > 0);
}

TEST_CASE("encoder: what cannot be is refused with its line, all at once") {
    const std::string head =
        "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 2048, encoder: {hidden: 512, heads: 8, ";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"tokens: 577}}", ":4:87: error: 'layers' is missing"},
        {"layers: 2}}", ":4:87: error: 'tokens' is missing"},
        {"layers: 2, tokens: 577, images: 0}}", ":4:143: error: 'images' must be between"},
        {"layers: 0, tokens: 577}}", "'layers'"},
        {"layers: 2, tokens: 577, merged: 4}}", "merged 4 must divide the 577 tokens of an image that go on"},
        {"layers: 2, tokens: 577, dropped: 577}}", "dropped 577 leaves nothing"},
        {"layers: 2, tokens: 576, images: 4}}",
         "4 images of 576 tokens each take 2304 places, and a sequence has 2048"},
        {"layers: 2, tokens: 576, trained: false, recompute: true}}", "'model.encoder.recompute' has no effect"},
        {"layers: 2, tokens: 576, spatial_merge_size: 4}}", "did you mean 'merged'?"},
    };
    for (const auto& [rest, expected] : cases) {
        const std::string said = test::problems_when([&] { return test::scenario(text_with(kPlan, head + rest)); });
        CHECK_MESSAGE(said.find(expected) != std::string::npos, rest << "\n" << said);
    }
    const std::string all = test::problems_when([&] {
        return test::scenario(text_with(
            kPlan,
            "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 512, encoder: {hidden: 500, heads: 8, "
            "layers: 2, tokens: 577, merged: 2, images: 2, trained: false, recompute: true}}"));
    });
    for (const char* part : {"8 heads do not divide", "merged 2", "577 places", "has no effect"}) {
        CHECK_MESSAGE(all.find(part) != std::string::npos, all);
    }
    for (const auto& [plan, expected] : std::vector<std::pair<std::string, std::string>>{
             {"data: 8, global_batch: 16, adapters: {rank: 8}",
              "adapters cannot be combined with a model that has an 'encoder'"},
             {"data: 8, global_batch: 16, documents: {lengths: [{tokens: 512, share: 1}]}",
              "documents cannot be combined with a model that has an 'encoder'"},
             {"data: 8, global_batch: 16, offload: {optimizer: {tier: dram}}",
              "offload cannot be combined with a model that has an 'encoder'"},
             {"tensor: 8, global_batch: 16", ""}}) {
        CHECK_MESSAGE(infeasible(plan).find(expected) != std::string::npos, plan << "\n" << infeasible(plan));
    }
    for (const char* plan : {kPlan, "data: 8, global_batch: 16, recompute: selective"}) {
        CHECK(infeasible(plan, model_with(", recompute: true")).find("model.encoder.recompute needs a plan that") !=
              std::string::npos);
    }
    CHECK(infeasible("tensor: 8, global_batch: 16", model_with(", ffn: 4100, head_dim: 64"))
              .find("tensor 8 must divide the 4100 values of the encoder's feed-forward width") != std::string::npos);
    const std::string served = test::refusal(
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: {preset: llama-3-8b, encoder: {layers: "
        "2, hidden: 512, heads: 8, tokens: 64}}\nengine: {tensor: 8}\nrequests: {rate: 2, count: 10}\n");
    CHECK_MESSAGE(served.find("models with an 'encoder' are trained and not served here") != std::string::npos, served);
}

TEST_CASE("encoder: the search for plans moves layers off the first stage and leaves out what does not divide") {
    // With links between nodes as slow as these, pipelines are best.
    const Scenario base = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 2, node: dgx-a100-80g, fabric: {nodes_per_leaf: 2, rails: 8, link: 100 Gbps}}
model: {layers: 32, hidden: 6144, heads: 48, vocabulary: 32000, sequence: 2048, encoder: {layers: 24, hidden: 2048,
        heads: 12, head_dim: 128, tokens: 1024, images: 2, projector: 4096}}
plan: {tensor: 8, data: 2, global_batch: 64}
software: megatron-core-2024
)");
    PlanOptions options;
    options.simulate = 20;
    const PlanSearch found = search_plans(base, test::data(), options);
    REQUIRE(!found.ranked.empty());
    int moved = 0;  // plans whose first stage has fewer layers than another
    CHECK(found.worst_error < 0.2);
    for (const RankedPlan& plan : found.ranked) {
        CHECK(12 % plan.plan.tensor == 0);
        if (const std::vector<std::int64_t>& stages = plan.plan.stages; stages.size() > 1 && plan.simulated) {
            ++moved;
            CHECK(stages.front() < *std::max_element(stages.begin(), stages.end()));
        }
    }
    CHECK(moved > 0);
}
