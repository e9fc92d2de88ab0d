#include "topologies/graph.hpp"

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>

#include <algorithm>
#include <limits>

namespace orrery::topologies {

namespace {

using Graph = boost::compressed_sparse_row_graph<boost::directedS>;

// GPUs do not forward: only the first one has links out.
Graph build(const Fabric& fabric, GpuId from) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    for (const Fabric::Link& link : fabric.links()) {
        if (link.from == from.value() || fabric.vertex_kind(link.from) != VertexKind::gpu) {
            ORRERY_ASSERT(link.from < fabric.vertex_count() && link.to < fabric.vertex_count());
            edges.emplace_back(link.from, link.to);
        }
    }
    return Graph(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(), fabric.vertex_count());
}

}  // namespace

std::vector<std::uint32_t> distances_from(const Fabric& fabric, GpuId from) {
    const Graph graph = build(fabric, from);
    constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();
    std::vector<std::uint32_t> distance(fabric.vertex_count(), kUnreached);
    distance[from.value()] = 0;
    const auto record = boost::record_distances(distance.data(), boost::on_tree_edge());
    boost::breadth_first_search(graph, static_cast<Graph::vertex_descriptor>(from.value()),
                                boost::visitor(boost::make_bfs_visitor(record)));
    ORRERY_ASSERT(std::count(distance.begin(), distance.end(), 0U) == 1);  // no other vertex is as near
    return distance;
}

GraphReport inspect(const Fabric& fabric) {
    GraphReport report;
    report.vertices = fabric.vertex_count();
    report.links = fabric.links().size();
    const std::vector<std::uint32_t> distance = distances_from(fabric, GpuId(0));
    for (std::uint32_t gpu = 0; gpu < fabric.gpus(); ++gpu) {
        if (distance[gpu] != std::numeric_limits<std::uint32_t>::max()) {
            ++report.reachable_gpus;
            report.diameter_from_first = std::max(report.diameter_from_first, distance[gpu]);
        }
    }
    ORRERY_ASSERT(report.reachable_gpus >= 1 && report.reachable_gpus <= fabric.gpus());
    ORRERY_ASSERT(report.diameter_from_first < report.vertices);
    return report;
}

}  // namespace orrery::topologies
