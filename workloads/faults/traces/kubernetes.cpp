// Nodes that Kubernetes saw go and come back: the columns TIME,REASON,OBJECT of its events (kubectl get events -o custom-columns=
// TIME:.lastTimestamp,REASON:.reason,OBJECT:.involvedObject.name, with commas between). NodeNotReady takes a node away and NodeReady
// brings it back; other reasons say nothing of the kind. Times count from the first event of the file.

#include "sim/base/text.hpp"
#include "workloads/faults/traces/format.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace orrery::faults {

namespace {

constexpr const char* kEventsHeader = "TIME,REASON,OBJECT";

std::vector<TimedFault> read_kubernetes(FaultLines& lines, const JobShape& shape) {
    struct Seen {
        double at_s;
        bool ready;
        std::string node;
    };
    std::vector<Seen> events;
    double first = std::numeric_limits<double>::infinity();
    for (const auto& [at, line] : lines.rows()) {
        const auto cells = split(line, ',');
        double time = 0;
        if (cells.size() != 3 || !parse_instant(cells[0], time)) {
            lines.fail(at, std::string("expected ") + kEventsHeader + " with a time such as 2026-01-31T12:00:00Z");
            continue;
        }
        first = std::min(first, time);
        if (cells[1] == "NodeNotReady" || cells[1] == "NodeReady") {
            events.push_back({time, cells[1] == "NodeReady", std::string(cells[2])});
        }
    }
    std::stable_sort(events.begin(), events.end(), [](const Seen& a, const Seen& b) { return a.at_s < b.at_s; });
    std::vector<Absence> absences;
    std::map<std::string, std::size_t> away;  // by node, its absence
    for (const Seen& event : events) {
        const auto found = away.find(event.node);
        if (!event.ready && found == away.end()) {
            away[event.node] = absences.size();
            absences.push_back({event.node, event.at_s - first, std::numeric_limits<double>::infinity()});
        } else if (event.ready && found != away.end()) {
            absences[found->second].to_s = event.at_s - first;
            away.erase(found);
        }
    }
    return faults_of_absences(std::move(absences), shape);
}

}  // namespace

extern const FaultTraceFormat kKubernetesFormat = {"kubernetes", "TIME,REASON,OBJECT: events of Kubernetes",
                                                   [](std::string_view line) { return line == kEventsHeader; },
                                                   read_kubernetes};

}  // namespace orrery::faults
