#include "workloads/trace/flow_export.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

namespace orrery::trace {

OrderedFlows ordered_flows(const Schedule& schedule) {
    const auto count = static_cast<std::uint32_t>(schedule.messages.size());
    std::vector<std::vector<std::uint32_t>> before(count);
    std::vector<std::uint32_t> left(count, 0);
    for (std::uint32_t id = 0; id < count; ++id) {
        const Message& message = schedule.messages[id];
        if (message.group != Message::kNoGroup) {
            throw InfeasibleError("sums inside switches cannot be written as flows");
        }
        if (message.bytes != std::floor(message.bytes)) {
            throw InfeasibleError(fmt::format(
                "a message has {} bytes, and flows have whole ones: take a size that divides", message.bytes));
        }
        if (message.traffic_class != 0) {
            throw InfeasibleError("flows of several classes of traffic cannot be written");
        }
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            before[schedule.releases[message.first_release + k]].push_back(id);
        }
    }
    std::deque<std::uint32_t> ready;
    for (std::uint32_t id = 0; id < count; ++id) {
        left[id] = static_cast<std::uint32_t>(before[id].size());
        if (left[id] != schedule.messages[id].waits_for) {
            throw InfeasibleError("a flow that waits for some of several others cannot be written");
        }
        if (left[id] == 0) {
            ready.push_back(id);
        }
    }
    OrderedFlows out;
    std::vector<std::uint32_t> row(count, 0);
    while (!ready.empty()) {
        const std::uint32_t id = ready.front();
        ready.pop_front();
        row[id] = static_cast<std::uint32_t>(out.order.size());
        out.order.push_back(id);
        out.after.emplace_back();
        for (const std::uint32_t other : before[id]) {
            out.after.back().push_back(row[other]);
        }
        std::sort(out.after.back().begin(), out.after.back().end());
        const Message& message = schedule.messages[id];
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            const std::uint32_t next = schedule.releases[message.first_release + k];
            ORRERY_ASSERT(left[next] > 0);
            if (--left[next] == 0) {
                ready.push_back(next);
            }
        }
    }
    ORRERY_ASSERT(out.order.size() == count);
    return out;
}

std::string flows_csv(const Schedule& schedule) {
    const OrderedFlows flows = ordered_flows(schedule);
    std::string out = "src,dst,bytes,start,after\n";
    for (std::size_t row = 0; row < flows.order.size(); ++row) {
        const Message& message = schedule.messages[flows.order[row]];
        out += fmt::format("{},{},{},{},", message.from, message.to, message.bytes, message.delay);
        for (std::size_t i = 0; i < flows.after[row].size(); ++i) {
            out += fmt::format("{}{}", i > 0 ? ";" : "", flows.after[row][i] + 1);
        }
        out += "\n";
    }
    return out;
}

std::string htsim_matrix(const Schedule& schedule, std::uint32_t hosts) {
    const OrderedFlows flows = ordered_flows(schedule);
    // One trigger for each set of flows that others wait for.
    std::map<std::vector<std::uint32_t>, std::uint32_t> triggers;
    std::vector<std::vector<std::uint32_t>> fires(flows.order.size());
    for (const std::vector<std::uint32_t>& after : flows.after) {
        const auto [found, fresh] = after.empty()
                                        ? std::pair(triggers.end(), false)
                                        : triggers.try_emplace(after, static_cast<std::uint32_t>(triggers.size() + 1));
        for (const std::uint32_t cause : fresh ? after : std::vector<std::uint32_t>()) {
            fires[cause].push_back(found->second);
        }
    }
    std::string out =
        fmt::format("Nodes {}\nConnections {}\nTriggers {}\n", hosts, flows.order.size(), triggers.size());
    for (std::size_t row = 0; row < flows.order.size(); ++row) {
        const Message& message = schedule.messages[flows.order[row]];
        const double start = std::round(message.delay * 1e12);
        const bool waits = !flows.after[row].empty();
        if ((waits && start > 0) || fires[row].size() > 2) {
            throw InfeasibleError(
                fmt::format("htsim's connection matrix cannot say flow {}: {}; 'orrery export flows' can", row + 1,
                            fires[row].size() > 2
                                ? fmt::format("it releases {} groups of flows, and two triggers are all that a flow "
                                              "has",
                                              fires[row].size())
                                : "it starts some time after what it waits for"));
        }
        out += fmt::format("{}->{} id {} ", message.from, message.to, row + 1);
        out += waits ? fmt::format("trigger {}", triggers.at(flows.after[row])) : fmt::format("start {:.0f}", start);
        out += fmt::format(" size {:.0f}", message.bytes);
        const char* const names[] = {"recv_done_trigger", "send_done_trigger"};
        for (std::size_t i = 0; i < fires[row].size(); ++i) {
            out += fmt::format(" {} {}", names[i], fires[row][i]);
        }
        out += "\n";
    }
    std::vector<std::string> declared(triggers.size());
    for (const auto& [causes, id] : triggers) {
        ORRERY_ASSERT(id >= 1 && id <= declared.size());
        declared[id - 1] = causes.size() > 1 ? fmt::format("trigger id {} barrier count {}\n", id, causes.size())
                                             : fmt::format("trigger id {} oneshot\n", id);
    }
    for (const std::string& line : declared) {
        out += line;
    }
    return out;
}

}  // namespace orrery::trace
