// Benchmarks: prints what README quotes. Usage: orrery_bench [queue] [sharing] [scale] [all-to-all] [uneven]
// Without arguments the first three run, in half a minute; the last two take minutes and run when named.
//
// Speeds are for comparing inside one run, not across machines. SimGrid runs in a child process a case, at its default
// precision; only its own simulation is timed, without start-up and reading. Ours are medians of five, SimGrid's the best of five.

#include "sim/base/random.hpp"
#include "sim/engine/event_queue.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <queue>
#include <set>

using namespace orrery;

namespace {

double seconds_of(const std::function<void()>& work) {
    const auto started = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

// The first run, which touches fresh memory, does not count.
double median_of_five(const std::function<void()>& work) {
    work();
    double t[5];
    for (double& one : t) {
        one = seconds_of(work);
    }
    std::sort(t, t + 5);
    return t[2];
}

double peak_mib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Runs work in a process of its own, so that its peak memory is its own.
void in_child(const std::function<void()>& work) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        work();
        std::fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
}

struct Later {
    bool operator()(const Event& a, const Event& b) const {
        return a.time_ps != b.time_ps ? a.time_ps > b.time_ps : a.order > b.order;
    }
};

// Hold model: pop one, push one 20 to 100 ns or 0.5 to 1 us later.
template <class Push, class Pop>
double hold(std::size_t pending, std::size_t operations, const Push& push, const Pop& pop) {
    RandomStream random(1, "hold");
    const auto delay = [&] {
        return random.below(2) == 0 ? 20'000 + static_cast<std::int64_t>(random.below(80'000))
                                    : 500'000 + static_cast<std::int64_t>(random.below(500'000));
    };
    std::uint32_t sequence = 0;
    for (std::size_t i = 0; i < pending; ++i) {
        push(Event{delay(), event_order(Phase::network, sequence & 0xFFFF, sequence), 0, sequence});
        ++sequence;
    }
    const double seconds = seconds_of([&] {
        for (std::size_t i = 0; i < operations; ++i) {
            const Event event = pop();
            push(Event{event.time_ps + delay(), event_order(Phase::network, sequence & 0xFFFF, sequence), 0, sequence});
            ++sequence;
        }
    });
    return static_cast<double>(operations) / seconds * 1e-6;
}

void bench_queue() {
    fmt::print("event queue, M events/s (hold model, 20-100 ns and 0.5-1 us)\n");
    fmt::print("  {:>9} {:>12} {:>22}\n", "pending", "this queue", "std::priority_queue");
    for (const std::size_t pending : {1000UL, 100'000UL, 1'000'000UL}) {
        EventQueue queue;
        const double ours = hold(
            pending, 4'000'000, [&](const Event& e) { queue.push(e); }, [&] { return queue.pop(); });
        std::priority_queue<Event, std::vector<Event>, Later> reference;
        const double standard = hold(
            pending, 2'000'000, [&](const Event& e) { reference.push(e); },
            [&] {
                const Event e = reference.top();
                reference.pop();
                return e;
            });
        fmt::print("  {:>9} {:>12.1f} {:>22.1f}\n", pending, ours, standard);
    }
}

// Four live flows per host: each of them is followed by another to a random host, of random size.
Schedule churn(std::uint32_t hosts, std::uint32_t rounds) {
    RandomStream random(1, "churn");
    Schedule schedule;
    for (std::uint32_t i = 0; i < hosts * 4; ++i) {
        for (std::uint32_t r = 0; r < rounds; ++r) {
            Message m;
            m.from = i / 4;
            m.to = (m.from + 1 + static_cast<std::uint32_t>(random.below(hosts - 1))) % hosts;
            m.bytes = std::floor(1e6 + 9e6 * random.uniform());
            m.waits_for = r > 0 ? 1 : 0;
            m.first_release = static_cast<std::uint32_t>(schedule.releases.size());
            if (r + 1 < rounds) {
                m.release_count = 1;
                schedule.releases.push_back(static_cast<std::uint32_t>(schedule.messages.size()) + 1);
            }
            schedule.messages.push_back(m);
        }
    }
    return schedule;
}

void compare(const char* name, const Fabric& fabric, const Schedule& schedule, double required) {
    MessageRunOptions options;
    options.paths = PathChoice::ecmp;
    MessageRunResult ours;
    const double seconds = median_of_five([&] { ours = run_messages(fabric, schedule, options); });
    // SimGrid's best of five, where it takes under two seconds.
    MessageRunResult theirs = run_messages_on_simgrid(fabric, schedule, PathChoice::ecmp, false);
    for (int i = 0; i < 4 && theirs.wall_seconds < 2; ++i) {
        const MessageRunResult again = run_messages_on_simgrid(fabric, schedule, PathChoice::ecmp, false);
        theirs.wall_seconds = std::min(theirs.wall_seconds, again.wall_seconds);
    }
    const auto flows = static_cast<double>(schedule.messages.size());
    fmt::print("  {:<34} {:>9} {:>12.0f} {:>12.0f} {:>8.0f} x  (required {:.0f} x)  end {:.6g} / {:.6g} s\n", name,
               schedule.messages.size(), flows / seconds, flows / theirs.wall_seconds, theirs.wall_seconds / seconds,
               required, ours.seconds, theirs.seconds);
    std::fflush(stdout);
}

Fabric leaf_spine(std::uint32_t hosts) {
    return Fabric(test::hosts(hosts, 16, 16, 50e9));
}

Schedule traffic(TrafficPattern pattern, std::uint32_t hosts, double spread = 0) {
    TrafficSpec spec;
    spec.pattern = pattern;
    spec.size = 16.0 * 1024 * 1024;
    spec.spread = spread;
    return make_traffic(spec, hosts, 1);
}

void print_sharing_header() {
    fmt::print("fluid sharing, flows/s (leaf-spine, full bisection, one hashed path a flow)\n");
    fmt::print("  {:<34} {:>9} {:>12} {:>12}\n", "case", "flows", "fluid", "SimGrid CM02");
}

void bench_sharing() {
    print_sharing_header();
    compare("permutation, 4,096 hosts", leaf_spine(4096), traffic(TrafficPattern::permutation, 4096), 10);
    CollectiveSpec ring;
    ring.bytes = 64.0 * 1024 * 1024;
    compare("ring all-reduce, 256 hosts", leaf_spine(256), make_schedule(ring, 256, 1), 10);
    compare("churn, 4 live flows per host, 256", leaf_spine(256), churn(256, 8), 6);
}

void bench_all_to_all() {
    print_sharing_header();
    compare("all-to-all, 256 hosts, all at once", leaf_spine(256), traffic(TrafficPattern::all_to_all, 256), 500);
}

void bench_uneven() {
    fmt::print("all-to-all at 256 hosts with sizes 10 % uneven\n");
    const Fabric fabric = leaf_spine(256);
    const Schedule uneven = traffic(TrafficPattern::all_to_all, 256, 0.1);
    MessageRunOptions options;
    options.paths = PathChoice::ecmp;
    MessageRunResult windowed;
    for (const double window : {1e-4, 1e-5, 0.0}) {
        options.run.window = SimTime::from_seconds(window);
        MessageRunResult result;
        const double seconds = seconds_of([&] { result = run_messages(fabric, uneven, options); });
        fmt::print("  window {:>8}: {:8.2f} s, {} solves, last flow at {:.9g} s\n",
                   pretty_quantity(window, Dimension::time), seconds, result.solves, result.seconds);
        std::fflush(stdout);
        if (window == 1e-5) {
            windowed = result;
        } else if (window == 0) {
            double mean = 0;
            double worst = 0;
            for (std::size_t i = 0; i < result.completions.size(); ++i) {
                const double error = std::abs(windowed.completions[i] / result.completions[i] - 1);
                mean += error / static_cast<double>(result.completions.size());
                worst = std::max(worst, error);
            }
            fmt::print("  completions with a window of 10 us against exact: mean error {:.4f} %, worst {:.4f} %\n",
                       100 * mean, 100 * worst);
        }
    }
}

void bench_scale() {
    const std::string root = ORRERY_SOURCE_DIR;
    const auto scenario_run = [&](const char* what, const std::string& file,
                                  const std::vector<std::string>& overrides) {
        in_child([&] {
            const Scenario s = load_scenario(root + "/" + file, overrides, test::data());
            RunOutput out;
            const double seconds = seconds_of([&] { out = run_scenario(s, test::model_cache(), {}); });
            const Metric* messages = out.summary.find("messages");
            fmt::print("  {:<58} {:>8.3f} s {:>8.0f} MiB {:>12} events{}\n", what, seconds, peak_mib(),
                       out.summary.events,
                       messages != nullptr ? fmt::format(", {:.0f} messages", messages->value) : "");
        });
    };
    fmt::print("scale, one core\n");
    const std::string ring = "scenarios/collective/ring-4096.yaml";
    scenario_run("ring all-reduce of 64 MiB, 4,096 ranks, folded", ring, {});
    scenario_run("the same, one link 1 % slower (nothing folds)", ring,
                 {"collective.slow_rank=7", "collective.slow_factor=0.99"});
    const std::string big = "scenarios/training/megascale-175b-12288xA100.yaml";
    scenario_run("12,288-GPU training iteration, every rank", big, {"network.fold=false"});
    scenario_run("12,288-GPU training iteration, folded", big, {});
    in_child([&] {
        const FabricShape shape = test::rail_nodes(2048);
        const double before = peak_mib();
        std::size_t resources = 0;
        const double seconds = seconds_of([&] { resources = Fabric(shape).resource_count(); });
        fmt::print("  {:<58} {:>8.3f} s {:>8.1f} MiB {:>12} links\n", "fabric of 16,384 GPUs", seconds,
                   peak_mib() - before, resources);
    });
}

// Mean time of a price, over shapes that do not repeat.
void bench_cost() {
    fmt::print("prices of operations, H200\n");
    const Scenario scenario = read_scenario(
        parse_yaml("orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h200}\ncollective: {size: 1 MiB}\n",
                   "cost"),
        "cost", test::data());
    const CostModel& model = test::model_cache().device(scenario.cluster.node.gpu, ComputeKind::calibrated);
    const auto measure = [&](const char* name, const auto& operation) {
        constexpr int kPrices = 1'000'000;
        double sum = 0;
        double best = 1e300;
        for (int round = 0; round < 5; ++round) {
            // Processor time: other programs on the machine must not count.
            const std::clock_t started = std::clock();
            for (int i = 0; i < kPrices; ++i) {
                sum += model.seconds(operation(i)).value();
            }
            best = std::min(best, static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC);
        }
        fmt::print("  {:<58} {:>8.0f} ns (sum {:.6g} s)\n", name, best / kPrices * 1e9, sum);
    };
    measure("matrix product", [](int i) { return Gemm{1.0 + i % 8000, 128.0 + i % 5000, 256.0 + i % 7000}; });
    measure("attention, prompt", [](int i) { return Attention{1.0 + i % 64, 16.0 + i % 5000, 16.0 + i % 5000, 128}; });
    measure("attention, decode", [](int i) { return Attention{1.0 + i % 512, 1, 128.0 + i % 5000, 128}; });
    measure("fused experts", [](int i) { return FusedExperts{1.0 + i % 4096, 8, 2, 4096, 14336}; });
    measure("norm", [](int i) { return Streaming{4096.0 * (1 + i % 8000), 1, StreamingKind::norm}; });
}

}  // namespace

int main(int argc, char** argv) {
    std::set<std::string> wanted(argv + 1, argv + argc);
    const bool all = wanted.empty();
    if (all || wanted.contains("queue")) {
        bench_queue();
    }
    if (all || wanted.contains("sharing")) {
        bench_sharing();
    }
    if (all || wanted.contains("cost")) {
        bench_cost();
    }
    if (wanted.contains("all-to-all")) {
        bench_all_to_all();
    }
    if (wanted.contains("uneven")) {
        bench_uneven();
    }
    if (all || wanted.contains("scale")) {
        bench_scale();
    }
    return 0;
}
