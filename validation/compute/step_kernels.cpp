#include "validation/compute/step_kernels.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::validation {

namespace {

constexpr std::size_t kClasses = 3;
constexpr std::array<const char*, kClasses> kNames = {"products", "attention", "elementwise"};
// Parts of kernels' names: cuBLAS's products on Hopper and before, their split sums; fused attention of cuDNN and FlashAttention.
constexpr std::array<const char*, 6> kProducts = {"nvjet", "gemm", "Gemm", "cutlass", "gemv", "splitKreduce"};
constexpr std::array<const char*, 4> kAttention = {"sdpa", "cudnn::fusion", "flash", "fmha"};

template <typename Names>
bool holds_one_of(const std::string& text, const Names& names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return text.find(name) != std::string::npos; });
}

KernelClass class_of(const Operation& operation) {
    return std::holds_alternative<Attention>(operation)   ? KernelClass::attention
           : std::holds_alternative<Streaming>(operation) ? KernelClass::elementwise
                                                          : KernelClass::product;
}

}  // namespace

KernelClass class_of(const std::string& kernel) {
    return holds_one_of(kernel, kAttention)  ? KernelClass::attention
           : holds_one_of(kernel, kProducts) ? KernelClass::product
                                             : KernelClass::elementwise;
}

std::map<std::string, StepKernels> read_step_kernels(const std::string& file, const Trace& trace) {
    std::map<std::string, StepKernels> out;
    const std::string text = read_input(file);
    TableReader table(text, file, {',', true});
    while (table.next()) {
        StepKernels& seen = out[std::string(table.text("point"))];
        const auto kind = static_cast<std::size_t>(class_of(std::string(table.text("kernel"))));
        seen.us[kind] += table.number("us");
        seen.launches[kind] += table.number("launches");
    }
    table.finish();
    const bool any = std::any_of(trace.rows.begin(), trace.rows.end(), [&](const TraceRow& row) {
        return out.contains(row.point) && operations_in(row).size() > 1;
    });
    if (!any) {
        throw ConfigError({{file, 0, 0, "profiles none of the layers and steps of the trace"}});
    }
    return out;
}

void list_step_kernels(const Trace& trace, const RowPricer& pricer, const std::map<std::string, StepKernels>& profiles,
                       const Terminal& terminal) {
    std::vector<std::vector<std::string>> table;
    for (const TraceRow& row : trace.rows) {
        const auto found = profiles.find(row.point);
        const std::vector<Repeated> operations = operations_in(row);
        if (found == profiles.end() || operations.size() < 2) {
            continue;
        }
        std::array<double, kClasses> priced{};
        for (const auto& [operation, times] : operations) {
            priced[static_cast<std::size_t>(class_of(operation))] += 1e6 * times * pricer.price(operation).seconds;
        }
        std::vector<std::string> cells = {
            fmt::format("{}{}", row.op, row.note.empty() ? "" : ", " + row.note),
            fmt::format("{:g} x {:g}", row.dim("batch"), row.dim("queries")),
            row.dim("keys") > 0 ? fmt::format("{:g}", row.dim("keys")) : "",
            row.mode,
        };
        for (std::size_t kind = 0; kind < kClasses; ++kind) {
            const double us = found->second.us[kind];
            cells.push_back(fmt::format("{:g}", found->second.launches[kind]));
            cells.push_back(fmt::format("{:.4g}", us));
            cells.push_back(us > 0 ? fmt::format("{:+.1f} %", 100 * (priced[kind] / us - 1)) : "");
        }
        table.push_back(std::move(cells));
    }
    std::vector<std::string> header = {"point", "batch x queries", "keys", "mode"};
    for (const char* name : kNames) {
        header.insert(header.end(), {name, "us", "error"});
    }
    terminal.heading("kernels of one execution: launches, us, error of the prices");
    terminal.table(header, table);
}

}  // namespace orrery::validation
