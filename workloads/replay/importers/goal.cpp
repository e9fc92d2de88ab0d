// GOAL: one block a rank with labelled calc, send and recv lines and `requires` between labels.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/replay/importers/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::replay {

namespace {

constexpr double kMostGoalRanks = 1 << 20;

class Parser : TextLines {
  public:
    using TextLines::TextLines;

    ReplayTrace run() {
        trace_.same_program = false;
        trace_.meta["source"] = "goal";
        trace_.ranks = 0;
        while (next_words()) {
            read_line();
        }
        if (open_) {
            fail("the file ends inside the block of a rank");
        }
        if (trace_.ranks == 0 && problems() == 0) {
            fail_at(std::max(1, line()),
                    line() == 0 ? "expected 'num_ranks N' and a block 'rank R { ... }' for each, and the file is empty"
                                : "expected 'num_ranks N' before the blocks of ranks, and found none");
        }
        finish();
        return std::move(trace_);
    }

  private:
    // An operation waits until the block ends: what it requires may stand on later lines.
    struct Pending {
        ReplayOp op;
        std::vector<std::uint32_t> requires_;
        std::uint32_t seen = 0;
    };

    // Splits the next line into words; braces and colons are words of their own.
    bool next_words() {
        std::string_view line;
        if (!next_line(line)) {
            return false;
        }
        line = line.substr(0, std::min(line.find("//"), line.size()));
        words_.clear();
        for (std::size_t i = 0; i < line.size();) {
            const char c = line[i];
            if (c == ' ' || c == '\t' || c == '\r' || c == ';') {
                ++i;
            } else if (c == '{' || c == '}' || c == ':') {
                words_.push_back(line.substr(i, 1));
                ++i;
            } else {
                const std::size_t stop = std::min(line.find_first_of(" \t\r;{}:", i), line.size());
                words_.push_back(line.substr(i, stop - i));
                i = stop;
            }
        }
        return true;
    }

    double number(std::string_view word, const char* what, double most) {
        double value = 0;
        if (!parse_number(word, value) || value < 0 || value > most || value != std::floor(value)) {
            fail(fmt::format("{} is a whole number up to {:g}, not '{}'", what, most, word));
            return 0;
        }
        return value;
    }

    void read_line() {
        const std::size_t count = words_.size();
        if (count == 0) {
            return;
        }
        if (words_[0] == "num_ranks" && count == 2) {
            trace_.ranks = static_cast<std::uint32_t>(number(words_[1], "num_ranks", kMostGoalRanks));
        } else if (words_[0] == "rank" && count >= 2 && !open_) {
            rank_ = static_cast<std::uint32_t>(number(words_[1], "rank", kMostGoalRanks));
            if (rank_ >= trace_.ranks) {
                fail(fmt::format("rank {} of {} ranks", rank_, trace_.ranks));
            }
            open_ = true;
        } else if (words_[0] == "}" && open_) {
            close_rank();
        } else if (words_[0] == "{" && count == 1) {
            return;
        } else if (open_ && count >= 3 && (words_[1] == "requires" || words_[1] == "irequires")) {
            add_requirement();
        } else if (open_) {
            read_operation();
        } else {
            fail(
                fmt::format("'{}' is outside the block of a rank: expected 'num_ranks N' and blocks 'rank N {{ ... }}'",
                            words_[0]));
        }
    }

    std::uint32_t label(std::string_view word) {
        const auto found = labels_.find(std::string(word));
        if (found == labels_.end()) {
            fail(fmt::format("label '{}' is not defined before this line", word));
            return 0;
        }
        return found->second;
    }

    void add_requirement() {
        const std::size_t before = problems();
        const std::uint32_t later = label(words_[0]);
        const std::uint32_t first = label(words_[2]);
        if (problems() == before) {
            pending_[later].requires_.push_back(first);
        }
    }

    // [label :] calc 100 | send 10b to 1 tag 5 | recv 10b from 1 tag 5, with `cpu N` and `nic N` behind
    void read_operation() {
        std::size_t i = 0;
        std::string name;
        if (words_.size() > 2 && words_[1] == ":") {
            name = words_[0];
            i = 2;
        }
        const auto word = [&](std::size_t k) { return i + k < words_.size() ? words_[i + k] : std::string_view(); };
        Pending pending;
        ReplayOp& op = pending.op;
        op.rank = rank_;
        if (word(0) == "calc") {
            op.kind = ReplayKind::kernel;
            op.duration_s = number(word(1), "the time of calc (ns)", 1e18) * 1e-9;
        } else if ((word(0) == "send" && word(2) == "to") || (word(0) == "recv" && word(2) == "from")) {
            op.kind = word(0) == "send" ? ReplayKind::send : ReplayKind::recv;
            std::string_view size = word(1);
            if (!size.empty() && size.back() == 'b') {
                size.remove_suffix(1);
            }
            op.bytes = number(size, "the size (bytes)", 1e18);
            op.peer = static_cast<std::uint32_t>(number(word(3), "the peer", kMostGoalRanks));
            if (op.peer >= trace_.ranks) {
                fail(fmt::format("peer {} of {} ranks", op.peer, trace_.ranks));
            }
        } else {
            fail(fmt::format("'{}' is no operation: calc NS, send BYTESb to RANK or recv BYTESb from RANK", word(0)));
            return;
        }
        std::string lane = "cpu 0";
        for (std::size_t k = op.kind == ReplayKind::kernel ? 2 : 4; i + k < words_.size(); k += 2) {
            if ((word(k) != "tag" && word(k) != "cpu" && word(k) != "nic") || i + k + 1 == words_.size()) {
                fail(fmt::format("'{}' is not read here: an operation ends with 'tag N', 'cpu N' and 'nic N'",
                                 printable(word(k), 60)));
                return;
            }
            if (word(k) == "tag") {
                op.tag = static_cast<std::uint32_t>(number(word(k + 1), "tag", 4e9));
            } else if (word(k) == "cpu") {
                lane = fmt::format("cpu {}", word(k + 1).substr(0, 8));
            }
        }
        op.name = trace_.name(replay_kind_names()[static_cast<std::size_t>(op.kind)]);
        op.lane = trace_.lane(lane);
        if (!name.empty() && !labels_.emplace(name, static_cast<std::uint32_t>(pending_.size())).second) {
            fail(fmt::format("label '{}' is defined twice", name));
        }
        pending_.push_back(std::move(pending));
    }

    // Adds the rank's operations in an order that respects what they require.
    void close_rank() {
        std::vector<std::vector<std::uint32_t>> after(pending_.size());
        for (std::uint32_t i = 0; i < pending_.size(); ++i) {
            pending_[i].seen = static_cast<std::uint32_t>(pending_[i].requires_.size());
            for (const std::uint32_t before : pending_[i].requires_) {
                after[before].push_back(i);
            }
        }
        std::vector<std::uint32_t> ready;
        for (std::uint32_t i = 0; i < pending_.size(); ++i) {
            if (pending_[i].seen == 0) {
                ready.push_back(i);
            }
        }
        std::vector<std::uint32_t> placed(pending_.size(), ReplayOp::kNone);
        for (std::size_t next = 0; next < ready.size(); ++next) {
            const std::uint32_t i = ready[next];
            std::vector<std::uint32_t> waits;
            for (const std::uint32_t before : pending_[i].requires_) {
                waits.push_back(placed[before]);
            }
            placed[i] = trace_.add(pending_[i].op, std::move(waits));
            for (const std::uint32_t later : after[i]) {
                if (--pending_[later].seen == 0) {
                    ready.push_back(later);
                }
            }
        }
        if (ready.size() < pending_.size()) {
            fail(fmt::format("{} operations of rank {} require each other in a circle", pending_.size() - ready.size(),
                             rank_));
        }
        pending_.clear();
        labels_.clear();
        open_ = false;
    }

    bool open_ = false;
    std::uint32_t rank_ = 0;
    std::vector<std::string_view> words_;
    std::vector<Pending> pending_;
    std::map<std::string, std::uint32_t> labels_;
    ReplayTrace trace_;
};

Imported import_goal(const ImportInput& input) {
    const std::string text = input.bytes();
    const ReplayTrace trace = Parser(text, input.path()).run();
    ImportNotes notes;
    notes.read("operations", trace.ops.size());
    return imported_program(trace, std::move(notes));
}

}  // namespace

extern const Importer kGoalImporter = {"goal", "GOAL text of LogGOPSim", {}, import_goal};

}  // namespace orrery::replay
