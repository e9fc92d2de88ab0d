#include "workloads/imports/hf_values.hpp"

#include "sim/base/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace orrery::imports {

using Json = nlohmann::json;

struct HfValues::Source {
    const Json& json;
    const Json* outer;
    const std::string& file;
    const std::string& text;
    std::size_t start;

    /// The value of a key; null where there is none, or JSON's null.
    [[nodiscard]] const Json* find(const std::string& key) const {
        for (const Json* map : {&json, outer}) {
            if (map == nullptr || !map->is_object()) {
                continue;
            }
            if (const auto found = map->find(key); found != map->end() && !found->is_null()) {
                return &*found;
            }
        }
        return nullptr;
    }
};

template <class AnyJson>
HfValues::HfValues(const AnyJson& json, std::type_identity_t<const AnyJson*> outer, const std::string& file,
                   const std::string& text, const std::string& key)
    : source_(std::make_shared<Source>(
          Source{json, outer, file, text, key.empty() ? 0 : std::min(text.find('"' + key + '"'), text.size())})) {}

template HfValues::HfValues(const Json&, const Json*, const std::string&, const std::string&, const std::string&);

void HfValues::pass(const std::vector<const char*>& keys) {
    read_.insert(keys.begin(), keys.end());
}

bool HfValues::has(const char* key) const {
    return source_->find(key) != nullptr;
}

bool HfValues::has_number(const char* key) const {
    const Json* found = source_->find(key);
    return found != nullptr && found->is_number();
}

double HfValues::real(const char* key) {
    read_.insert(key);
    const Json* found = source_->find(key);
    return found != nullptr && found->is_number() ? std::clamp(found->get<double>(), 0.0, 1e9) : 0;
}

std::optional<HfValues> HfValues::map(const char* key) {
    read_.insert(key);
    const Json* found = source_->find(key);
    return found != nullptr && found->is_object()
               ? std::optional(HfValues(*found, nullptr, source_->file, source_->text, key))
               : std::nullopt;
}

std::vector<HfValues> HfValues::maps(const char* key) {
    read_.insert(key);
    std::vector<HfValues> out;
    if (const Json* found = source_->find(key); found != nullptr && found->is_array()) {
        for (const Json& item : *found) {
            out.emplace_back(item, nullptr, source_->file, source_->text, key);
        }
    }
    return out;
}

std::int64_t HfValues::whole(const std::vector<const char*>& keys) {
    for (const char* key : keys) {
        const Json* found = source_->find(key);
        if (found == nullptr) {
            continue;
        }
        read_.insert(keys.begin(), keys.end());  // the others say the same in other words
        const Json one = Json::array({*found});
        const Json& items = found->is_array() && !found->empty() ? *found : one;
        std::int64_t sum = 0;
        for (const Json& item : items) {
            if (!item.is_number_integer() || item < 0 || item > 1'000'000'000) {
                throw ConfigError({error(key, fmt::format("'{}' must be a whole number", key))});
            }
            sum += item.get<std::int64_t>();
        }
        if (std::any_of(items.begin(), items.end(), [&](const Json& item) { return item != items.front(); })) {
            means_.insert(key);
        }
        const auto count = static_cast<std::int64_t>(items.size());
        return (sum + count / 2) / count;
    }
    return 0;
}

std::int64_t HfValues::needed(const std::vector<const char*>& keys) {
    const std::int64_t value = whole(keys);
    if (value == 0) {
        std::vector<std::string> found;
        for (const auto& [key, item] : source_->json.items()) {
            if (found.size() < 6) {
                found.push_back("'" + printable(key, 40) + "'");
            }
        }
        throw ConfigError(
            {error("", fmt::format("'{}' is missing: a config.json of a language model has it, and this one has {}",
                                   keys[0], found.empty() ? "nothing" : fmt::format("{}", fmt::join(found, ", "))))});
    }
    return value;
}

bool HfValues::flag(const char* key, bool otherwise) {
    read_.insert(key);
    const Json* found = source_->find(key);
    return found != nullptr && found->is_boolean() ? found->get<bool>() : otherwise;
}

std::string HfValues::text(const char* key) {
    read_.insert(key);
    const Json* found = source_->find(key);
    return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> HfValues::words(const char* key) {
    read_.insert(key);
    const Json* found = source_->find(key);
    const bool list = found != nullptr && found->is_array() &&
                      std::all_of(found->begin(), found->end(), [](const Json& item) { return item.is_string(); });
    return list ? found->get<std::vector<std::string>>() : std::vector<std::string>();
}

std::vector<std::int64_t> HfValues::numbers(const char* key) {
    read_.insert(key);
    const Json* found = source_->find(key);
    const bool list =
        found != nullptr && found->is_array() &&
        std::all_of(found->begin(), found->end(), [](const Json& item) { return item.is_number_integer(); });
    return list ? found->get<std::vector<std::int64_t>>() : std::vector<std::int64_t>();
}

Diagnostic HfValues::error(const std::string& key, const std::string& problem) const {
    const std::size_t at = key.empty() ? std::string::npos : source_->text.find('"' + key + '"', source_->start);
    return diagnostic_at(source_->file, source_->text, at == std::string::npos ? source_->start : at, problem);
}

}  // namespace orrery::imports
