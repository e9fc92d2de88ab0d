// orrery-simgrid JOB RESULT: runs a schedule of messages on SimGrid (see sim/network/simgrid_job.hpp).
//
// Routes come from our arithmetic: a zone of our own hands SimGrid the path of the message that is being started. Links
// have no latency (SimGrid weighs shares by it); delays are timers. Messages are created when what they wait for has
// arrived, because SimGrid keeps communications that wait in a linear list.

#include "sim/network/simgrid_job.hpp"

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

namespace {

namespace sg4 = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

// A zone whose route is whatever was set last: SimGrid asks for it when a communication starts.
class PathZone final : public routing::NetZoneImpl {
  public:
    explicit PathZone(const std::string& name) : NetZoneImpl(name) {}
    std::vector<simgrid::kernel::resource::StandardLinkImpl*> path;

  private:
    void get_local_route(const routing::NetPoint*, const routing::NetPoint*, routing::Route* into,
                         double* latency) override {
        into->link_list_ = path;
        *latency = 0;
    }
};

class Runner {
  public:
    Runner(const orrery::SimgridJob& job, PathZone& zone, sg4::Host* from, sg4::Host* to,
           std::vector<sg4::Link*> handles)
        : job_(job),
          zone_(zone),
          from_(from),
          to_(to),
          handles_(std::move(handles)),
          completions(job.messages.size(), -1) {
        for (const sg4::Link* link : handles_) {
            links_.push_back(link->get_impl());
        }
        for (const auto& message : job.messages) {
            waiting_.push_back(message.waits_for);
        }
        sg4::Activity::on_completion_cb([this](const sg4::Activity& activity) { done(activity); });
    }

    void start_roots() {
        for (std::uint32_t id = 0; id < waiting_.size(); ++id) {
            if (job_.messages[id].waits_for == 0) {
                begin(id);
            }
        }
        for (const auto& change : job_.changes) {
            simgrid::kernel::timer::Timer::set(change.time, [this, change] { apply(change); });
        }
    }

  private:
    void apply(const orrery::SimgridJob::Change& change) {
        using What = orrery::SimgridJob::Change::What;
        if (change.what == What::capacity) {
            handles_[change.index]->set_bandwidth(change.capacity);
            return;
        }
        const auto entry = under_way_.find(change.index);
        if (entry == under_way_.end()) {
            return;
        }
        if (change.what == What::suspend) {
            entry->second->suspend();
        } else if (change.what == What::resume) {
            entry->second->resume();
        } else {
            // SimGrid still looks at what was cancelled.
            cancelled_.push_back(entry->second);
            under_way_.erase(entry);
            cancelled_.back()->cancel();
        }
    }

    void begin(std::uint32_t id) {
        if (job_.messages[id].delay > 0) {
            simgrid::kernel::timer::Timer::set(sg4::Engine::get_clock() + job_.messages[id].delay,
                                               [this, id] { share(id); });
        } else {
            share(id);
        }
    }

    void share(std::uint32_t id) {
        zone_.path.clear();
        for (const std::uint32_t link : job_.messages[id].links) {
            zone_.path.push_back(links_[link]);
        }
        sg4::CommPtr comm = sg4::Comm::sendto_init();
        comm->set_name(std::to_string(id));
        comm->set_payload_size(job_.messages[id].bytes);
        comm->set_source(from_);
        comm->vetoable_start();
        comm->set_destination(to_);  // the last thing it lacked: it starts here, and asks the zone for its path
        under_way_[id] = comm;
    }

    void done(const sg4::Activity& activity) {
        const auto id = static_cast<std::uint32_t>(std::stoul(activity.get_name()));
        const auto entry = under_way_.find(id);
        if (entry == under_way_.end()) {
            return;  // cancelled
        }
        ended_ = std::move(entry->second);
        under_way_.erase(entry);
        completions[id] = sg4::Engine::get_clock();
        for (const std::uint32_t next : job_.messages[id].releases) {
            if (--waiting_[next] == 0) {
                begin(next);
            }
        }
    }

    const orrery::SimgridJob& job_;
    PathZone& zone_;
    sg4::Host* from_;
    sg4::Host* to_;
    std::vector<sg4::Link*> handles_;
    std::vector<simgrid::kernel::resource::StandardLinkImpl*> links_;
    std::vector<std::uint32_t> waiting_;
    std::map<std::uint32_t, sg4::CommPtr> under_way_;
    std::vector<sg4::CommPtr> cancelled_;
    sg4::CommPtr ended_;  ///< the last one, which SimGrid still looks at behind the callback

  public:
    std::vector<double> completions;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: orrery-simgrid JOB RESULT\n");
        return 2;
    }
    std::ifstream stream(argv[1], std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    const orrery::SimgridJob job = orrery::read_job(text);

    char quiet[] = "--log=root.thresh:critical";
    char* arguments[] = {argv[0], quiet, nullptr};
    int count = 2;
    sg4::Engine engine(&count, arguments);
    sg4::Engine::set_config("network/model:CM02");
    sg4::Engine::set_config("network/crosstraffic:0");
    sg4::Engine::set_config("network/TCP-gamma:0");
    sg4::Engine::set_config("network/optim:Lazy");
    if (job.tightened) {
        sg4::Engine::set_config("surf/precision:1e-14");
        sg4::Engine::set_config("maxmin/precision:1e-12");
    }
    auto* zone = new PathZone("fabric");  // owned by the engine
    sg4::NetZone* iface = zone->get_iface();
    sg4::Host* from = iface->create_host("from", 1e9);
    sg4::Host* to = iface->create_host("to", 1e9);
    std::vector<sg4::Link*> links;
    for (std::size_t i = 0; i < job.capacities.size(); ++i) {
        sg4::Link* link = iface->create_link("l" + std::to_string(i), job.capacities[i]);
        link->set_latency(0);
        link->seal();
        links.push_back(link);
    }
    iface->seal();
    Runner runner(job, *zone, from, to, std::move(links));
    // No actor is involved: communications are started here and in the kernel's callbacks.
    const auto started = std::chrono::steady_clock::now();
    runner.start_roots();
    engine.run();
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    std::FILE* out = std::fopen(argv[2], "w");
    if (out == nullptr) {
        return 4;
    }
    std::fprintf(out, "%.17g\n", wall);
    for (const double completion : runner.completions) {
        std::fprintf(out, "%.17g\n", completion);
    }
    std::fclose(out);
    return 0;
}
