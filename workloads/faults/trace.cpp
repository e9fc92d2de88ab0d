#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "workloads/faults/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::inline faults {

namespace {

constexpr const char* kFaultHeader = "time_s,kind,where";
constexpr const char* kNodesHeader = "time_s,nodes";
constexpr std::size_t kMostErrors = 50;

class TraceReader {
  public:
    TraceReader(const std::string& path, const JobShape& shape) : path_(path), shape_(shape), present_(shape.nodes) {}

    std::vector<TimedFault> read() {
        InputFile file(path_);
        std::string line;
        bool faults = false;
        for (int number = 1; std::getline(file, line) && errors_.size() < kMostErrors; ++number) {
            if (!line.empty() && line.back() == '\r') {
                line.pop_back();
            }
            line_ = number;
            if (number == 1) {
                faults = line.rfind(kFaultHeader, 0) == 0;
                if (!faults && line != kNodesHeader) {
                    fail(fmt::format("the header is neither '{},factor,lasts_s' nor '{}'", kFaultHeader, kNodesHeader));
                    break;
                }
            } else if (!line.empty()) {
                faults ? take_fault(line) : take_nodes(line);
            }
        }
        if (errors_.empty() && line_ == 0) {
            fail("the file is empty");
        }
        if (!errors_.empty()) {
            throw ConfigError(errors_);
        }
        // Machines that are away at the end of the file stay away.
        std::stable_sort(out_.begin(), out_.end(),
                         [](const TimedFault& a, const TimedFault& b) { return a.at_s < b.at_s; });
        return std::move(out_);
    }

  private:
    void fail(const std::string& text) { errors_.push_back({path_, line_, 1, text}); }
    bool number(std::string_view text, const char* name, double& out) {
        if (!parse_number(text, out) || out < 0) {
            fail(fmt::format("'{}' is no {}", printable(text, 100), name));
            return false;
        }
        return true;
    }
    void take_fault(const std::string& line) {
        const auto cells = split(line, ',');
        if (cells.size() < 3 || cells.size() > 5) {
            return fail("expected time_s,kind,where and then perhaps factor,lasts_s");
        }
        TimedFault out;
        const auto& names = fault_kind_names();
        const auto kind = std::find(names.begin(), names.end(), cells[1]);
        if (kind == names.end()) {
            return fail(fmt::format("'{}' is no kind of fault; nearest is '{}'", printable(cells[1], 100),
                                    nearest_name(cells[1], names)));
        }
        out.fault.kind = static_cast<FaultKind>(kind - names.begin());
        std::string problem;
        if (!number(cells[0], "time in seconds", out.at_s)) {
            return;
        }
        if (!parse_place(std::string(cells[2]), shape_, out.fault.place, problem)) {
            return fail(printable(problem, 300));
        }
        if (!suits(out.fault.kind, out.fault.place)) {
            return fail(fmt::format("'{}' cannot happen to '{}'", *kind, cells[2]));
        }
        if (cells.size() > 3 && !cells[3].empty() && !number(cells[3], "share", out.fault.factor)) {
            return;
        }
        if (cells.size() > 4 && !cells[4].empty() && !number(cells[4], "time in seconds", out.fault.lasts_s)) {
            return;
        }
        const KindTraits traits = traits_of(out.fault.kind);
        if (traits.factor != (out.fault.factor < 1) || out.fault.factor > 1 ||
            (traits.factor && out.fault.factor <= 0)) {
            return fail(
                fmt::format("'{}' {}", *kind, traits.factor ? "needs a factor between 0 and 1" : "has no factor"));
        }
        if ((traits.must_end && out.fault.lasts_s <= 0) || (!traits.lasts && out.fault.lasts_s > 0)) {
            return fail(fmt::format("'{}' {}", *kind, traits.lasts ? "needs lasts_s" : "does not end by itself"));
        }
        out_.push_back(out);
    }
    // The last places go first, and the last to go come back first.
    void take_nodes(const std::string& line) {
        const auto cells = split(line, ',');
        double at = 0;
        double nodes = 0;
        if (cells.size() != 2) {
            return fail("expected time_s,nodes");
        }
        if (!number(cells[0], "time in seconds", at) || !number(cells[1], "number of nodes", nodes)) {
            return;
        }
        if (at < last_s_) {
            return fail("times go backwards");
        }
        last_s_ = at;
        const auto there = static_cast<std::uint32_t>(std::min(nodes, static_cast<double>(shape_.nodes)));
        for (; present_ > there; --present_) {
            TimedFault gone;
            gone.at_s = at;
            gone.fault = {FaultKind::preemption, {Place::What::node, present_ - 1, 0}, 1, 0};
            away_.push_back(out_.size());
            out_.push_back(gone);
        }
        for (; present_ < there; ++present_) {
            // One that is away for no time at all was never missed.
            out_[away_.back()].fault.lasts_s = std::max(at - out_[away_.back()].at_s, 1e-9);
            away_.pop_back();
        }
    }

    const std::string& path_;
    const JobShape& shape_;
    std::uint32_t present_;
    double last_s_ = 0;
    int line_ = 0;
    std::vector<std::size_t> away_;
    std::vector<TimedFault> out_;
    std::vector<Diagnostic> errors_;
};

}  // namespace

std::vector<TimedFault> read_fault_trace(const std::string& path, const JobShape& shape) {
    return TraceReader(path, shape).read();
}

}  // namespace orrery::inline faults
