#include "workloads/imports/importer.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::replay {

extern const Importer kPyTorchImporter;
extern const Importer kNsysImporter;
extern const Importer kChakraImporter;
extern const Importer kGoalImporter;
extern const Importer kAicbImporter;
extern const Importer kRocprofImporter;
extern const Importer kJaxImporter;

}  // namespace orrery::replay

namespace orrery::imports {

extern const Importer kOtlpImporter;
extern const Importer kRequestsImporter;
extern const Importer kMegatronImporter;
extern const Importer kTorchtitanImporter;
extern const Importer kDeepSpeedImporter;
extern const Importer kNemoImporter;
extern const Importer kAutomodelImporter;
extern const Importer kFinetuneImporter;
extern const Importer kRlImporter;
extern const Importer kVllmImporter;
extern const Importer kSglangImporter;
extern const Importer kTensorRtLlmImporter;
extern const Importer kHuggingFaceImporter;
extern const Importer kGraphCsvImporter;
extern const Importer kGraphMlImporter;
extern const Importer kInfraGraphImporter;
extern const Importer kSimaiTopologyImporter;
extern const Importer kHtsimImporter;
extern const Importer kAstraNetworkImporter;
extern const Importer kNvidiaTopoImporter;
extern const Importer kNcclTopologyImporter;

const std::vector<const Importer*>& importer_table() {
    static const std::vector<const Importer*> kTable = {
        &kPyTorchImporter,      &kNsysImporter,        &kChakraImporter,        &kGoalImporter,
        &kAicbImporter,         &kOtlpImporter,        &kMegatronImporter,      &kVllmImporter,
        &kSglangImporter,       &kTensorRtLlmImporter, &kHuggingFaceImporter,   &kGraphCsvImporter,
        &kGraphMlImporter,      &kInfraGraphImporter,  &kSimaiTopologyImporter, &kHtsimImporter,
        &kRequestsImporter,     &kTorchtitanImporter,  &kDeepSpeedImporter,     &kNemoImporter,
        &kAutomodelImporter,    &kRlImporter,          &kAstraNetworkImporter,  &kNvidiaTopoImporter,
        &kNcclTopologyImporter, &kRocprofImporter,     &kJaxImporter,           &kFinetuneImporter,
    };
    return kTable;
}

const Importer& importer(const std::string& format) {
    std::vector<std::string> names;
    for (const Importer* row : importer_table()) {
        if (format == row->name) {
            return *row;
        }
        names.emplace_back(row->name);
    }
    const std::string near = nearest_name(format, names);
    throw ConfigError(
        fmt::format("unknown format '{}'{}; there are {}", format,
                    near.empty() ? "" : fmt::format("; did you mean '{}'?", near), fmt::join(names, ", ")),
        ErrorCode::unknown_name);
}

Imported import_file(const std::string& format, const ImportInput& input) {
    const Importer& row = importer(format);
    for (const Importer* other : importer_table()) {
        for (const ImportOption& option : other->options) {
            const auto same = [&](const ImportOption& own) { return std::string(own.name) == option.name; };
            if (input.has(option.name) && std::none_of(row.options.begin(), row.options.end(), same)) {
                throw ConfigError(
                    fmt::format("--{} is an option of format {}, not of {}", option.name, other->name, row.name),
                    ErrorCode::command_line);
            }
        }
    }
    return row.read(input);
}

std::string Importer::default_output(const std::string& input) const {
    return std::filesystem::path(unpacked_name(input)).stem().string() + "." + extension;
}

}  // namespace orrery::imports
