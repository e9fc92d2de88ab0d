// The matrix that `nvidia-smi topo -m` prints, as a node: NV# is a number of NVLinks, the others are ways over PCIe.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/imports/node_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace orrery::imports {

namespace {

struct Cell {
    std::string text;
    std::size_t at;
};

// Words of a line without the terminal's codes of underlined heads.
std::vector<Cell> words_in(std::string_view line, std::size_t start) {
    std::vector<Cell> out;
    for (std::size_t i = 0; i < line.size();) {
        if (line[i] == '\x1b') {
            i = std::min(line.find('m', i), line.size() - 1) + 1;
        } else if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
            ++i;
        } else {
            const std::size_t end = std::min(line.find_first_of(" \t\r\x1b", i), line.size());
            out.push_back({std::string(line.substr(i, end - i)), start + i});
            i = end;
        }
    }
    return out;
}

bool numbered(const std::string& text, std::string_view name) {
    return text.size() > name.size() && text.size() < name.size() + 5 && text.rfind(name, 0) == 0 &&
           text.find_first_not_of("0123456789", name.size()) == std::string::npos;
}

bool is_way(const std::string& text) {
    return text == "PIX" || text == "PXB" || text == "PHB" || text == "NODE" || text == "SYS" || text == "SOC" ||
           text == "PSB";
}

// NICs by their columns, which stand between those of GPUs and that of CPUs: those behind a PCIe switch of a GPU, and
// the others; all of them where none is behind one.
std::pair<std::size_t, std::size_t> nics_of(const std::vector<Cell>& head, const std::vector<std::vector<Cell>>& rows) {
    std::size_t near = 0;
    std::size_t all = 0;
    for (std::size_t k = 0; k < head.size() && head[k].text != "CPU"; ++k) {
        const std::string& name = head[k].text;
        if (numbered(name, "GPU") || name.rfind("DPU", 0) == 0) {
            continue;
        }
        ++all;
        near += std::any_of(rows.begin(), rows.end(),
                            [&](const std::vector<Cell>& row) {
                                return row.size() > k + 1 && (row[k + 1].text == "PIX" || row[k + 1].text == "PXB");
                            })
                    ? 1
                    : 0;
    }
    return near > 0 ? std::pair(near, all - near) : std::pair(all, std::size_t{0});
}

Imported read_matrix(const ImportInput& input) {
    const std::string text = input.bytes();
    std::vector<Cell> head;
    std::vector<std::vector<Cell>> rows;
    std::size_t at = 0;
    for (const std::string_view line : split(std::string_view(text), '\n')) {
        const std::vector<Cell> cells = words_in(line, at);
        at += line.size() + 1;
        if (!cells.empty() && head.empty() && numbered(cells[0].text, "GPU")) {
            head = cells;
        } else if (!cells.empty() && numbered(cells[0].text, "GPU")) {
            rows.push_back(cells);
        }
    }
    const auto fail = [&](std::size_t where, const std::string& problem) {
        throw ConfigError({diagnostic_at(input.path(), text, where, problem)});
    };
    const auto gpus = static_cast<std::size_t>(
        std::count_if(head.begin(), head.end(), [](const Cell& cell) { return numbered(cell.text, "GPU"); }));
    if (gpus == 0) {
        fail(0, "expected the matrix of 'nvidia-smi topo -m', whose first line names GPU0, GPU1, ..., and found none");
    }
    if (rows.size() != gpus) {
        fail(head[0].at, fmt::format("expected a row for each of {} GPUs, and found {}", gpus, rows.size()));
    }
    std::set<std::string> kinds;
    double links = 0;
    for (std::size_t i = 0; i < gpus; ++i) {
        if (rows[i].size() < gpus + 1) {
            fail(rows[i][0].at, fmt::format("expected {} columns of GPUs, and found {}", gpus, rows[i].size() - 1));
        }
        double own = 0;
        for (std::size_t j = 0; j < gpus; ++j) {
            const Cell& cell = rows[i][j + 1];
            if ((i == j) != (cell.text == "X")) {
                fail(cell.at, fmt::format("expected {}, and found '{}'",
                                          i == j ? "X where a GPU meets itself" : "a way to another GPU",
                                          printable(cell.text, 20)));
            }
            if (i == j) {
                continue;
            }
            if (numbered(cell.text, "NV")) {
                own = std::max(own, std::stod(cell.text.substr(2)));
            } else if (!is_way(cell.text)) {
                fail(cell.at, fmt::format("expected NV and a number, PIX, PXB, PHB, NODE or SYS, and found '{}'",
                                          printable(cell.text, 20)));
            }
            kinds.insert(numbered(cell.text, "NV") ? cell.text : "PCIe");
        }
        links = std::max(links, own);
    }
    if (kinds.size() > 1) {
        fail(rows[0][0].at,
             fmt::format(
                 "pairs of GPUs are joined in several ways ({}), and a node here has one for all: describe groups "
                 "of GPUs as nodes of their own",
                 fmt::format("{}", fmt::join(kinds, ", "))));
    }
    const auto [nics, others] = nics_of(head, rows);
    NodeFacts facts;
    facts.gpus = gpus;
    facts.links = links;
    facts.nics = nics;
    facts.source = "nvidia-smi topo -m";
    ImportNotes notes;
    notes.read("GPUs", gpus);
    notes.read("NICs", nics);
    if (others > 0) {
        notes.left_out("NICs that share no PCIe switch with a GPU, as those of storage do", others);
    }
    // Two cards with a bridge have links of their own; four boards of V100, A100 or H100 without switches share out 6,
    // 12 or 18 links among three others, where more GPUs with the same number each have a switch.
    constexpr double kMeshes[] = {2, 4, 6};
    facts.mesh = gpus == 4 && std::find(std::begin(kMeshes), std::end(kMeshes), links) != std::end(kMeshes);
    if (links > 0 && links < 6 && gpus > 2 && !facts.mesh) {
        fail(rows[0][0].at, fmt::format("expected all NVLinks of a GPU, or 2, 4 or 6 for each pair of four, and found "
                                        "{:.0f} for each pair of {} GPUs",
                                        links, gpus));
    }
    return node_scenario(input, facts, "nvidia-topo", std::move(notes));
}

}  // namespace

extern const Importer kNvidiaTopoImporter = {"nvidia-topo", "the matrix of 'nvidia-smi topo -m', as a node",
                                             node_options(), read_matrix, "yaml"};

}  // namespace orrery::imports
