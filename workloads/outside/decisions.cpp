#include "workloads/outside/decisions.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/outside/connection.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>

namespace orrery::outside {

namespace {

using Json = nlohmann::json;

constexpr std::array kWhenFull = {"stop", "skip", "preempt"};

std::string shown(std::string_view line) {
    constexpr std::size_t kMost = 200;
    return line.size() > kMost ? std::string(line.substr(0, kMost)) + "..." : std::string(line);
}

Json parsed(std::string_view line, const std::string& policy, const char* key) {
    Json out = Json::parse(line, nullptr, false);
    if (out.is_object() && out.contains("error") && out["error"].is_string()) {
        policy_failed(policy, out["error"].get<std::string>());
    }
    if (!out.is_object() || !out.contains(key)) {
        policy_failed(policy,
                      fmt::format("it must answer with an object that has '{}', but said {}", key, shown(line)));
    }
    return out;
}

bool is_whole(const Json& value, std::uint64_t most) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= most;
}

constexpr auto kMostTokens = std::numeric_limits<std::uint32_t>::max();
constexpr const char* kForms =
    "an order is REQUEST, [REQUEST, TOKENS], {\"preempt\": REQUEST} or {\"run\": [REQUEST, ...], \"tokens\": TOKENS, "
    "\"when_full\": \"stop\", \"skip\" or \"preempt\"}";

bool take_group(const Json& one, Orders& orders) {
    Order order;
    std::size_t known = 1;
    if (const auto tokens = one.find("tokens"); tokens != one.end()) {
        ++known;
        if (!is_whole(*tokens, kMostTokens)) {
            return false;
        }
        order.tokens = tokens->get<std::uint32_t>();
    }
    if (const auto word = one.find("when_full"); word != one.end()) {
        ++known;
        const auto found =
            std::find_if(kWhenFull.begin(), kWhenFull.end(), [&](const char* name) { return *word == name; });
        if (found == kWhenFull.end()) {
            return false;
        }
        order.when_full = static_cast<policy::WhenFull>(found - kWhenFull.begin());
    }
    const Json& requests = one["run"];
    for (const Json& request : requests) {
        if (!request.is_number_unsigned()) {
            return false;
        }
        order.request = request.get<std::uint64_t>();
        orders.push_back(order);
    }
    return requests.is_array() && known == one.size();
}

// False: it has none of the forms.
bool take(const Json& one, Orders& orders) {
    if (one.is_number_unsigned()) {
        orders.push_back({one.get<std::uint64_t>(), 0, {}, false});
        return true;
    }
    if (one.is_object() && one.contains("run")) {
        return take_group(one, orders);
    }
    if (one.is_object()) {
        const bool right = one.size() == 1 && one.contains("preempt") && one["preempt"].is_number_unsigned();
        if (right) {
            orders.push_back({one["preempt"].get<std::uint64_t>(), 0, {}, true});
        }
        return right;
    }
    const bool right =
        one.is_array() && one.size() == 2 && one[0].is_number_unsigned() && is_whole(one[1], kMostTokens);
    if (right) {
        orders.push_back({one[0].get<std::uint64_t>(), one[1].get<std::uint32_t>(), {}, false});
    }
    return right;
}

std::string key_of(const std::string& kind, std::uint64_t number) {
    return fmt::format("{} {}", kind, number);
}

}  // namespace

std::string text_of(const Orders& orders) {
    std::string out = "[";
    for (std::size_t i = 0; i < orders.size();) {
        const Order& order = orders[i];
        out += out.size() > 1 ? "," : "";
        if (order.preempts) {
            out += fmt::format("{{\"preempt\":{}}}", order.request);
            ++i;
        } else if (order.when_full != policy::WhenFull::stop) {
            ORRERY_ASSERT(static_cast<std::size_t>(order.when_full) < kWhenFull.size());
            out += "{\"run\":[";
            const std::size_t first = i;
            for (; i < orders.size() && !orders[i].preempts && orders[i].tokens == order.tokens &&
                   orders[i].when_full == order.when_full;
                 ++i) {
                out += fmt::format("{}{}", i > first ? "," : "", orders[i].request);
            }
            out += fmt::format("],\"tokens\":{},\"when_full\":\"{}\"}}", order.tokens,
                               kWhenFull[static_cast<std::size_t>(order.when_full)]);
        } else {
            out +=
                order.tokens > 0 ? fmt::format("[{},{}]", order.request, order.tokens) : std::to_string(order.request);
            ++i;
        }
    }
    return out + "]";
}

void read_orders(std::string_view line, const std::string& policy, Orders& orders) {
    const Json answer = parsed(line, policy, "orders");
    const Json& list = answer["orders"];
    if (!list.is_array()) {
        policy_failed(policy, fmt::format("'orders' must be a list, but it said {}", shown(line)));
    }
    orders.clear();
    for (const Json& one : list) {
        if (!take(one, orders)) {
            policy_failed(policy, fmt::format("{}, not {}", kForms, shown(one.dump())));
        }
    }
}

std::size_t read_choice(std::string_view line, const std::string& policy) {
    const Json answer = parsed(line, policy, "replica");
    if (!is_whole(answer["replica"], std::numeric_limits<std::uint32_t>::max())) {
        policy_failed(policy, fmt::format("'replica' must be an index, but it said {}", shown(line)));
    }
    return answer["replica"].get<std::size_t>();
}

std::uint32_t read_replicas(std::string_view line, const std::string& policy) {
    const Json answer = parsed(line, policy, "replicas");
    if (!is_whole(answer["replicas"], std::numeric_limits<std::uint32_t>::max())) {
        policy_failed(policy, fmt::format("'replicas' must be a number of replicas, but it said {}", shown(line)));
    }
    return answer["replicas"].get<std::uint32_t>();
}

bool read_admission(std::string_view line, const std::string& policy) {
    const Json answer = parsed(line, policy, "admit");
    if (!answer["admit"].is_boolean()) {
        policy_failed(policy, fmt::format("'admit' must be true or false, but it said {}", shown(line)));
    }
    return answer["admit"].get<bool>();
}

Recording::Recording(const std::string& file) : file_(file) {
    InputFile in(file);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        const auto wrong = [&](const std::string& problem) {
            throw ConfigError({Diagnostic{file, number, 1, problem, ErrorCode::malformed_trace}});
        };
        require_shallow_json(line, file);
        const Json one = Json::parse(line, nullptr, false);
        if (number == 1) {
            if (!one.is_object() || one.value("orrery_decisions", Json()) != 1) {
                wrong("no recording of decisions: its first line must be {\"orrery_decisions\": 1}");
            }
            continue;
        }
        const auto decider = std::find_if(kDeciders.begin(), kDeciders.end(),
                                          [&](const char* name) { return one.is_object() && one.contains(name); });
        const char* kind = decider != kDeciders.end() ? *decider : "";
        if (decider == kDeciders.end() || !is_whole(one[kind], std::numeric_limits<std::uint32_t>::max()) ||
            !one.contains("time") || !one["time"].is_number()) {
            wrong(fmt::format("a decision names who took it ('{}') by number, and its 'time'",
                              fmt::join(kDeciders, "', '")));
        }
        const std::string key = key_of(kind, one[kind].get<std::uint64_t>());
        auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& entry) { return entry.first == key; });
        if (found == all_.end()) {
            found = all_.insert(all_.end(), {key, {}});
        }
        found->second.lines.push_back({one["time"].get<double>(), line});
    }
    if (all_.empty()) {
        throw ConfigError({Diagnostic{file, 1, 1, "no decision is recorded here", ErrorCode::malformed_trace}});
    }
}

std::string Recording::next(const std::string& kind, std::uint32_t number, double time) {
    const std::string key = key_of(kind, number);
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found == all_.end() || found->second.lines.empty()) {
        policy_failed(file_, fmt::format("no decision of {} is recorded for {} s: the scenario is not the one that was "
                                         "recorded",
                                         key, time));
    }
    Recorded::Line line = std::move(found->second.lines.front());
    found->second.lines.pop_front();
    if (line.time != time) {
        policy_failed(file_,
                      fmt::format("{} decides at {} s, but the recorded decision was taken at {} s: the scenario "
                                  "is not the one that was recorded",
                                  key, time, line.time));
    }
    return std::move(line.text);
}

std::string recorded_plan(std::uint32_t number, double time, const Orders& orders) {
    return fmt::format("{{\"scheduler\":{},\"time\":{},\"orders\":{}}}\n", number, time, text_of(orders));
}

std::string recorded_choice(std::uint32_t number, double time, std::uint64_t request, std::size_t choice) {
    return fmt::format("{{\"router\":{},\"time\":{},\"request\":{},\"replica\":{}}}\n", number, time, request, choice);
}

std::string recorded_scale(std::uint32_t pool, double time, std::uint32_t replicas) {
    return fmt::format("{{\"autoscaler\":{},\"time\":{},\"replicas\":{}}}\n", pool, time, replicas);
}

std::string recorded_admit(double time, std::uint64_t request, bool admits) {
    return fmt::format("{{\"admission\":0,\"time\":{},\"request\":{},\"admit\":{}}}\n", time, request, admits);
}

}  // namespace orrery::outside
