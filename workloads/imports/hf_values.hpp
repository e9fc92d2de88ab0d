#pragma once
// The values of a Hugging Face config.json, and which of its keys were read.

#include "sim/base/error.hpp"
#include "workloads/imports/importer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace orrery::imports {

class HfValues {
  public:
    /// `json`: the map that is the value of `key`, or the whole file where that is empty; `outer`: the map around it, whose values count
    /// where `json` has none; null: none do. Both are nlohmann::json and outlive this.
    template <class Json>
    HfValues(const Json& json, std::type_identity_t<const Json*> outer, const std::string& file,
             const std::string& text, const std::string& key);

    /// The first of these keys that is there, as a whole number: of a list the mean, as the items are those of layers. 0 where none is.
    [[nodiscard]] std::int64_t whole(const std::vector<const char*>& keys);
    /// Throws ConfigError where none of these keys is there.
    [[nodiscard]] std::int64_t needed(const std::vector<const char*>& keys);
    [[nodiscard]] double real(const char* key);
    [[nodiscard]] bool flag(const char* key, bool otherwise);
    [[nodiscard]] std::string text(const char* key);
    /// The items of a list of words or of whole numbers; empty where the key has no such list.
    [[nodiscard]] std::vector<std::string> words(const char* key);
    [[nodiscard]] std::vector<std::int64_t> numbers(const char* key);
    /// The map that a key has; none where it has no map. The maps of a list.
    [[nodiscard]] std::optional<HfValues> map(const char* key);
    [[nodiscard]] std::vector<HfValues> maps(const char* key);
    [[nodiscard]] bool has(const char* key) const;
    [[nodiscard]] bool has_number(const char* key) const;
    /// Counts keys as read which repeat what others say.
    void pass(const std::vector<const char*>& keys);

    /// Something wrong with the value of a key, or where it is empty with the map.
    [[nodiscard]] Diagnostic error(const std::string& key, const std::string& problem) const;
    [[nodiscard]] const std::set<std::string>& read() const { return read_; }
    /// Keys whose values differ from layer to layer and count with their mean.
    [[nodiscard]] const std::set<std::string>& means() const { return means_; }

  private:
    struct Source;
    std::shared_ptr<const Source> source_;
    std::set<std::string> read_, means_;
};

}  // namespace orrery::imports
