// kind: replay. A recorded program, as it was or changed.

#include "tools/driver/kinds/replay.hpp"

#include "tools/driver/given_faults.hpp"
#include "topologies/device_preset.hpp"
#include "workloads/replay/recorded_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::driver {

namespace {

class ReplayOfRecord final : public ScenarioRun {
  public:
    explicit ReplayOfRecord(const RunContext& context)
        : options_(context.options),
          recorded_on_(spec_of(context).recorded_on),
          trace_(read_replay(context.scenario.file(spec_of(context).trace))),
          run_(trace_, spec_of(context), nodes_of(context), context.placement, context.scenario.network.path_choice(),
               context.simulation, context.start, devices_of(context)) {
        note_device(context);
        run_.set_progress(context.options.progress);
    }

    void summarise(RunOutput& out) override {
        ReplayResult result = run_.result(options_.timeline);
        out.seconds = result.seconds;
        Summary& summary = out.summary;
        summary.add("replay_time_s", result.seconds, "s");
        if (result.recorded_s >= 0) {
            summary.add("recorded_time_s", result.recorded_s, "s");
        }
        summary.add("operations", static_cast<double>(result.tasks), "1");
        summary.breakdown = {{"device", result.device_s},
                             {"exposed communication", result.exposed_communication_s},
                             {"host", result.host_s},
                             {"idle", result.idle_s}};
        summary.notes.push_back(fmt::format("the trace was recorded by {}; {} rank{} simulated",
                                            trace_.meta.at("source"), result.ranks,
                                            result.ranks == 1 ? " was" : "s were"));
        constexpr double kFaithful = 0.01;
        if (result.unchanged && result.recorded_s > 0) {
            const double error = result.seconds / result.recorded_s - 1;
            summary.notes.push_back(
                fmt::format("an unchanged replay differs from the recorded time by {:+.3f} %{}", error * 100,
                            std::abs(error) > kFaithful ? ", more than the 1 % that is expected" : ""));
        }
        if (!device_note_.empty()) {
            summary.notes.push_back(device_note_);
        }
        if (!recorded_on_.empty()) {
            summary.notes.push_back(
                fmt::format("the trace was recorded on {}: {:.0f} % of the kernels' time is predicted again from what "
                            "they compute, "
                            "the rest is scaled as a large product or stream",
                            recorded_on_, 100 * result.repriced));
        }
        out.timeline = std::move(result.timeline);
        out.replay_path = std::move(result.critical_path);
    }

  private:
    static const ReplaySpec& spec_of(const RunContext& context) { return context.scenario.as<RecordKind>().replay; }

    static const CostModel& model_of(const RunContext& context, const DeviceSpec& device) {
        return context.models.device(device, ComputeKind::calibrated);
    }

    static ReplayDevices devices_of(const RunContext& context) {
        const std::string& name = spec_of(context).recorded_on;
        const ClusterSpec& cluster = context.scenario.cluster;
        const auto dpu = [&context](const std::string& preset) {
            const DataDirectory& data = context.models.data();
            DpuSpec out;
            std::vector<Diagnostic> errors;
            read_fields(load_yaml(data.path(kDpuPresets, preset)), data, errors,
                        [&](Fields& fields) { describe(fields, out); });
            throw_if_any(errors);
            return out;
        };
        return {name.empty() ? nullptr : &model_of(context, read_device(name, context.models.data())),
                cluster.node.has_host && !cluster.mixed ? &cluster.node.host : nullptr, dpu};
    }

    static std::vector<ReplayNode> nodes_of(const RunContext& context) {
        const ClusterSpec& cluster = context.scenario.cluster;
        std::vector<ReplayNode> nodes;
        const auto add = [&](const NodeSpec& node) {
            const bool elsewhere = !spec_of(context).recorded_on.empty();
            nodes.push_back({&node.gpu, &context.models.collectives(node, context.scenario.network.collectives),
                             elsewhere ? &model_of(context, node.gpu) : nullptr});
        };
        for (const GroupSpec& group : cluster.groups) {
            add(group.node);
        }
        if (nodes.empty()) {
            add(cluster.node);
        }
        return nodes;
    }

    // The record may name its device; times of kernels are then those of another one unless the scenario says so.
    void note_device(const RunContext& context) {
        const ClusterSpec& cluster = context.scenario.cluster;
        const auto recorded = trace_.meta.find(kRecordedOn);
        if (!recorded_on_.empty() || cluster.mixed || recorded == trace_.meta.end()) {
            return;
        }
        const std::string& device = cluster.node.gpu.name;
        const std::string preset = device_preset_of(recorded->second);
        if (device == (preset.empty() ? recorded->second : read_device(preset, context.models.data()).name)) {
            return;
        }
        device_note_ = fmt::format(
            "kernels take as long as on {}, where they were recorded, and not as on {}: 'replay: {{recorded_on: {}}}' "
            "prices them for it",
            recorded->second, device, preset.empty() ? "PRESET" : preset);
    }

    const RunOptions& options_;
    std::string recorded_on_;
    std::string device_note_;
    ReplayTrace trace_;
    ReplayRun run_;
};

}  // namespace

void RecordKind::describe(Fields& fields, const Scenario&) {
    fields.section({"compute", "recorded program of the workload", true}, [&](Fields& inner) {
        std::size_t model = 0;
        inner.choice({"model", "replay: times come from the record"}, {"replay"}, model);
        inner.text({"trace", "file written by 'orrery import'; relative paths start at the scenario", true},
                   replay.trace);
    });
    describe_given(fields, faults);
    fields.section({"replay", "changes to the recorded program"},
                   [&](Fields& inner) { orrery::describe(inner, replay); });
}

RunCost RecordKind::cost(const Scenario& whole) const {
    const double ranks = std::max(1.0, static_cast<double>(replay.ranks));
    return cost_of(size_of(whole.file(replay.trace)) / kBytesPerRow * ranks, kTask, "operations");
}

std::unique_ptr<ScenarioRun> RecordKind::prepare(const RunContext& context) const {
    return std::make_unique<ReplayOfRecord>(context);
}

static constexpr const char* kReplayCards[] = {"replay_time_s", "recorded_time_s", "operations"};

const KindRow RecordKind::kRow = {
    .name = "replay",
    .headline = "replay_time_s",
    .cards = kReplayCards,
    .drawing = TimelineDrawing::streams,
    .network = {.library = true, .collectives = true, .sends = true},
    .make = make_kind<RecordKind>,
};

}  // namespace orrery::driver
