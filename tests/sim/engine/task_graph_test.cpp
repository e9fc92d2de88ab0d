// A graph with copies runs as the graph that says each of them.

#include "sim/engine/task_graph.hpp"
#include "sim/run/simulation.hpp"
#include "tests/support/fabrics.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace orrery;

namespace {

Task fixed(double seconds, std::uint32_t rank) {
    Task out;
    out.duration = SimTime::from_seconds(seconds);
    out.rank = rank;
    return out;
}

std::vector<std::uint32_t> successors(const TaskGraph& graph, TaskId id) {
    std::vector<std::uint32_t> out;
    graph.for_successors(id, [&](std::uint32_t next) { out.push_back(next); });
    return out;
}

}  // namespace

TEST_CASE("an edge leads to the copies that have a member in common, and each counts") {
    TaskGraph graph;
    graph.set_copies(4);
    const std::uint16_t pairs = graph.add_partition({0, 1, 0, 1});
    CHECK(graph.add_partition({0, 1, 0, 1}) == pairs);
    CHECK(graph.add_partition({0, 1, 2, 3}) == TaskGraph::kEach);
    const TaskId pass = graph.add(fixed(1, 10));
    const TaskId sum = graph.add(fixed(1, 10));
    const TaskId norm = graph.add(fixed(1, 10));
    const TaskId step = graph.add(fixed(1, 10));
    graph.set_partition(sum, pairs);
    graph.set_partition(norm, TaskGraph::kTogether);
    graph.add_edge(pass, sum);
    graph.add_edge(sum, norm);
    graph.add_edge(norm, step);
    graph.freeze();
    CHECK(graph.size() == 4 + 2 + 1 + 4);
    CHECK(successors(graph, graph.copy_of(pass, 3)) == std::vector<std::uint32_t>{5});
    CHECK(graph.copy_of(sum, 2) == graph.copy_of(sum, 0));
    CHECK(successors(graph, graph.copy_of(sum, 0)) == std::vector<std::uint32_t>{6, 6});
    CHECK(successors(graph, graph.copy_of(norm, 2)) == std::vector<std::uint32_t>{7, 8, 9, 10});
    CHECK(graph.predecessor_counts() == std::vector<std::uint32_t>{0, 0, 0, 0, 2, 2, 4, 1, 1, 1, 1});
    CHECK(graph.task(graph.copy_of(sum, 3)).rank == 11);
    CHECK(graph.task(graph.copy_of(step, 3)).rank == 13);
    CHECK(graph.original(graph.copy_of(step, 3)) == step);
}

// Passes of 100 members, transfers of neighbours among them over links of their own or shared ones, and a barrier at the end.
TEST_CASE("a graph with copies takes as long as one of all its tasks") {
    constexpr std::uint32_t kMembers = 100;
    const Fabric fabric(test::hosts(4, 2, 2, 50e9, 500e-9));
    std::vector<SimTime> times[2];
    for (const bool copies : {true, false}) {
        Simulation simulation(fabric, RunSettings());
        std::vector<ResourceId> links;
        for (std::uint32_t i = 0; i < kMembers / 10; ++i) {
            links.push_back(simulation.resources().add_resource(1e9 * (1 + i % 3)));
        }
        TaskGraph graph;
        std::vector<std::uint32_t> cells(kMembers);
        for (std::uint32_t i = 0; i < kMembers; ++i) {
            cells[i] = i / 5;
        }
        const std::uint32_t own = static_cast<std::uint32_t>(graph.demand_set_count());
        for (std::uint32_t i = 0; i < kMembers; ++i) {
            graph.add_demands({Demand{links[i % links.size()], 1}});
        }
        const std::uint32_t shared = static_cast<std::uint32_t>(graph.demand_set_count());
        for (std::uint32_t i = 0; i < kMembers / 5; ++i) {
            graph.add_demands({Demand{links[i % links.size()], 0.5}, Demand{links[(i + 1) % links.size()], 1}});
        }
        std::vector<TaskId> ends;
        if (copies) {
            graph.set_copies(kMembers);
            const TaskId pass = graph.add(fixed(1, 0));
            const TaskId send = graph.add_activity(fixed(1e-3, 0), own, 1e8);
            const TaskId sum = graph.add_activity(fixed(1e-3, 0), shared, 3e8);
            graph.set_partition(sum, graph.add_partition(cells));
            const TaskId norm = graph.add(fixed(0, 0));
            graph.set_partition(norm, TaskGraph::kTogether);
            const TaskId step = graph.add(fixed(0.5, 0));
            graph.add_edge(pass, send);
            graph.add_edge(pass, sum);
            graph.add_edge(send, norm);
            graph.add_edge(sum, norm);
            graph.add_edge(norm, step);
            graph.freeze();
            for (const TaskId one : {pass, send, sum, norm, step}) {
                for (std::uint32_t i = 0; i < kMembers; ++i) {
                    ends.push_back(graph.copy_of(one, i));
                }
            }
        } else {
            std::vector<TaskId> passes, sends, sums, norms, steps;
            const TaskId norm = graph.add(fixed(0, 0));
            for (std::uint32_t i = 0; i < kMembers; ++i) {
                passes.push_back(graph.add(fixed(1, i)));
                sends.push_back(graph.add_activity(fixed(1e-3, i), own + i, 1e8));
                sums.push_back(i % 5 == 0 ? graph.add_activity(fixed(1e-3, i), shared + i / 5, 3e8) : sums.back());
                norms.push_back(norm);
                steps.push_back(graph.add(fixed(0.5, i)));
                graph.add_edge(passes[i], sends[i]);
                graph.add_edge(passes[i], sums[i]);
                graph.add_edge(sends[i], norm);
                graph.add_edge(sums[i], norm);
                graph.add_edge(norm, steps[i]);
            }
            graph.freeze();
            for (const auto& list : {passes, sends, sums, norms, steps}) {
                ends.insert(ends.end(), list.begin(), list.end());
            }
        }
        const Executor& executor = simulation.add(graph);
        simulation.run();
        for (const TaskId id : ends) {
            times[copies ? 0 : 1].push_back(executor.end_of(id));
        }
    }
    CHECK(times[0] == times[1]);
}
