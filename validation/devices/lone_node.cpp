#include "validation/devices/lone_node.hpp"

#include "sim/engine/engine.hpp"
#include "sim/engine/executor.hpp"
#include "sim/engine/fluid.hpp"

namespace orrery::validation {

namespace {

FabricShape one_node(std::uint32_t gpus) {
    FabricShape shape;
    shape.gpus_per_node = gpus;
    shape.intra_bandwidth = 1e11;
    return shape;
}

}  // namespace

struct LoneNode::Parts {
    Parts(NodeHost described, std::uint32_t gpus) : host(std::move(described)), fabric(one_node(gpus)), model(engine) {
        fabric.add_to(model);
    }
    NodeHost host;
    Fabric fabric;
    Engine engine;
    FluidModel model;
    std::unique_ptr<NodeMemory> memory;
};

LoneNode::LoneNode(NodeHost host, std::uint32_t gpus, double device_link)
    : parts_(std::make_unique<Parts>(std::move(host), gpus)) {
    parts_->memory = std::make_unique<NodeMemory>(parts_->host, parts_->fabric, device_link, parts_->model);
}

LoneNode::~LoneNode() = default;

const NodeMemory& LoneNode::memory() const {
    return *parts_->memory;
}

double LoneNode::seconds(const std::vector<std::vector<NodeMemory::Hop>>& chains, double bytes) {
    TaskGraph graph;
    for (const auto& chain : chains) {
        TaskId last;
        for (const NodeMemory::Hop& hop : chain) {
            Task task;
            task.duration = SimTime::from_seconds(hop.latency);
            const TaskId id = graph.add_activity(task, graph.add_demands(hop.demands), bytes);
            if (last.valid()) {
                graph.add_edge(last, id);
            }
            last = id;
        }
    }
    graph.freeze();
    Executor executor(parts_->engine, parts_->model, graph);
    executor.begin();
    parts_->engine.run();
    executor.end();
    return executor.finished_at().seconds();
}

}  // namespace orrery::validation
