#include "sim/config/data_directory.hpp"

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

namespace orrery::config {

struct DataDirectory::Read {
    std::mutex mutex;
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> names;  ///< by directory and extension
    std::map<std::string, std::shared_ptr<const YamlNode>> files;                   ///< by path
};

DataDirectory DataDirectory::read_once() const {
    DataDirectory out = *this;
    out.read_ = read_ != nullptr ? read_ : std::make_shared<Read>();
    return out;
}

std::shared_ptr<const YamlNode> DataDirectory::preset(const PresetKind& kind, const std::string& name) const {
    const std::string file = path(kind, name);
    if (read_ == nullptr) {
        return std::make_shared<const YamlNode>(load_yaml(file));
    }
    const std::lock_guard<std::mutex> lock(read_->mutex);
    std::shared_ptr<const YamlNode>& known = read_->files[file];
    if (known == nullptr) {
        known = std::make_shared<const YamlNode>(load_yaml(file));
    }
    return known;
}

std::vector<std::string> DataDirectory::names(const PresetKind& kind) const {
    return names(TableKind{kind.directory, ".yaml"});
}

std::vector<std::string> DataDirectory::names(const TableKind& kind) const {
    if (read_ == nullptr) {
        return listed(kind);
    }
    const std::lock_guard<std::mutex> lock(read_->mutex);
    const auto [known, fresh] = read_->names.try_emplace({kind.directory, kind.extension});
    if (fresh) {
        known->second = listed(kind);
    }
    return known->second;
}

std::vector<std::string> DataDirectory::listed(const TableKind& kind) const {
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
    for (const std::string& root : {root_, own_}) {
        if (root.empty()) {
            continue;
        }
        const std::filesystem::path directory = root + "/" + kind.directory;
        if (directory.filename() == "*") {
            for (const auto& entry : std::filesystem::directory_iterator(directory.parent_path(), ignored)) {
                add_all(entry.path());
            }
        } else {
            add_all(directory);
        }
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string DataDirectory::path(const PresetKind& kind, const std::string& name) const {
    return path(fmt::format("{}/{}.yaml", kind.directory, name));
}

std::string DataDirectory::path(const std::string& relative) const {
    std::error_code ignored;
    const bool is_own = !own_.empty() && std::filesystem::exists(own_ + "/" + relative, ignored);
    return (is_own ? own_ : root_) + "/" + relative;
}

DataDirectory DataDirectory::with_own(const std::string& own) const {
    std::error_code ignored;
    for (const char* folder : {"models/data", "topologies/data", "workloads/data"}) {
        if (std::filesystem::is_directory(own + "/" + folder, ignored)) {
            return DataDirectory(root_, own);
        }
    }
    throw ConfigError(
        {Diagnostic{own, 0, 0,
                    "holds none of models/data, topologies/data and workloads/data: --data names a folder with the "
                    "layout of this program's own data, such as models/data/devices/my-gpu.yaml"}});
}

}  // namespace orrery::config
