#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

namespace orrery::imports {

ImportInput ImportInput::of_bytes(std::string name, std::string bytes, std::map<std::string, std::string> options) {
    ImportInput input(std::move(name), std::move(options));
    input.bytes_ = std::move(bytes);
    return input;
}

ImportInput ImportInput::with(DataDirectory data, ScenarioCheck check) const {
    ImportInput out = *this;
    out.data_ = std::move(data);
    out.check_ = std::move(check);
    return out;
}

std::string ImportInput::problem(const std::string& scenario) const {
    return check_ ? check_(scenario) : "";
}

std::string ImportInput::bytes() const {
    return bytes_ ? *bytes_ : read_input(path_);
}

std::unique_ptr<std::istream> ImportInput::stream() const {
    if (bytes_) {
        return std::make_unique<std::istringstream>(*bytes_);
    }
    return std::make_unique<InputFile>(path_);
}

std::string ImportInput::option(const std::string& name) const {
    const auto found = options_.find(name);
    return found == options_.end() ? std::string() : found->second;
}

double ImportInput::bytes_option(const std::string& name) const {
    double value = 0;
    std::string problem;
    if (has(name) &&
        (!parse_quantity(option(name), Dimension::bytes, value, problem) || !(value >= 1 && value <= 1e18))) {
        throw ConfigError(fmt::format("--{} is a size from 1 B, not '{}'{}", name, option(name),
                                      problem.empty() ? "" : ": " + problem),
                          ErrorCode::command_line);
    }
    return value;
}

std::uint32_t ImportInput::whole_option(const std::string& name) const {
    double value = 0;
    if (has(name) &&
        (!parse_number(option(name), value) || value != std::floor(value) || value < 1 || value > kMostRanks)) {
        throw ConfigError(fmt::format("--{} is a whole number from 1 to {}, not '{}'", name, kMostRanks, option(name)),
                          ErrorCode::command_line);
    }
    return static_cast<std::uint32_t>(value);
}
}  // namespace orrery::imports
