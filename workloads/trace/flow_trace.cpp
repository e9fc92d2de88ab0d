#include "workloads/trace/flow_trace.hpp"

#include "sim/base/error.hpp"
#include "sim/network/packet/link_events.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

namespace orrery::trace {

namespace {

constexpr std::size_t kMostErrors = 49;

// The lines of a file with the errors found in them.
class Lines {
  public:
    explicit Lines(const std::string& path) : lines_(path) {}
    bool next(std::string& line) {
        while (lines_.next(line)) {
            if (!line.empty() && line[0] != '#') {
                return true;
            }
        }
        return false;
    }
    void fail(const std::string& text, int column = 1) {
        errors_.push_back(Diagnostic{lines_.path(), lines_.number(), column, text, ErrorCode::malformed_trace});
        if (errors_.size() >= kMostErrors) {
            errors_.push_back(Diagnostic{lines_.path(), 0, 0, "and perhaps more: the file is read no further",
                                         ErrorCode::malformed_trace});
            throw ConfigError(errors_);
        }
    }
    void finish() { throw_if_any(errors_); }

  private:
    InputLines lines_;
    std::vector<Diagnostic> errors_;
};

struct Cell {
    std::string text;
    int column;
};

std::vector<Cell> parts(const Cell& of, char separator) {
    std::vector<Cell> out;
    std::size_t start = 0;
    while (true) {
        const std::size_t end = of.text.find(separator, start);
        out.push_back({of.text.substr(start, end - start), of.column + static_cast<int>(start)});
        if (end == std::string::npos) {
            return out;
        }
        start = end + 1;
    }
}

std::vector<Cell> cells(const std::string& line) {
    return parts({line, 1}, ',');
}

// A number within bounds; says what is wrong otherwise.
std::optional<double> number(Lines& lines, const Cell& cell, const char* what, double low, double high, bool whole) {
    double value = 0;
    if (!parse_number(cell.text, value) || value < low || value > high ||
        (whole && value != static_cast<double>(static_cast<std::int64_t>(value)))) {
        lines.fail(fmt::format("'{}' must be {} number from {:.15g} to {:.15g}, not '{}'", what,
                               whole ? "a whole" : "a", low, high, cell.text),
                   cell.column);
        return std::nullopt;
    }
    return value;
}

// The index of a flow that this one waits for. Flows wait for those of earlier rows, so that none wait for each other.
std::optional<std::uint32_t> predecessor(Lines& lines, const Cell& cell, std::uint32_t index) {
    double value = 0;
    if (parse_number(cell.text, value) && value > index && value < 4294967295.0) {
        lines.fail(
            fmt::format("flow {} cannot wait for flow {:.15g}: 'after' names flows of earlier rows, so that none wait "
                        "for each other",
                        index + 1, value),
            cell.column);
        return std::nullopt;
    }
    const auto row = number(lines, cell, "after", 1, index, true);
    return row ? std::optional(static_cast<std::uint32_t>(*row) - 1) : std::nullopt;
}

// Messages with what each waits for, as a schedule.
Schedule schedule_of(std::vector<Message> messages, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& edges) {
    Schedule out;
    for (const auto& [before, after] : edges) {
        ++messages[before].release_count;
        ++messages[after].waits_for;
    }
    std::uint32_t first = 0;
    for (Message& message : messages) {
        message.first_release = first;
        first += message.release_count;
    }
    out.releases.resize(first);
    std::vector<std::uint32_t> filled(messages.size(), 0);
    for (const auto& [before, after] : edges) {
        ORRERY_ASSERT(filled[before] < messages[before].release_count);
        out.releases[messages[before].first_release + filled[before]++] = after;
    }
    out.messages = std::move(messages);
    return out;
}

// True when every message is released by others that are.
bool can_start(const Schedule& schedule) {
    std::vector<std::uint32_t> waits;
    std::vector<std::uint32_t> ready;
    for (std::uint32_t id = 0; id < schedule.messages.size(); ++id) {
        waits.push_back(schedule.messages[id].waits_for);
        if (waits[id] == 0) {
            ready.push_back(id);
        }
    }
    std::size_t started = 0;
    while (started < ready.size()) {
        const Message& message = schedule.messages[ready[started++]];
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            const std::uint32_t next = schedule.releases[message.first_release + k];
            if (--waits[next] == 0) {
                ready.push_back(next);
            }
        }
    }
    return started == schedule.messages.size();
}

constexpr double kMostBytes = 9e15;
constexpr double kMostSeconds = 9e6;
constexpr std::size_t kMostFlows = 100'000'000;

void add(Lines& lines, std::vector<Message>& messages, double from, double to, double bytes, double delay) {
    if (from == to) {
        lines.fail(fmt::format("host {:.0f} sends to itself", from));
    }
    if (messages.size() >= kMostFlows) {
        throw InfeasibleError("a flow file has more than 100 million flows");
    }
    Message message;
    message.from = static_cast<std::uint32_t>(from);
    message.to = static_cast<std::uint32_t>(to);
    message.bytes = bytes;
    message.delay = delay;
    messages.push_back(message);
}

// The number of a class of traffic by its name; empty: the first.
std::optional<std::uint8_t> class_number(Lines& lines, const Cell& cell, const std::vector<std::string>& classes) {
    const auto found = std::find(classes.begin(), classes.end(), cell.text);
    if (found == classes.end() && !cell.text.empty()) {
        const std::string near = nearest_name(cell.text, classes);
        lines.fail(fmt::format("class '{}' is none of network.classes{}", cell.text,
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                   cell.column);
        return std::nullopt;
    }
    return static_cast<std::uint8_t>(cell.text.empty() ? 0 : found - classes.begin());
}

Schedule read_csv(const std::string& path, std::uint32_t hosts, const std::vector<std::string>& classes) {
    Lines lines(path);
    std::string line;
    std::vector<Message> messages;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    const bool any = lines.next(line);
    constexpr std::string_view kClass = ",class";
    const bool classed = line.ends_with(kClass);
    if (classed) {
        line.resize(line.size() - kClass.size());
    }
    const bool after = line == "src,dst,bytes,start,after";
    if (!any || (!after && line != "src,dst,bytes,start")) {
        lines.fail("the first line must be src,dst,bytes,start or src,dst,bytes,start,after, and may end with ,class");
        lines.finish();
    }
    const std::size_t columns = 4 + (after ? 1U : 0U) + (classed ? 1U : 0U);
    while (lines.next(line)) {
        const std::vector<Cell> row = cells(line);
        if (row.size() != columns) {
            lines.fail(fmt::format("{} values, but the header has {}", row.size(), columns));
            continue;
        }
        const auto from = number(lines, row[0], "src", 0, hosts - 1.0, true);
        const auto to = number(lines, row[1], "dst", 0, hosts - 1.0, true);
        const auto bytes = number(lines, row[2], "bytes", 1, kMostBytes, true);
        const auto start = number(lines, row[3], "start", 0, kMostSeconds, false);
        const auto index = static_cast<std::uint32_t>(messages.size());
        if (after && !row[4].text.empty()) {
            for (const Cell& one : parts(row[4], ';')) {
                if (const auto before = predecessor(lines, one, index)) {
                    edges.emplace_back(*before, index);
                }
            }
        }
        const auto of_class = classed ? class_number(lines, row.back(), classes) : std::uint8_t{0};
        if (from && to && bytes && start && of_class) {
            add(lines, messages, *from, *to, *bytes, *start);
            messages.back().traffic_class = *of_class;
        } else {
            messages.emplace_back();  // keeps the numbers of rows
        }
    }
    if (messages.empty()) {
        lines.fail("the file has no flows");
    }
    lines.finish();
    return schedule_of(std::move(messages), edges);
}

// What a trigger of a connection matrix starts, and what fires it. One shot is fired by one flow and starts all; several shots start
// one flow each, in the file's order; a barrier starts all when everything that names it has fired. What is not declared is taken as
// a barrier. As htsim has it: sim/trigger.cpp and sim/datacenter/connection_matrix.cpp of github.com/Broadcom/csg-htsim.
enum class Fires { all_together, once, one_each };
struct Trigger {
    Fires fires = Fires::all_together;
    std::optional<double> count;  // that a barrier says it waits for
    std::vector<std::uint32_t> causes;
    std::vector<std::uint32_t> effects;
};

void end_of_line(Lines& lines, std::istringstream& words) {
    if (std::string rest; words >> rest) {
        lines.fail(fmt::format("unknown word '{}'", rest));
    }
}

// `trigger id t oneshot`, `multishot` or `barrier count n`: what names a trigger says the rest.
void read_declaration(Lines& lines, std::istringstream& words, std::map<std::int64_t, Trigger>& triggers) {
    std::optional<double> id;
    std::optional<double> count;
    std::string kind;
    for (std::string word; words >> word;) {
        const bool known = word == "oneshot" || word == "multishot" || word == "barrier";
        if (word == "id" || word == "count") {
            std::string text;
            words >> text;
            (word == "id" ? id : count) = number(lines, Cell{text, 1}, word.c_str(), word == "id" ? 0 : 1, 9e15, true);
        } else if (known && kind.empty()) {
            kind = word;
        } else if (!kind.empty() && !known) {
            lines.fail(fmt::format("unknown word '{}'", word));
            return;
        } else {
            kind.clear();
            break;
        }
    }
    if (!id || kind.empty()) {
        lines.fail(
            "a trigger is declared as 'trigger id n oneshot', 'trigger id n multishot' or 'trigger id n count n "
            "barrier'");
        return;
    }
    Trigger& trigger = triggers[static_cast<std::int64_t>(*id)];
    trigger.fires = kind == "oneshot" ? Fires::once : kind == "multishot" ? Fires::one_each : Fires::all_together;
    trigger.count = count;
}

// What waits for what, by triggers. Of several shots the n-th flow waits for any n of the causes.
struct Waits {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> counts;  // of causes, where not all of them
};

void add_waits(Lines& lines, std::int64_t id, const Trigger& trigger, Waits& waits) {
    constexpr double kMostEdges = 1e8;
    if (trigger.fires == Fires::once && trigger.causes.size() > 1) {
        lines.fail(
            fmt::format("trigger {} is fired by {} flows, but a oneshot is fired once: declare a barrier, which "
                        "waits for all of them, or multishot",
                        id, trigger.causes.size()));
    }
    if (trigger.causes.empty() && !trigger.effects.empty()) {
        lines.fail(fmt::format("nothing fires trigger {}, so what waits for it can never start", id));
    } else if (trigger.fires == Fires::one_each && trigger.effects.size() > trigger.causes.size()) {
        lines.fail(fmt::format("trigger {} is fired by {} flows, one shot each, but {} flows wait for it", id,
                               trigger.causes.size(), trigger.effects.size()));
    }
    if (trigger.count && *trigger.count != static_cast<double>(trigger.causes.size())) {
        lines.fail(
            fmt::format("trigger {} counts {:.0f}, but {} flows fire it", id, *trigger.count, trigger.causes.size()));
    }
    const double more = static_cast<double>(trigger.causes.size()) * static_cast<double>(trigger.effects.size());
    if (static_cast<double>(waits.edges.size()) + more > kMostEdges) {
        throw InfeasibleError("the triggers of a flow file join more than 100 million pairs of flows");
    }
    for (std::size_t i = 0; i < trigger.effects.size(); ++i) {
        for (const std::uint32_t cause : trigger.causes) {
            waits.edges.emplace_back(cause, trigger.effects[i]);
        }
        if (trigger.fires == Fires::one_each) {
            waits.counts.emplace_back(trigger.effects[i], static_cast<std::uint32_t>(i + 1));
        }
    }
}

Schedule read_matrix(const std::string& path, std::uint32_t hosts) {
    Lines lines(path);
    std::string line;
    std::vector<Message> messages;
    std::map<std::int64_t, Trigger> triggers;
    while (lines.next(line)) {
        std::istringstream words(line);
        std::string word;
        words >> word;
        const auto value = [&](const char* what, double low, double high) {
            std::string text;
            words >> text;
            return number(lines, Cell{text, 1}, what, low, high, true);
        };
        if (word == "Nodes") {
            const auto nodes = value("Nodes", 1, 1e9);
            if (nodes && *nodes > hosts) {
                lines.fail(fmt::format("the matrix has {:.0f} nodes, the cluster {}", *nodes, hosts));
            }
            end_of_line(lines, words);
            continue;
        }
        if (word == "Connections" || word == "Triggers") {
            (void)value(word.c_str(), 0, 1e9);  // what follows is counted as it comes
            end_of_line(lines, words);
            continue;
        }
        if (word == "trigger") {
            read_declaration(lines, words, triggers);
            continue;
        }
        const std::size_t arrow = word.find("->");
        if (arrow == std::string::npos) {
            lines.fail(fmt::format("'{}': a line is 'src->dst id n start ps size bytes'", word));
            continue;
        }
        const auto from = number(lines, Cell{word.substr(0, arrow), 1}, "source", 0, hosts - 1.0, true);
        const auto to = number(lines, Cell{word.substr(arrow + 2), 1}, "destination", 0, hosts - 1.0, true);
        std::optional<double> bytes;
        double start = 0;
        const auto index = static_cast<std::uint32_t>(messages.size());
        while (words >> word) {
            if (word == "size") {
                bytes = value("size", 1, kMostBytes);
            } else if (word == "start") {
                start = value("start", 0, 9e15).value_or(0) * 1e-12;
            } else if (word == "trigger") {
                if (const auto id = value("trigger", 0, 9e15)) {
                    triggers[static_cast<std::int64_t>(*id)].effects.push_back(index);
                }
            } else if (word == "send_done_trigger" || word == "recv_done_trigger") {
                if (const auto id = value(word.c_str(), 0, 9e15)) {
                    triggers[static_cast<std::int64_t>(*id)].causes.push_back(index);
                }
            } else if (word == "id" || word == "prio") {
                (void)value(word.c_str(), 0, 9e15);
            } else {
                lines.fail(fmt::format("unknown word '{}'", word));
            }
        }
        if (!bytes) {
            lines.fail("a flow without a size");
        }
        if (from && to && bytes) {
            add(lines, messages, *from, *to, *bytes, start);
        } else {
            messages.emplace_back();
        }
    }
    if (messages.empty()) {
        lines.fail("the file has no flows");
    }
    Waits waits;
    for (const auto& [id, trigger] : triggers) {
        add_waits(lines, id, trigger, waits);
    }
    lines.finish();
    Schedule schedule = schedule_of(std::move(messages), waits.edges);
    for (const auto& [message, count] : waits.counts) {
        schedule.messages[message].waits_for = count;
    }
    if (!can_start(schedule)) {
        lines.fail("triggers wait for each other: some flows can never start");
        lines.finish();
    }
    return schedule;
}

// "nic 3", "leaf 0 spine 2", "spine 1 core 0".
bool read_link(const std::string& text, Place& place) {
    std::istringstream in(text);
    std::string lower;
    std::string upper;
    std::string rest;
    if (!(in >> lower >> place.index)) {
        return false;
    }
    if (lower == "nic") {
        place.what = Place::What::nic;
        return !(in >> rest);
    }
    if (!(in >> upper >> place.upper) || in >> rest) {
        return false;
    }
    place.what = lower == "leaf" ? Place::What::leaf_spine : Place::What::spine_core;
    return (lower == "leaf" && upper == "spine") || (lower == "spine" && upper == "core");
}

}  // namespace

Schedule read_flows(const std::string& path, std::uint32_t hosts, const std::vector<std::string>& classes) {
    return unpacked_name(path).ends_with(".cm") ? read_matrix(path, hosts) : read_csv(path, hosts, classes);
}

std::vector<TimedFault> read_link_events(const std::string& path, const Fabric& fabric, bool pauses) {
    Lines lines(path);
    std::string line;
    std::vector<TimedFault> out;
    if (!lines.next(line) || line != "time_s,link,event,factor") {
        lines.fail("the first line must be time_s,link,event,factor");
        lines.finish();
    }
    while (lines.next(line)) {
        const std::vector<Cell> row = cells(line);
        if (row.size() != 4) {
            lines.fail(fmt::format("{} values, but the header has 4", row.size()));
            continue;
        }
        TimedFault event;
        const auto time = number(lines, row[0], "time_s", 0, kMostSeconds, false);
        Fault& fault = event.fault;
        const bool named = read_link(row[1].text, fault.place);
        if (!named) {
            lines.fail(fmt::format("link '{}' is not 'nic N', 'leaf N spine N' or 'spine N core N'", row[1].text),
                       row[1].column);
        }
        std::optional<double> factor = 1;
        if (row[2].text == "rate") {
            fault.kind = FaultKind::degraded;
            factor = number(lines, row[3], "factor", 1e-3, 1, false);
        } else if (row[2].text == "errors") {
            fault.kind = FaultKind::bit_errors;
            factor = number(lines, row[3], "factor", 0, 1e-3, false);
        } else if (row[2].text == "down" || row[2].text == "up") {
            fault.kind = FaultKind::link_down;
            event.ends = row[2].text == "up";
        } else if (row[2].text == "pause" || row[2].text == "resume") {
            fault.kind = FaultKind::pause;
            event.ends = row[2].text == "resume";
            if (named && fault.place.what != Place::What::nic) {
                lines.fail(
                    fmt::format("only a NIC pauses its switch by itself: '{}' needs a link 'nic N'", row[2].text),
                    row[1].column);
                continue;
            }
        } else {
            lines.fail(fmt::format("event '{}' is not one of down, up, rate, errors, pause, resume", row[2].text),
                       row[2].column);
            continue;
        }
        if (time && named && factor) {
            event.at_s = *time;
            fault.factor = *factor;
            if (const std::string problem = problem_of(fault, fabric, pauses); !problem.empty()) {
                lines.fail(problem, row[1].column);
            }
            out.push_back(event);
        }
    }
    lines.finish();
    return out;
}

}  // namespace orrery::trace
