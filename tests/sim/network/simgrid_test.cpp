#include "sim/base/random.hpp"
#include "sim/network/simgrid_job.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

using namespace orrery;

namespace {

// A random fabric with random flows, start times and dependencies.
struct RandomScenario {
    Fabric fabric;
    Schedule schedule;
    PathChoice paths;
};

RandomScenario random_scenario(std::uint64_t seed) {
    RandomStream random(seed, "simgrid");
    FabricShape shape =
        test::hosts(2 + static_cast<std::uint32_t>(random.below(23)), 1 + static_cast<std::uint32_t>(random.below(8)),
                    1 + static_cast<std::uint32_t>(random.below(4)), 1e9 * (1 + static_cast<double>(random.below(50))),
                    random.below(2) == 0 ? 0 : 1e-6);
    shape.leaf_oversubscription = random.below(2) == 0 ? 1 : 1 + 3 * random.uniform();
    if (random.below(3) == 0) {
        shape.gpus_per_node = 4;
        shape.nics_per_node = 2;
        shape.intra_bandwidth = 100e9;
    }
    RandomScenario out{Fabric(shape), {}, random.below(2) == 0 ? PathChoice::spray : PathChoice::ecmp};
    const std::size_t count = 3 + random.below(30);
    const std::uint32_t gpus = out.fabric.gpus();
    std::vector<std::vector<std::uint32_t>> releases(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        Message m;
        m.from = static_cast<std::uint32_t>(random.below(gpus));
        m.to = (m.from + 1 + static_cast<std::uint32_t>(random.below(gpus - 1))) % gpus;
        m.bytes = std::floor(1e4 + 1e7 * random.uniform());
        m.delay = random.below(3) == 0 ? 0 : std::floor(1e9 * random.uniform() * 1e-3) * 1e-9;
        if (i > 0 && random.below(3) == 0) {
            releases[random.below(i)].push_back(i);
            m.waits_for = 1;
        }
        out.schedule.messages.push_back(m);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        out.schedule.messages[i].first_release = static_cast<std::uint32_t>(out.schedule.releases.size());
        out.schedule.messages[i].release_count = static_cast<std::uint32_t>(releases[i].size());
        out.schedule.releases.insert(out.schedule.releases.end(), releases[i].begin(), releases[i].end());
    }
    return out;
}

bool have_simgrid() {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    return std::filesystem::exists(self.parent_path() / "orrery-simgrid");
}

}  // namespace

TEST_CASE("fluid sharing equals SimGrid within 1e-9 or 10 ps on 1,000 random scenarios") {
    if (!have_simgrid()) {
        MESSAGE("skipped: this build has no SimGrid");
        return;
    }
    // Forty scenarios share a process: side by side, on links of their own.
    constexpr int kTogether = 40;
    double worst = 0;
    std::size_t compared = 0;
    std::size_t differing = 0;
    for (int batch = 0; batch < 25 * test::scale(); ++batch) {
        SimgridJob job;
        std::vector<double> ours;
        for (int k = 0; k < kTogether; ++k) {
            const RandomScenario s = random_scenario(static_cast<std::uint64_t>(batch * kTogether + k));
            MessageRunOptions options;
            options.paths = s.paths;
            const MessageRunResult result = run_messages(s.fabric, s.schedule, options);
            ours.insert(ours.end(), result.completions.begin(), result.completions.end());
            const auto first_link = static_cast<std::uint32_t>(job.capacities.size());
            const auto first_message = static_cast<std::uint32_t>(job.messages.size());
            for (std::size_t i = 0; i < s.fabric.resource_count(); ++i) {
                job.capacities.push_back(s.fabric.capacity(ResourceId(i)));
            }
            for (const Message& m : s.schedule.messages) {
                const Route route = s.fabric.route(GpuId(m.from), GpuId(m.to), s.paths,
                                                   (static_cast<std::uint64_t>(m.from) << 32) | m.to);
                SimgridJob::Message out;
                out.bytes = static_cast<std::uint64_t>(m.bytes);
                out.delay = m.delay + route.latency;
                out.waits_for = m.waits_for;
                for (const ResourceId link : route.resources()) {
                    out.links.push_back(first_link + link.value());
                }
                for (std::uint32_t r = 0; r < m.release_count; ++r) {
                    out.releases.push_back(first_message + s.schedule.releases[m.first_release + r]);
                }
                job.messages.push_back(std::move(out));
            }
        }
        const SimgridResult theirs = run_simgrid(job);
        for (std::size_t i = 0; i < ours.size(); ++i) {
            const double difference = std::abs(ours[i] - theirs.completions[i]);
            const double relative = difference / theirs.completions[i];
            ++compared;
            if (difference > 10e-12 && relative > 1e-9) {
                ++differing;
                worst = std::max(worst, relative);
            }
        }
    }
    INFO("compared " << compared << " completions, " << differing << " differ, worst " << worst);
    CHECK(differing == 0);
    CHECK(compared >= 10'000);
}

TEST_CASE("messages that are passed on one after another arrive under SimGrid as they do in fluid sharing") {
    if (!have_simgrid()) {
        MESSAGE("skipped: this build has no SimGrid");
        return;
    }
    for (const char* operation : {"broadcast", "reduce"}) {
        for (const char* algorithm : {"chain", "binomial"}) {
            CAPTURE(operation);
            CAPTURE(algorithm);
            const auto seconds = [&](const char* fidelity) {
                const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: collective
cluster: {{nodes: 8, node: dgx-h100, fabric: {{nodes_per_leaf: 8, rails: 8}}}}
collective: {{op: {}, algorithm: {}, size: 64 MiB}}
network: {{fidelity: {}}}
)",
                                                              operation, algorithm, fidelity));
                return run_scenario(s, test::model_cache(), {}).summary.find("collective_time_s")->value;
            };
            CHECK(seconds("simgrid") == doctest::Approx(seconds("fluid")).epsilon(1e-6).scale(0));
        }
    }
}

TEST_CASE("a SimGrid process that a signal ends makes the run infeasible, with the signal") {
    for (const char* command : {"kill -9 $$", "kill -15 $$"}) {
        const int status = std::system(command);
        std::string problem;
        try {
            require_finished(status);
        } catch (const InfeasibleError& error) {
            problem = error.what();
        }
        CHECK_MESSAGE(problem.find(command[6] == '9' ? "ended by signal 9 (Killed)"
                                                     : "ended by signal 15 (Terminated)") != std::string::npos,
                      problem);
    }
    CHECK_THROWS_AS(require_finished(std::system("exit 3")), InternalError);
    CHECK_NOTHROW(require_finished(std::system("exit 0")));
}
