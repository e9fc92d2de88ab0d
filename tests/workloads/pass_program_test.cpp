#include "workloads/training/programs/pass_program.hpp"

#include "sim/base/random.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "workloads/training/lowering/lower.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace orrery {

namespace {

constexpr PassProgram::Id kNone = PassProgram::kNone;

PassProgram::Id kernel(PassProgram& program, double seconds, PassProgram::Id after = kNone,
                       Category category = Category::forward) {
    return program.add({"kernel", category, PassStream::compute, seconds, 1, {after, kNone}});
}

PassProgram::Id add_collective(PassProgram& program, double seconds, PassProgram::Id after = kNone) {
    return program.add({"sum", Category::tensor_communication, PassStream::tensor, seconds, 1, {after, kNone}});
}

double duration(const PassProgram& program) {
    double end = 0;
    for (const PlayedOperation& operation : program.play()) {
        end = std::max(end, operation.end);
    }
    return end;
}

}  // namespace

TEST_CASE("pass programs: what is hidden behind a kernel leaves max(0, communication - cover)") {
    for (const double communication : {0.5, 2.0, 5.0}) {
        const double cover = 2;
        PassProgram program;
        const PassProgram::Id data = kernel(program, 3);
        const PassProgram::Id sum = add_collective(program, communication, data);
        kernel(program, cover);
        kernel(program, 1, sum);
        const Price price = program.price();
        CHECK(price[Category::tensor_communication] == doctest::Approx(std::max(0.0, communication - cover)));
        CHECK(price[Category::forward] == 6);
        CHECK(price.launches == 4);
    }
}

TEST_CASE("pass programs: chunks of a collective and of its product always expose one chunk") {
    for (const double communication : {1.0, 4.0, 9.0}) {
        const int pieces = 4;
        const double product = 4;
        PassProgram program;
        for (int i = 0; i < pieces; ++i) {
            kernel(program, product / pieces, add_collective(program, communication / pieces));
        }
        CHECK(duration(program) ==
              doctest::Approx(std::max(communication / pieces + product, communication + product / pieces)));
        CHECK(program.price().total() == doctest::Approx(duration(program)));
    }
}

TEST_CASE("pass programs: the sum of the price is the duration, for any program") {
    RandomStream random(7, "programs");
    for (int round = 0; round < 1000; ++round) {
        PassProgram program;
        const int count = 1 + static_cast<int>(random.uniform() * 30);
        for (int i = 0; i < count; ++i) {
            const auto any = [&] {
                return i > 0 && random.uniform() < 0.4 ? static_cast<PassProgram::Id>(random.uniform() * i) : kNone;
            };
            const auto stream = static_cast<PassStream>(static_cast<int>(random.uniform() * 3));
            const auto category = static_cast<Category>(static_cast<int>(random.uniform() * 8));
            program.add({"any", category, stream, random.uniform(), 1, {any(), any()}});
        }
        const Price price = program.price();
        CHECK(price.total() == doctest::Approx(duration(program)));
        for (const double seconds : price.seconds) {
            CHECK(seconds >= 0);
        }
        // Programs one after the other take the sum of their times.
        PassProgram twice;
        twice.append(program);
        twice.append(program, 0.5);
        CHECK(duration(twice) == doctest::Approx(1.5 * duration(program)));
        CHECK(twice.price().launches == doctest::Approx(1.5 * count));
    }
}

TEST_CASE("a kernel beside a collective runs on the units that are left, and a collective is not slowed") {
    PassProgram program;
    program.add({"collective", Category::tensor_communication, PassStream::tensor, 4, 1, {-1, -1}, 0.25});
    program.add({"kernel", Category::forward, PassStream::compute, 10, 1});
    const std::vector<PlayedOperation> played = program.play();
    CHECK(played[0].end == doctest::Approx(4));
    CHECK(played[1].end == doctest::Approx(11));  // 3 s of its work in the first 4 s, the other 7 s alone
    CHECK(program.price()[Category::forward] == doctest::Approx(11));
    CHECK(program.price()[Category::tensor_communication] == 0);
    // Two communicators take the units of both.
    program.add({"other", Category::context_communication, PassStream::context, 2, 1, {-1, -1}, 0.25});
    CHECK(program.play()[1].end == doctest::Approx(11.5));
}

TEST_CASE("kernels and collectives that ask more of the memory than it has are slowed alike") {
    const auto add = [](PassProgram& program, PassStream stream, double seconds, double units, double memory) {
        program.add({"any", Category::forward, stream, seconds, 1, {-1, -1}, units, memory});
    };
    PassProgram program;
    add(program, PassStream::tensor, 4, 0, 0.3);
    add(program, PassStream::compute, 10, 0, 0.9);
    std::vector<PlayedOperation> played = program.play();
    CHECK(played[0].end == doctest::Approx(4 * 1.2));  // 0.3 and 0.9 of it
    CHECK(played[1].end == doctest::Approx(4 * 1.2 + 6));
    // What leaves the memory room is not slowed, nor what does not use it.
    PassProgram beside;
    add(beside, PassStream::tensor, 4, 0, 0.3);
    add(beside, PassStream::compute, 10, 0, 0.6);
    played = beside.play();
    CHECK(played[0].end == doctest::Approx(4));
    CHECK(played[1].end == doctest::Approx(10));
    // A kernel that the memory binds keeps the root of the units that are left, another one their share.
    for (const double memory : {0.9, 0.2}) {
        PassProgram short_of_units;
        add(short_of_units, PassStream::tensor, 100, 0.36, 0);
        add(short_of_units, PassStream::compute, 8, 0, memory);
        CHECK(short_of_units.play()[1].end == doctest::Approx(memory > 0.5 ? 10 : 12.5));
    }
    const Price price = program.price();
    CHECK(price.memory_bound == doctest::Approx(10));
    CHECK(price.memory == doctest::Approx(9));
}

TEST_CASE("a layer's passes are its kernels and what of their communication nothing hides") {
    const auto layer = [](const char* overlap, bool backward) {
        const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: llama-3-8b
plan: {{tensor: 8, sequence_parallel: true, global_batch: 4, overlap: {{tensor: {}}}}}
)",
                                                      overlap));
        ModelCache models(test::data());
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        const TrainingInput in = training_input(s, models, fabric, Placement(fabric));
        const PassCost cost(in.model, in.plan, in.software, in.device, in.gpu, in.fabric, in.collectives, in.paths);
        return backward ? cost.backward_program(in.model.kind_of(0)) : cost.forward_program(in.model.kind_of(0));
    };
    const auto busy = [](const PassProgram& program, PassStream stream) {
        double sum = 0;
        for (const PassOperation& operation : program.operations()) {
            sum += operation.stream == stream ? operation.seconds : 0;
        }
        return sum;
    };
    for (const bool backward : {false, true}) {
        const PassProgram none = layer("none", backward);
        CHECK(none.price()[Category::tensor_communication] == doctest::Approx(busy(none, PassStream::tensor)));
        CHECK(none.price().total() ==
              doctest::Approx(busy(none, PassStream::compute) + busy(none, PassStream::tensor)));
    }
    CHECK(layer("backward", false).price().total() == layer("none", false).price().total());
    // The input is gathered behind the data gradient and the gradient summed behind that of the weights, in each block.
    const PassProgram hidden = layer("backward", true);
    const double free = 1 - 20.0 / 132;  // of an H100's SMs, beside a collective of the default software
    double left = 0;
    double data = 0;
    double gather = 0;
    double sum = 0;
    for (const PassOperation& operation : hidden.operations()) {
        const std::string name = operation.name;
        gather = name == "gather input" ? operation.seconds : gather;
        data = name == "data gradient, in" ? operation.seconds : data;
        sum = name == "sum gradient" ? operation.seconds : sum;
        left += name == "gather gradient" ? operation.seconds : 0;
        if (name == "weight gradient, in") {
            // Beside a collective kernels have the units that it leaves.
            left += std::max(0.0, gather - data / free) + std::max(0.0, sum - operation.seconds / free);
        }
    }
    CHECK(hidden.price()[Category::tensor_communication] == doctest::Approx(left));
    CHECK(layer("full", true).price().total() <= hidden.price().total());
    CHECK(layer("full", false).price().total() < layer("none", false).price().total());
}

}  // namespace orrery
