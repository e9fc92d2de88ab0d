#include "sim/config/data_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery {

std::vector<std::string> DataDirectory::names(const PresetKind& kind) const {
    return names(TableKind{kind.directory, ".yaml"});
}

std::vector<std::string> DataDirectory::names(const TableKind& kind) const {
    std::vector<std::string> names;
    std::error_code ignored;
    const auto add_all = [&](const std::filesystem::path& directory) {
        for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
            const bool folder = entry.is_directory(ignored);
            if (kind.extension[0] == '\0' && folder) {
                names.push_back(entry.path().filename().string());
            } else if (!folder && entry.path().extension() == kind.extension) {
                names.push_back(entry.path().stem().string());
            }
        }
    };
    const std::filesystem::path directory = path(kind.directory);
    if (directory.filename() == "*") {
        for (const auto& entry : std::filesystem::directory_iterator(directory.parent_path(), ignored)) {
            add_all(entry.path());
        }
    } else {
        add_all(directory);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string DataDirectory::path(const PresetKind& kind, const std::string& name) const {
    return fmt::format("{}/{}/{}.yaml", root_, kind.directory, name);
}

}  // namespace orrery
