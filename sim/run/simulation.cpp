#include "sim/run/simulation.hpp"

#include "sim/engine/fluid.hpp"
#include "sim/network/ample_links.hpp"
#include "sim/network/analytic.hpp"
#include "sim/network/packet/packet_model.hpp"

namespace orrery::run {

namespace {

// Begins the jobs that start after the run.
class Starter final : public EventHandler {
  public:
    explicit Starter(const std::vector<std::unique_ptr<Job>>& jobs) : jobs_(jobs) {}
    void on_event(std::uint32_t job) override { jobs_[job]->begin(); }

  private:
    const std::vector<std::unique_ptr<Job>>& jobs_;
};

}  // namespace

const std::vector<std::string>& fidelity_names() {
    static const std::vector<std::string> kNames = {"analytic", "fluid", "simgrid", "packet"};
    return kNames;
}

Simulation::Simulation() : resources_(std::make_unique<FluidModel>(engine_)) {}

Simulation::Simulation(const Fabric& fabric, const RunSettings& settings) : fabric_(&fabric) {
    ORRERY_ASSERT(settings.fidelity != Fidelity::simgrid);
    AnalyticModel* in_order = nullptr;
    if (settings.fidelity == Fidelity::packet) {
        auto packets = std::make_unique<PacketModel>(engine_, fabric, settings.packets, settings.link_events,
                                                     settings.seed, settings.links_change, settings.threads);
        packets_ = packets.get();
        resources_ = std::move(packets);
    } else if (settings.fidelity == Fidelity::analytic) {
        auto analytic = std::make_unique<AnalyticModel>(engine_);
        in_order = analytic.get();
        resources_ = std::move(analytic);
    } else {
        resources_ = std::make_unique<FluidModel>(engine_, settings.window);
    }
    fabric.add_to(*resources_);
    if (in_order != nullptr) {
        for (const ResourceId link : ample_links(fabric)) {
            in_order->set_ample(link);
        }
    }
}

JobPlace Simulation::next_place(SimTime start) const {
    constexpr std::size_t kMostJobs = 255;
    if (jobs_.size() >= kMostJobs) {
        throw InfeasibleError("more than " + std::to_string(kMostJobs) + " jobs in one run");
    }
    return {start, static_cast<std::uint32_t>(jobs_.size()) * JobPlace::kEntitiesPerJob};
}

template <class T, class Work>
T& Simulation::add_job(Work& work, SimTime start) {
    auto job = std::make_unique<T>(engine_, *resources_, work, next_place(start));
    T& out = *job;
    jobs_.push_back(std::move(job));
    starts_.push_back(start);
    return out;
}

Executor& Simulation::add(const TaskGraph& graph, SimTime start) {
    return add_job<Executor>(graph, start);
}

Dispatcher& Simulation::add(TaskSource& source, SimTime start) {
    return add_job<Dispatcher>(source, start);
}

void Simulation::add(std::span<TaskSource* const> parts, SimTime start) {
    (void)add_job<SourceParts>(parts, start);
}

void Simulation::run_ahead() {
    if (packets_ != nullptr) {
        packets_->run_ahead();
    }
}

void Simulation::number_flows() {
    if (packets_ != nullptr) {
        packets_->number_flows();
    }
}

void Simulation::run() {
    Starter starter(jobs_);
    const std::uint32_t handler = engine_.add_handler(starter);
    for (std::uint32_t job = 0; job < jobs_.size(); ++job) {
        if (starts_[job] == SimTime()) {
            jobs_[job]->begin();
        } else {
            engine_.schedule(starts_[job], event_order(Phase::device, job * JobPlace::kEntitiesPerJob, 0), handler,
                             job);
        }
    }
    engine_.run();
    for (const std::unique_ptr<Job>& job : jobs_) {
        job->end();
    }
    resources_->require_conserved();
}

ResourceReport Simulation::report() const {
    return resources_->report(fabric_ != nullptr ? fabric_->resource_count() : 0);
}

std::optional<PacketStatistics> Simulation::packet_statistics() const {
    return packets_ != nullptr ? std::optional(packets_->network().statistics()) : std::nullopt;
}

std::vector<FlowTime> Simulation::flow_times() const {
    return packets_ != nullptr ? packets_->flow_times() : std::vector<FlowTime>();
}

PacketReport Simulation::packet_report() const {
    return packets_ != nullptr ? packets_->packet_report() : PacketReport();
}

}  // namespace orrery::run
