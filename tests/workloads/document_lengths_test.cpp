// Documents of unlike lengths: padding, packing, balance and groups as closed forms; and what is refused.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/training/features/documents.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

using namespace orrery;

namespace {

using test::train;

constexpr std::int64_t kSequence = 4096;

Scenario scenario_of(const std::string& documents,
                     const std::string& plan = "data: 8, micro_batch: 1, global_batch: 16",
                     const std::string& rest = "") {
    Scenario s =
        test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: {}, tied_embeddings: false}}
plan: {{{}{}}}
{})",
                                   kSequence, plan, documents.empty() ? "" : ", documents: {" + documents + "}", rest));
    s.as<TrainingKind>().software.launch.value = 1e-5;  // few kernels wait for their host
    return s;
}

DocumentLayout layout_of_scenario(const Scenario& s) {
    return lay_out_documents(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, {},
                             static_cast<std::uint64_t>(s.seed), 8);
}

std::string refusal_of(const std::string& documents, const std::string& plan) {
    try {
        (void)train(scenario_of(documents, plan));
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// FLOPs of the documents of each column, and of the dearest of its sequences.
std::vector<double> spent(const Scenario& s, const DocumentLayout& layout, double& dearest) {
    std::vector<double> out(layout.columns, 0);
    for (std::uint32_t column = 0; column < layout.columns; ++column) {
        for (std::uint32_t m = 0; m < layout.micro_batches; ++m) {
            double one = 0;
            for (const DocumentPiece& piece : layout.at(column, m).pieces) {
                one += piece.count *
                       document_flops(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, piece.length) /
                       piece.ranks;
            }
            out[column] += one;
            dearest = std::max(dearest, one);
        }
    }
    return out;
}

}  // namespace

TEST_CASE("documents as long as the sequence change nothing, however they fill it") {
    const double plain = train(scenario_of("")).iteration_s;
    for (const char* fill : {"padded", "packed", "unpadded"}) {
        CAPTURE(fill);
        const TrainingResult result = train(scenario_of(fmt::format("lengths: [{{tokens: 4096}}], fill: {}", fill)));
        CHECK(result.iteration_s == plain);
        CHECK(result.documents->padding == 0);
        CHECK(result.documents->imbalance == doctest::Approx(1).epsilon(1e-12));
    }
}

TEST_CASE("padding wastes 1 - mean / longest and costs what full sequences cost") {
    const Scenario s = scenario_of("lengths: [{tokens: 1024, share: 3}, {tokens: 4096, share: 1}], fill: padded");
    const TrainingResult result = train(s);
    const DocumentLayout layout = layout_of_scenario(s);
    CHECK(result.documents->padding == doctest::Approx(1 - layout.tokens / 16 / 4096).epsilon(1e-12));
    CHECK(result.documents->padding > 0.3);
    CHECK(result.iteration_s == train(scenario_of("")).iteration_s);
    // Tokens that count are those of documents.
    const RunOutput out = run_scenario(s, test::model_cache(), {});
    CHECK(out.summary.find("tokens_per_s")->value == doctest::Approx(layout.tokens / result.iteration_s));
}

TEST_CASE("packed documents attend to themselves alone: operations go with the sum of the squares of their lengths") {
    const auto flops = [](int tokens) {
        const Scenario s = scenario_of(fmt::format("lengths: [{{tokens: {}}}]", tokens));
        const DocumentLayout layout = layout_of_scenario(s);
        CHECK(layout.loads.size() == 1);
        CHECK(layout.loads[0].squares() == 4096.0 * tokens);  // 4096 / tokens documents of tokens^2
        CHECK(layout.tokens == layout.rows);
        return train(s).hardware_flops;
    };
    const double whole = flops(4096);
    const double halves = flops(2048);
    const double quarters = flops(1024);
    // All else is the same: half of attention's operations go, then half of the rest.
    CHECK(whole - halves == doctest::Approx(2 * (halves - quarters)).epsilon(1e-9));
    // Forward and backward products of scores and sums: 12 layers width (l / 2) a token.
    CHECK(whole - halves >= 12 * 4 * 1024 * (2048 / 2) * 16.0 * 4096 * 0.99);
    const auto seconds = [](int tokens) {
        return train(scenario_of(fmt::format("lengths: [{{tokens: {}}}]", tokens))).iteration_s;
    };
    CHECK(seconds(1024) < seconds(2048));
    CHECK(seconds(2048) < seconds(4096));
}

TEST_CASE("best fit fills sequences, and what is left is padding") {
    const Scenario s = scenario_of("lengths: [{tokens: 3000}, {tokens: 1000}]");
    const DocumentLayout layout = layout_of_scenario(s);
    for (const MicroBatchLoad& load : layout.loads) {
        CHECK(load.rows == 4096);
        double held = 0;
        for (const DocumentPiece& piece : load.pieces) {
            held += piece.count * piece.length;
        }
        CHECK(held <= 4096);
    }
    CHECK(train(s).documents->padding == doctest::Approx(1 - layout.tokens / (16 * 4096)).epsilon(1e-12));
}

TEST_CASE("sequences dealt out by what they cost differ by the dearest at most, and the slowest rank sets the step") {
    const std::string lengths = "lengths: [{tokens: 4096, share: 1}, {tokens: 512, share: 8}], fill: unpadded";
    const std::string plan = "data: 8, micro_batch: 1, global_batch: 64";
    const Scenario drawn = scenario_of(lengths, plan);
    const Scenario even = scenario_of(lengths + ", balance: true", plan);
    double dearest = 0;
    const std::vector<double> before = spent(drawn, layout_of_scenario(drawn), dearest);
    const std::vector<double> after = spent(even, layout_of_scenario(even), dearest);
    const auto gap = [](const std::vector<double>& all) {
        return *std::max_element(all.begin(), all.end()) - *std::min_element(all.begin(), all.end());
    };
    CHECK(gap(after) <= dearest);
    CHECK(gap(after) <= gap(before));
    CHECK(layout_of_scenario(drawn).tokens == layout_of_scenario(even).tokens);
    const TrainingResult slow = train(drawn);
    const TrainingResult fast = train(even);
    CHECK(slow.iteration_s > fast.iteration_s);
    CHECK(slow.documents->imbalance >= fast.documents->imbalance);  // one of the dearest may set both
    // Ranks that have less to do wait: the busiest has no bubble, the mean rank the rest.
    CHECK(slow.bubble_s > fast.bubble_s);
    CHECK(slow.folded_into_one == 1);
}

TEST_CASE("dynamic groups cut a long document over the ranks it needs and send nothing for short ones") {
    const std::string plan = "data: 1, context: 8, micro_batch: 1, global_batch: 8";
    const std::string lengths = "lengths: [{tokens: 4096, share: 1}, {tokens: 512, share: 24}]";
    const Scenario fixed = scenario_of(lengths, plan);
    const Scenario dynamic = scenario_of(lengths + ", dynamic_groups: true", plan);
    const DocumentLayout layout = layout_of_scenario(dynamic);
    CHECK(layout.columns == 8);
    double squares = 0;
    std::size_t rings = 0;
    for (std::uint32_t column = 0; column < layout.columns; ++column) {
        for (std::uint32_t m = 0; m < layout.micro_batches; ++m) {
            squares += layout.at(column, m).squares();
            for (const DocumentPiece& piece : layout.at(column, m).pieces) {
                CHECK(piece.ranks == (piece.length > 512 ? 8U : 1U));
                rings += piece.ranks > 1 ? 1 : 0;
            }
        }
    }
    double expected = 0;
    double longs = 0;
    for (const DocumentLength& one : layout.documents) {
        expected += one.share * static_cast<double>(one.tokens * one.tokens);
        longs += one.tokens > 512 ? one.share : 0;
    }
    CHECK(squares == doctest::Approx(expected).epsilon(1e-12));
    CHECK(layout.rings.size() == static_cast<std::size_t>(longs));
    CHECK(longs > 0);
    CHECK(rings <= 8 * layout.rings.size());
    const TrainingResult with = train(dynamic);
    const TrainingResult without = train(fixed);
    CHECK(with.documents->tokens == without.documents->tokens);
    CHECK(with.iteration_s < without.iteration_s);
    const auto booked = [](const TrainingResult& of) {
        return of.booked[static_cast<std::size_t>(Category::context_communication)];
    };
    CHECK(booked(with) <= booked(without));
    // The same products and squares, whoever computes them.
    CHECK(with.hardware_flops == doctest::Approx(without.hardware_flops).epsilon(0.02));
}

TEST_CASE("a trace gives lengths in order, and all of its lines that are wrong are named at once") {
    const test::File file("documents.txt", "");
    const std::string& path = file.path();
    std::ofstream(path) << "# lengths\n1024\n2048 # two\n\n512\n";
    CHECK(read_document_trace(path, 4096) == std::vector<std::int64_t>{1024, 2048, 512});
    const Scenario s = scenario_of("trace: " + path + ", fill: unpadded");
    CHECK(train(s).documents->tokens == 5 * (1024 + 2048 + 512) + 1024);
    std::ofstream(path) << "1024\nmany\n5000\n-1\n";
    try {
        (void)read_document_trace(path, 4096);
        FAIL("accepted");
    } catch (const ConfigError& error) {
        CHECK(error.diagnostics().size() == 3);
        CHECK(error.diagnostics()[1].line == 3);
    }
}

TEST_CASE("plans with documents that cannot be are refused, all that is wrong at once") {
    const std::string plan = "data: 8, micro_batch: 1, global_batch: 16";
    CHECK(refusal_of("fill: packed", plan).find("lengths or a trace") != std::string::npos);
    CHECK(refusal_of("lengths: [{tokens: 5000}]", plan).find("do not fit") != std::string::npos);
    CHECK(refusal_of("lengths: [{tokens: 50, share: 0}]", plan).find("must not all be 0") != std::string::npos);
    CHECK(refusal_of("lengths: [{tokens: 50}], fill: padded, balance: true", plan).find("balance") !=
          std::string::npos);
    const std::string both = refusal_of("lengths: [{tokens: 50}], fill: unpadded, dynamic_groups: true",
                                        "data: 4, context: 2, attention: unfused, micro_batch: 1, global_batch: 16");
    CHECK(both.find("attention: flash") != std::string::npos);
    CHECK(both.find("context 1") != std::string::npos);
    CHECK(both.find("fill: packed") != std::string::npos);
}
