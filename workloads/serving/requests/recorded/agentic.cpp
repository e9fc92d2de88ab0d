// Mooncake's JSON lines with a graph: a request comes `delay` and `tool_wait_ms` after the last of those in `wait_for` has ended, or at its
// `timestamp` where it waits for none. Keys are of 512 tokens. `branches`, `prefix_reset` and `tool_events` change nothing of that.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

#include <algorithm>
#include <map>

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

// A name as a text, whatever it is in the file; empty: there is none.
std::string name_of(const Json& map, const char* key) {
    const auto found = map.find(key);
    return found == map.end() || found->is_null() ? "" : found->is_string() ? found->get<std::string>() : found->dump();
}

std::vector<std::string> waits_of(const Json& record) {
    std::vector<std::string> out;
    const auto found = record.find("wait_for");
    if (found == record.end() || found->is_null()) {
        return out;
    }
    if (!found->is_array()) {
        return {name_of(record, "wait_for")};
    }
    for (const Json& one : *found) {
        out.push_back(one.is_string() ? one.get<std::string>() : one.dump());
    }
    return out;
}

void read_keys(const Json& record, RecordedRequest& one) {
    const auto ids = record.find("hash_ids");
    if (ids == record.end() || ids->is_null()) {
        return;
    }
    for (const Json& id : *ids) {
        if (!id.is_number_unsigned()) {
            throw BadRecord{"\"hash_ids\" is a list of whole numbers from 0", "hash_ids"};
        }
        one.keys.push_back(id.get<std::uint64_t>() + 1);
    }
}

// Requests that can never come as they wait for themselves.
void check_circles(const Recorded& out, const std::vector<std::string>& names) {
    std::vector<std::size_t> waits;
    std::vector<std::vector<std::uint32_t>> then(out.requests.size());
    std::vector<std::uint32_t> free;
    for (std::uint32_t i = 0; i < out.requests.size(); ++i) {
        waits.push_back(out.requests[i].after.size());
        for (const std::uint32_t before : out.requests[i].after) {
            then[before].push_back(i);
        }
        if (waits[i] == 0) {
            free.push_back(i);
        }
    }
    for (std::size_t at = 0; at < free.size(); ++at) {
        for (const std::uint32_t next : then[free[at]]) {
            if (--waits[next] == 0) {
                free.push_back(next);
            }
        }
    }
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t left) { return left > 0; });
    if (stuck != waits.end()) {
        throw BadRecord{fmt::format("request {} waits for itself, by those that it waits for",
                                    names[static_cast<std::size_t>(stuck - waits.begin())]),
                        "wait_for"};
    }
}

void read_agentic(const JsonRecords& records, Recorded& out) {
    std::map<std::string, std::uint32_t> index;
    std::map<std::string, std::uint32_t> sessions;
    std::vector<std::string> names;
    for (const Json& record : records.maps) {
        const std::string name = name_of(record, "request_id");
        const auto number = static_cast<std::uint32_t>(names.size());
        if (name.empty()) {
            throw BadRecord{fmt::format("request {} has no \"request_id\"", number + 1), ""};
        }
        if (!index.emplace(name, number).second) {
            throw BadRecord{fmt::format("two requests have the \"request_id\" {}", name), "request_id"};
        }
        names.push_back(name);
    }
    double latest = 0;
    for (const Json& record : records.maps) {
        const std::size_t at = out.requests.size();
        RecordedRequest one;
        one.prompt = needed_number(record, {"input_length"}, at);
        one.output = needed_number(record, {"output_length"}, at);
        for (const std::string& before : waits_of(record)) {
            const auto found = index.find(before);
            if (found == index.end()) {
                throw BadRecord{fmt::format("request {} waits for {}, and there is no such request", names[at], before),
                                "wait_for"};
            }
            one.after.push_back(found->second);
        }
        if (one.after.empty()) {
            latest = one.at_s = needed_number(record, {"timestamp"}, at) / 1000;
        } else {
            one.at_s = number_of(record, {"timestamp"}).value_or(latest * 1000) / 1000;
            one.delay_s =
                (number_of(record, {"delay"}).value_or(0) + number_of(record, {"tool_wait_ms"}).value_or(0)) / 1000;
            if (!(one.delay_s >= 0)) {
                throw BadRecord{fmt::format("request {} comes before what it waits for", names[at]), "delay"};
            }
        }
        const std::string session = name_of(record, "session_id");
        const auto fresh = static_cast<std::uint32_t>(sessions.size() + 1);
        one.session = sessions.try_emplace(session.empty() ? names[at] : session, fresh).first->second;
        read_keys(record, one);
        out.requests.push_back(std::move(one));
    }
    check_circles(out, names);
    out.graph = true;
}

}  // namespace

extern const RecordFormat kAgenticFormat = {
    "agentic-mooncake", "Mooncake's JSON lines of agents, whose requests wait for others",
    "\"request_id\", \"wait_for\": [...], \"input_length\", \"output_length\"",
    [](const JsonRecords& records) {
        return std::any_of(records.maps.begin(), records.maps.end(), [](const Json& record) {
            return record.is_object() && record.contains("wait_for") && record.contains("input_length");
        });
    },
    read_agentic};

}  // namespace orrery::serving
