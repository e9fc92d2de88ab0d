#include "sim/config/data_directory.hpp"

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

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

// Prices stand in one table, so that one file replaces them all; a preset of the user's own may still have its own.
static void add_price(YamlNode& preset, const PresetKind& kind, const std::string& name, const DataDirectory& data) {
    const bool is_node = std::string_view(kind.directory) == "topologies/data/nodes";
    if (preset.kind != YamlNode::Kind::map || (!is_node && std::string_view(kind.directory) != "models/data/devices")) {
        return;
    }
    const std::string file = data.path("models/data/prices.yaml");
    if (std::error_code ignored; !std::filesystem::exists(file, ignored)) {
        return;
    }
    const YamlNode table = load_yaml(file);
    const YamlNode* found = table.find(is_node ? "nodes" : "devices");
    for (const std::string& key : {name, std::string("on-demand")}) {
        found = found != nullptr ? found->find(key) : nullptr;
    }
    if (found == nullptr) {
        return;
    }
    YamlNode* priced = &preset;
    if (is_node) {
        priced = preset.find("gpu");
        if (priced == nullptr) {
            return;
        }
        if (priced->kind == YamlNode::Kind::scalar) {
            YamlNode device;
            device.kind = YamlNode::Kind::map;
            device.mark = priced->mark;
            device.entries = {YamlNode::Entry{"preset", priced->mark, *priced}};
            *priced = device;
        }
    }
    if (priced->find("price") == nullptr) {
        priced->entries.push_back({"price", found->mark, *found});
    }
}

static std::shared_ptr<const YamlNode> read_preset(const PresetKind& kind, const std::string& name,
                                                   const DataDirectory& data) {
    YamlNode preset = load_yaml(data.path(kind, name));
    add_price(preset, kind, name, data);
    return std::make_shared<const YamlNode>(std::move(preset));
}

std::shared_ptr<const YamlNode> DataDirectory::preset(const PresetKind& kind, const std::string& name) const {
    if (read_ == nullptr) {
        return read_preset(kind, name, *this);
    }
    const std::lock_guard<std::mutex> lock(read_->mutex);
    std::shared_ptr<const YamlNode>& known = read_->files[path(kind, name)];
    if (known == nullptr) {
        known = read_preset(kind, name, *this);
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
