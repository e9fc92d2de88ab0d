#include "workloads/replay/replay_trace.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/replay/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace orrery::replay {

namespace {

constexpr const char* kVersionLine = "# orrery-replay: 1";
constexpr const char* kColumns =
    "op,rank,lane,kind,name,duration_ns,lag_ns,flops,bytes,collective,group,peer,tag,after";
constexpr const char* kWorkColumn = ",work";
constexpr std::size_t kColumnCount = 14;  // or one more
constexpr std::size_t kMostOps = 50'000'000;
constexpr double kMostRanks = 1 << 20;

// Text that cannot be mistaken for a separator.
std::string plain(const std::string& text) {
    std::string out = text.substr(0, 200);
    std::replace_if(
        out.begin(), out.end(), [](char c) { return c == ',' || static_cast<unsigned char>(c) < 32; }, ' ');
    return out;
}

class Parser : TextLines {
  public:
    using TextLines::TextLines;

    ReplayTrace run() {
        for (std::string_view line; next_line(line);) {
            read_line(line);
        }
        check();
        finish();
        return std::move(trace_);
    }

  private:
    void read_line(std::string_view line) {
        if (this->line() == 1 && line != kVersionLine) {
            fail(fmt::format("a replay trace starts with '{}'", kVersionLine));
            stop_ = true;  // not a file of this kind: one error is enough
        }
        if (stop_ || line.empty() || this->line() == 1) {
            return;
        }
        if (line.front() == '#') {
            read_meta(line.substr(1));
        } else if (line.substr(0, 5) == "lane,") {
            trace_.lanes.emplace_back(line.substr(5));
        } else if (line.substr(0, 6) == "group,") {
            read_group(line.substr(6));
        } else if (line.substr(0, 5) == "work,") {
            std::string problem;
            const std::string_view work = line.substr(5);
            if (is_memory_work(work) ? !parse_memory_work(work, problem)
                : is_core_work(work) ? !parse_core_work(work, problem)
                                     : !parse_work(work, problem)) {
                fail(problem);
            }
            trace_.works.emplace_back(line.substr(5));
        } else if (line == kColumns || line == std::string(kColumns) + kWorkColumn) {
            return;
        } else if (line.substr(0, 3) == "op,") {
            read_op(line);
        } else {
            fail("a line is '# key: value', 'lane,...', 'group,...', 'work,...' or 'op,...'");
        }
    }

    void read_meta(std::string_view text) {
        const std::size_t colon = text.find(':');
        if (colon == std::string_view::npos) {
            return;
        }
        const auto trim = [](std::string_view part) {
            while (!part.empty() && part.front() == ' ') {
                part.remove_prefix(1);
            }
            return std::string(part);
        };
        const std::string key = trim(text.substr(0, colon));
        const std::string value = trim(text.substr(colon + 1));
        if (!keys_.insert(key).second) {
            fail(fmt::format("'{}' is given twice", printable(key, 60)));
            return;
        }
        if (key == "ranks") {
            double count = 0;
            if (!parse_number(value, count) || count < 1 || count > kMostRanks || count != std::floor(count)) {
                fail(fmt::format("ranks is a whole number from 1 to {:.0f}, not '{}'", kMostRanks, value));
                return;
            }
            trace_.ranks = static_cast<std::uint32_t>(count);
            has_ranks_ = true;
        } else if (key == "program") {
            if (value != "same" && value != "each") {
                fail(fmt::format("program is same or each, not '{}'", value));
            }
            trace_.same_program = value == "same";
        } else if (key == "recorded_ns") {
            double ns = 0;
            if (!parse_number(value, ns) || !(ns >= 0) || ns > 1e18) {
                fail(fmt::format("recorded_ns is a number of ns, not '{}'", value));
                return;
            }
            trace_.recorded_s = ns * 1e-9;
        } else {
            trace_.meta[key] = value;
        }
    }

    // A whole number below `limit`; kNone for an empty cell.
    std::uint32_t whole(std::string_view cell, const char* what, double limit) {
        double value = 0;
        if (cell.empty()) {
            return ReplayOp::kNone;
        }
        if (!parse_number(cell, value) || value < 0 || value >= limit || value != std::floor(value)) {
            fail(fmt::format("{} is a whole number below {:.0f}, not '{}'", what, limit, cell));
            return 0;
        }
        return static_cast<std::uint32_t>(value);
    }

    double number(std::string_view cell, const char* what, double empty) {
        double value = 0;
        if (cell.empty()) {
            return empty;
        }
        if (!parse_number(cell, value) || !(value >= 0) || value > 1e24) {
            fail(fmt::format("{} is a number from 0, not '{}'", what, cell));
            return 0;
        }
        return value;
    }

    void read_group(std::string_view text) {
        ReplayGroup group;
        for (const std::string_view part : split(text, ' ')) {
            if (part.substr(0, 5) == "size=") {
                group.size = whole(part.substr(5), "size", kMostRanks + 1);
            } else if (part.substr(0, 7) == "stride=") {
                group.stride = whole(part.substr(7), "stride", kMostRanks + 1);
            } else {
                group.members.push_back(whole(part, "a member of a group", kMostRanks));
            }
        }
        if (!group.members.empty()) {
            group.size = static_cast<std::uint32_t>(group.members.size());
        }
        if (group.size == 0 || group.stride == 0 || group.size > kMostRanks || group.stride > kMostRanks) {
            fail("a group has a positive size and stride");
            group = ReplayGroup();
        }
        trace_.groups.push_back(std::move(group));
    }

    void read_op(std::string_view line) {
        const std::vector<std::string_view> cells = split(line, ',');
        if (cells.size() != kColumnCount && cells.size() != kColumnCount + 1) {
            fail(fmt::format("{} cells, an operation has {} or {}", cells.size(), kColumnCount, kColumnCount + 1));
            return;
        }
        if (trace_.ops.size() == kMostOps) {
            fail(fmt::format("more than {} operations", kMostOps));
            stop_ = true;
            return;
        }
        const auto pick = [&](std::string_view cell, const std::vector<std::string>& names, const char* what) {
            const auto found = std::find(names.begin(), names.end(), cell);
            if (found == names.end()) {
                fail(fmt::format("{} is one of {}, not '{}'", what, fmt::join(names, ", "), cell));
                return std::size_t{0};
            }
            return static_cast<std::size_t>(found - names.begin());
        };
        ReplayOp op;
        op.rank = whole(cells[1], "rank", kMostRanks);
        op.lane = whole(cells[2], "lane", 65536);
        op.kind = static_cast<ReplayKind>(pick(cells[3], replay_kind_names(), "kind"));
        op.name = trace_.name(std::string(cells[4]));
        op.duration_s = cells[5].empty() ? ReplayOp::kUnknown : number(cells[5], "duration_ns", 0) * 1e-9;
        op.lag_s = number(cells[6], "lag_ns", 0) * 1e-9;
        op.flops = number(cells[7], "flops", 0);
        op.bytes = number(cells[8], "bytes", 0);
        if (op.kind == ReplayKind::collective) {
            op.collective = static_cast<CollectiveOp>(pick(cells[9], collective_op_names(), "collective"));
        }
        op.group = whole(cells[10], "group", 1e9);
        op.peer = whole(cells[11], "peer", kMostRanks);
        op.tag = cells[12].empty() ? 0 : whole(cells[12], "tag", 4294967295.0);
        if (cells.size() > kColumnCount) {
            op.work = whole(cells[kColumnCount], "work", 1e9);
        }
        std::vector<std::uint32_t> waits;
        const auto own = static_cast<double>(trace_.ops.size());
        for (const std::string_view part : split(cells[13], ' ')) {
            double back = 0;
            if (part.empty()) {
                continue;
            }
            if (!parse_number(part, back) || back > -1 || own + back < 0 || back != std::floor(back)) {
                fail(fmt::format("after lists places before this row, such as -1, not '{}'", part));
                continue;
            }
            waits.push_back(static_cast<std::uint32_t>(own + back));
        }
        trace_.lines.push_back(static_cast<std::uint32_t>(this->line()));
        trace_.add(op, std::move(waits));
    }

    void check() {
        if (stop_) {
            return;
        }
        if (!has_ranks_) {
            fail_at(1, "the head lacks '# ranks: N'");
        }
        if (trace_.meta["source"].empty()) {
            fail_at(1, "the head lacks '# source: ...'");
        }
        for (const ReplayGroup& group : trace_.groups) {
            if (std::any_of(group.members.begin(), group.members.end(),
                            [&](std::uint32_t member) { return member >= trace_.ranks; })) {
                fail_at(1, fmt::format("a group names a rank beyond the {} ranks", trace_.ranks));
            }
        }
        for (std::size_t i = 0; i < trace_.ops.size() && !hopeless(); ++i) {
            const ReplayOp& op = trace_.ops[i];
            const auto fail = [&](const std::string& what) { fail_at(static_cast<int>(trace_.lines[i]), what); };
            if (op.rank >= trace_.ranks || (trace_.same_program && op.rank != 0)) {
                fail(trace_.same_program ? "all rows of program: same belong to rank 0"
                                         : fmt::format("rank {} of {} ranks", op.rank, trace_.ranks));
            }
            if (op.work != ReplayOp::kNone && op.work >= trace_.works.size()) {
                fail(fmt::format("work {} is not listed", op.work));
            } else if (op.work != ReplayOp::kNone &&
                       (is_memory_work(trace_.works[op.work]) || is_core_work(trace_.works[op.work])) &&
                       (op.duration_s != ReplayOp::kUnknown || op.kind == ReplayKind::collective ||
                        op.kind == ReplayKind::send || op.kind == ReplayKind::recv)) {
                fail("a work of kind memory or dpu belongs to a kernel, copy or host operation without duration_ns");
            }
            if (op.lane >= trace_.lanes.size()) {
                fail(fmt::format("lane {} is not listed", op.lane));
            }
            if (op.kind == ReplayKind::collective && op.group >= trace_.groups.size()) {
                fail("a collective names a group that is listed");
            }
            if ((op.kind == ReplayKind::send || op.kind == ReplayKind::recv) && op.peer >= trace_.ranks) {
                fail("a send or receive names its peer");
            }
        }
    }

    bool stop_ = false;
    bool has_ranks_ = false;
    std::set<std::string> keys_;
    ReplayTrace trace_;
};

}  // namespace

const std::vector<std::string>& replay_kind_names() {
    static const std::vector<std::string> kNames = {"kernel", "host", "copy", "collective", "send", "recv"};
    return kNames;
}

std::uint32_t ReplayTrace::name(const std::string& text) {
    const auto [entry, fresh] = name_index_.try_emplace(plain(text), static_cast<std::uint32_t>(names.size()));
    if (fresh) {
        names.push_back(entry->first);
        ORRERY_ASSERT(name_index_.size() == names.size());
    }
    return entry->second;
}

std::uint32_t ReplayTrace::lane(const std::string& text) {
    const auto [entry, fresh] = lane_index_.try_emplace(plain(text), static_cast<std::uint32_t>(lanes.size()));
    if (fresh) {
        lanes.push_back(entry->first);
    }
    return entry->second;
}

std::uint32_t ReplayTrace::work(const std::string& text) {
    const auto [found, inserted] = work_index_.emplace(text, static_cast<std::uint32_t>(works.size()));
    if (inserted) {
        works.push_back(text);
    }
    return found->second;
}

std::uint32_t ReplayTrace::group(const ReplayGroup& group) {
    std::vector<std::uint32_t> key = {group.size, group.stride};
    key.insert(key.end(), group.members.begin(), group.members.end());
    const auto [found, fresh] = group_index_.try_emplace(std::move(key), static_cast<std::uint32_t>(groups.size()));
    if (fresh) {
        groups.push_back(group);
    }
    ORRERY_ASSERT(found->second < groups.size());
    return found->second;
}

std::uint32_t ReplayTrace::add(ReplayOp op, std::vector<std::uint32_t> waits) {
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    op.first_after = static_cast<std::uint32_t>(after.size());
    op.after_count = static_cast<std::uint32_t>(waits.size());
    ORRERY_ASSERT(waits.empty() || waits.back() < ops.size());  // it waits for earlier ones only
    after.insert(after.end(), waits.begin(), waits.end());
    ops.push_back(op);
    ORRERY_ASSERT(after.size() == op.first_after + std::size_t{op.after_count});
    return static_cast<std::uint32_t>(ops.size() - 1);
}

ReplayTrace parse_replay(const std::string& text, const std::string& name) {
    return Parser(text, name).run();
}

ReplayTrace read_replay(const std::string& path) {
    return parse_replay(read_input(path), path);
}

std::string format_replay(const ReplayTrace& trace) {
    fmt::memory_buffer out;
    const auto to = [&] { return std::back_inserter(out); };
    fmt::format_to(to(), "{}\n", kVersionLine);
    for (const auto& [key, value] : trace.meta) {
        fmt::format_to(to(), "# {}: {}\n", key, value);
    }
    fmt::format_to(to(), "# ranks: {}\n# program: {}\n", trace.ranks, trace.same_program ? "same" : "each");
    if (trace.recorded_s >= 0) {
        fmt::format_to(to(), "# recorded_ns: {:.10g}\n", trace.recorded_s * 1e9);
    }
    for (const std::string& lane : trace.lanes) {
        fmt::format_to(to(), "lane,{}\n", lane);
    }
    for (const ReplayGroup& group : trace.groups) {
        if (group.members.empty()) {
            fmt::format_to(to(), "group,size={} stride={}\n", group.size, group.stride);
        } else {
            fmt::format_to(to(), "group,{}\n", fmt::join(group.members, " "));
        }
    }
    for (const std::string& work : trace.works) {
        fmt::format_to(to(), "work,{}\n", work);
    }
    fmt::format_to(to(), "{}{}\n", kColumns, trace.works.empty() ? "" : kWorkColumn);
    const auto known = [](double value) { return value > 0 ? fmt::format("{:.10g}", value) : std::string(); };
    const auto index = [](std::uint32_t value) {
        return value == ReplayOp::kNone ? std::string() : std::to_string(value);
    };
    for (std::size_t i = 0; i < trace.ops.size(); ++i) {
        const ReplayOp& op = trace.ops[i];
        fmt::format_to(to(), "op,{},{},{},{},{},{},{},{},{},{},{},{},", op.rank, op.lane,
                       replay_kind_names()[static_cast<std::size_t>(op.kind)], trace.names[op.name],
                       op.duration_s < 0 ? std::string() : fmt::format("{:.10g}", op.duration_s * 1e9),
                       known(op.lag_s * 1e9), known(op.flops), known(op.bytes),
                       op.kind == ReplayKind::collective
                           ? collective_op_names()[static_cast<std::size_t>(op.collective)]
                           : std::string(),
                       index(op.group), index(op.peer), op.tag == 0 ? std::string() : std::to_string(op.tag));
        for (std::uint32_t k = 0; k < op.after_count; ++k) {
            ORRERY_ASSERT(trace.after[op.first_after + k] < i);
            fmt::format_to(to(), "{}-{}", k == 0 ? "" : " ", i - trace.after[op.first_after + k]);
        }
        if (!trace.works.empty()) {
            fmt::format_to(to(), ",{}", index(op.work));
        }
        out.push_back('\n');
    }
    return fmt::to_string(out);
}

}  // namespace orrery::replay
