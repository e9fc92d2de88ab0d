#include "workloads/serving/requests/formats/trace_format.hpp"

#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery::serving {

extern const TraceFormat kAzureFormat;
extern const TraceFormat kBurstGptFormat;
extern const TraceFormat kBailianFormat;
extern const TraceFormat kMooncakeFormat;
extern const TraceFormat kPlainFormat;
extern const TraceFormat kNamedFormat;

const std::vector<const TraceFormat*>& trace_format_table() {
    static const std::vector<const TraceFormat*> kTable = {
        &kAzureFormat, &kBurstGptFormat, &kBailianFormat, &kMooncakeFormat, &kPlainFormat, &kNamedFormat,
    };
    return kTable;
}

double traced_number(std::string_view text, std::string_view what, double most) {
    double value = 0;
    if (!parse_number(text, value) || !(value >= 0 && value <= most)) {
        throw BadLine{fmt::format("{} is a number from 0 to {:.0f}, not '{}'", what, most, text)};
    }
    return value;
}

double traced_count(std::string_view text, std::string_view what, double most) {
    const double value = traced_number(text, what, most);
    if (value != std::floor(value)) {
        throw BadLine{fmt::format("{} is a whole number, not '{}'", what, text)};
    }
    return value;
}

}  // namespace orrery::serving
