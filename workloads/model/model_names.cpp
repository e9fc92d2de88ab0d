#include "workloads/model/model_names.hpp"

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>

#include <fstream>

namespace orrery::inline model {

namespace {

constexpr const char* kSources = "workloads/data/model_sources.csv";

struct Line {
    std::vector<std::string> cells;
    Mark mark;
};

// Lines of a table, without its header and comments. The last column takes the rest of a line, commas too.
std::vector<Line> read_table(const std::string& path, std::size_t columns) {
    std::vector<Line> out;
    std::ifstream file(path);
    const auto name = std::make_shared<const std::string>(path);
    int number = 0;
    for (std::string text; std::getline(file, text);) {
        ++number;
        if (text.empty() || text[0] == '#' || number == 1) {
            continue;
        }
        Line line;
        line.mark = Mark{name, number, 1};
        std::size_t begin = 0;
        while (line.cells.size() + 1 < columns) {
            const std::size_t end = text.find(',', begin);
            if (end == std::string::npos) {
                throw ConfigError({line.mark.error(
                    fmt::format("has {} columns, and this table {}", line.cells.size() + 1, columns))});
            }
            line.cells.push_back(text.substr(begin, end - begin));
            begin = end + 1;
        }
        line.cells.push_back(text.substr(begin));
        out.push_back(std::move(line));
    }
    return out;
}

}  // namespace

std::vector<ModelSource> model_sources(const DataDirectory& data) {
    std::vector<ModelSource> out;
    for (const Line& line : read_table(data.path(kSources), 6)) {
        ModelSource row;
        row.preset = line.cells[0];
        row.source = line.cells[1];
        double* const figures[] = {&row.total, &row.active, &row.tolerance};
        for (std::size_t i = 0; i < 3; ++i) {
            try {
                *figures[i] = line.cells[i + 2].empty() ? *figures[i] : std::stod(line.cells[i + 2]);
            } catch (const std::exception&) {
                throw ConfigError({line.mark.error(fmt::format("'{}' is no number", line.cells[i + 2]))});
            }
        }
        row.not_modelled = line.cells[5];
        out.push_back(std::move(row));
    }
    return out;
}

std::string not_modelled(const std::string& preset, const DataDirectory& data) {
    for (const Line& line : read_table(data.path(kSources), 6)) {
        if (line.cells[0] == preset) {
            return line.cells[5];
        }
    }
    return "";
}

}  // namespace orrery::inline model
