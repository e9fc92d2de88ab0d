// Programs as MSCCL's XML: <algo> of <gpu> of <tb> of <step>.
//
// Source: microsoft/msccl, src/graph/tuning and its parser of algorithms; MSCCLang's output (microsoft/msccl-tools).

#include "sim/base/error.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/programs/program.hpp"
#include "workloads/imports/xml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace orrery::collective {

namespace {

struct CollectiveName {
    const char* msccl;
    CollectiveOp op;
};
constexpr CollectiveName kCollectives[] = {{"allreduce", CollectiveOp::all_reduce},
                                           {"allgather", CollectiveOp::all_gather},
                                           {"reduce_scatter", CollectiveOp::reduce_scatter},
                                           {"reducescatter", CollectiveOp::reduce_scatter},
                                           {"alltoall", CollectiveOp::all_to_all}};

class MscclReader {
  public:
    MscclReader(const std::string& text, const std::string& file) : xml_(text, file) { program_.file = file; }

    CollectiveProgram read() {
        while (xml_.next()) {
            if (xml_.kind() == XmlText::Kind::open) {
                element();
            }
        }
        if (program_.ranks.empty()) {
            fail("there is no <algo> with a <gpu>");
        }
        if (ranks_ >= 0 && static_cast<std::size_t>(ranks_) != program_.ranks.size()) {
            fail(fmt::format("ngpus is {}, and there are {} of <gpu>", ranks_, program_.ranks.size()));
        }
        return std::move(program_);
    }

  private:
    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{program_.file, xml_.line(), 1, problem, ErrorCode::malformed_trace}});
    }

    // A whole number in an attribute; `otherwise` where there is none, which below -1 is an error.
    std::int64_t number(const char* name, std::int64_t least, std::int64_t most, std::int64_t otherwise = -2) const {
        const std::string text = xml_.attribute(name);
        if (text.empty() && otherwise >= -1) {
            return otherwise;
        }
        double value = 0;
        if (!parse_number(text, value) || value != std::floor(value) || value < static_cast<double>(least) ||
            value > static_cast<double>(most)) {
            fail(fmt::format("'{}' of <{}> must be a whole number from {} to {}, not '{}'", name, xml_.name(), least,
                             most, text));
        }
        return static_cast<std::int64_t>(value);
    }

    void element() {
        const std::string_view name = xml_.name();
        const std::string_view parent = xml_.parent();
        if (name == "algo" && parent.empty()) {
            algorithm_element();
        } else if (name == "gpu" && parent == "algo") {
            rank_element();
        } else if (name == "tb" && parent == "gpu") {
            block_element();
        } else if (name == "step" && parent == "tb") {
            step_element();
        } else {
            fail(fmt::format("<{}> has no place {}: a program is <algo>, <gpu>, <tb> and <step>", name,
                             parent.empty() ? "at the root" : fmt::format("in <{}>", parent)));
        }
    }

    void algorithm_element() {
        program_.name = xml_.attribute("name");
        const std::string collective = xml_.attribute("coll");
        const auto* row = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                       [&](const CollectiveName& one) { return collective == one.msccl; });
        if (row == std::end(kCollectives)) {
            fail(fmt::format(
                "'coll' is '{}'; programs are checked for allreduce, allgather, reduce_scatter and alltoall",
                collective));
        }
        program_.op = row->op;
        program_.in_place = number("inplace", 0, 1, 0) == 1;
        ranks_ = number("ngpus", 1, kMostRanks, -1);
    }

    void rank_element() {
        if (number("id", 0, kMostRanks) != static_cast<std::int64_t>(program_.ranks.size())) {
            fail(fmt::format("the next <gpu> is {}", program_.ranks.size()));
        }
        ProgramRank rank;
        const char* const names[] = {"i_chunks", "o_chunks", "s_chunks"};
        for (std::size_t i = 0; i < 3; ++i) {
            rank.chunks[i] = static_cast<std::uint32_t>(number(names[i], 0, kMostChunks));
        }
        // Of an operation in place the output may be left out.
        if (rank.chunks[1] == 0 && program_.in_place) {
            rank.chunks[1] = rank.chunks[0];
        }
        program_.ranks.push_back(std::move(rank));
    }

    void block_element() {
        auto& blocks = program_.ranks.back().blocks;
        if (number("id", 0, kMostChunks) != static_cast<std::int64_t>(blocks.size())) {
            fail(fmt::format("the next <tb> of this <gpu> is {}", blocks.size()));
        }
        ProgramBlock block;
        block.send_to = number("send", -1, kMostRanks);
        block.receive_from = number("recv", -1, kMostRanks);
        block.channel = static_cast<std::uint32_t>(number("chan", 0, 65'535, 0));
        blocks.push_back(std::move(block));
    }

    ProgramSlot slot(const char* buffer, const char* offset) const {
        const std::string name = xml_.attribute(buffer);
        const auto* row = std::find(kBufferNames.begin(), kBufferNames.end(), name);
        if (row == kBufferNames.end()) {
            fail(fmt::format("'{}' must be i, o or s, not '{}'", buffer, name));
        }
        return {static_cast<Buffer>(row - kBufferNames.begin()),
                static_cast<std::uint32_t>(number(offset, 0, kMostChunks))};
    }

    void step_element() {
        auto& steps = program_.ranks.back().blocks.back().steps;
        if (number("s", 0, kMostChunks) != static_cast<std::int64_t>(steps.size())) {
            fail(fmt::format("the next <step> of this <tb> is {}", steps.size()));
        }
        const std::string type = xml_.attribute("type");
        const auto* row = std::find(kStepNames.begin(), kStepNames.end(), type);
        if (row == kStepNames.end()) {
            fail(fmt::format("'type' must be one of {}, not '{}'", fmt::join(kStepNames, ", "), type));
        }
        ProgramStep step;
        step.kind = static_cast<StepKind>(row - kStepNames.begin());
        step.line = xml_.line();
        if (step.kind != StepKind::wait) {
            step.source = slot("srcbuf", "srcoff");
            step.target = slot("dstbuf", "dstoff");
            step.count = static_cast<std::uint32_t>(number("cnt", 1, kMostChunks));
        }
        if (const std::int64_t block = number("depid", -1, kMostChunks, -1); block >= 0) {
            step.after.push_back(
                {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(number("deps", 0, kMostChunks))});
        }
        steps.push_back(std::move(step));
    }

    XmlText xml_;
    CollectiveProgram program_;
    std::int64_t ranks_ = -1;
};

const char* msccl_name(CollectiveOp op) {
    const auto* row = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                   [&](const CollectiveName& one) { return one.op == op; });
    ORRERY_ASSERT(row != std::end(kCollectives));
    return row->msccl;
}

}  // namespace

CollectiveProgram read_msccl(const std::string& text, const std::string& file) {
    return MscclReader(text, file).read();
}

std::string write_msccl(const CollectiveProgram& program) {
    std::uint32_t channels = 1;
    for (const ProgramRank& rank : program.ranks) {
        for (const ProgramBlock& block : rank.blocks) {
            channels = std::max(channels, block.channel + 1);
        }
    }
    std::string out = fmt::format(
        "<algo name=\"{}\" proto=\"Simple\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{}\" "
        "inplace=\"{}\">\n",
        program.name, channels, program.chunks(), program.ranks.size(), msccl_name(program.op),
        program.in_place ? 1 : 0);
    // Whether another step depends on one: MSCCL raises a flag after those alone.
    for (std::size_t id = 0; id < program.ranks.size(); ++id) {
        const ProgramRank& rank = program.ranks[id];
        std::vector<std::vector<bool>> needed;
        for (const ProgramBlock& block : rank.blocks) {
            needed.emplace_back(block.steps.size(), false);
        }
        for (const ProgramBlock& block : rank.blocks) {
            for (const ProgramStep& step : block.steps) {
                for (const StepId& other : step.after) {
                    needed[other.block][other.step] = true;
                }
            }
        }
        out += fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", id, rank.chunks[0],
                           rank.chunks[1], rank.chunks[2]);
        for (std::size_t b = 0; b < rank.blocks.size(); ++b) {
            const ProgramBlock& block = rank.blocks[b];
            out += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", b, block.send_to,
                               block.receive_from, block.channel);
            for (std::size_t s = 0; s < block.steps.size(); ++s) {
                const ProgramStep& step = block.steps[s];
                ORRERY_ASSERT(step.after.size() <= 1);  // what depends on several has steps of its own for them (nop)
                out += fmt::format(
                    "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
                    "cnt=\"{}\" "
                    "depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
                    s, kStepNames[static_cast<std::size_t>(step.kind)],
                    kBufferNames[static_cast<std::size_t>(step.source.buffer)], step.source.offset,
                    kBufferNames[static_cast<std::size_t>(step.target.buffer)], step.target.offset,
                    step.kind == StepKind::wait ? 0 : step.count,
                    step.after.empty() ? -1 : static_cast<std::int64_t>(step.after[0].block),
                    step.after.empty() ? -1 : static_cast<std::int64_t>(step.after[0].step), needed[b][s] ? 1 : 0);
            }
            out += "    </tb>\n";
        }
        out += "  </gpu>\n";
    }
    return out + "</algo>\n";
}

}  // namespace orrery::collective
