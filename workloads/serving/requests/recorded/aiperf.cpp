// AIPerf: data sets with sessions, whose later turns come a delay after the answer before them, and results per request
// (profile_export.jsonl). Source: ai-dynamo/aiperf, docs/benchmark-modes/trace-replay.md and docs/tutorials.
//
// A turn of a session is sent with all that was said before it, so that its prompt has these tokens as well.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

#include <map>

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

// A metric: {"value": 12.5, "unit": "ms"}; in seconds, or tokens as they are.
std::optional<double> metric(const Json& metrics, const char* name) {
    const auto found = metrics.find(name);
    if (found == metrics.end()) {
        return std::nullopt;
    }
    const std::optional<double> value =
        found->is_number() ? std::optional(found->get<double>()) : number_of(*found, {"value"});
    const std::string unit = found->is_object() ? found->value("unit", "") : "";
    const double scale = unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : unit == "ns" ? 1e-9 : 1;
    return value ? std::optional(*value * scale) : std::nullopt;
}

// Sessions by their names, from 1 on.
class Sessions {
  public:
    std::uint32_t number(const Json& name) {
        return known_
            .emplace(name.is_string() ? name.get<std::string>() : name.dump(),
                     static_cast<std::uint32_t>(known_.size() + 1))
            .first->second;
    }

  private:
    std::map<std::string, std::uint32_t> known_;
};

void read_results(const JsonRecords& records, Recorded& out) {
    Sessions sessions;
    for (std::size_t i = 0; i < records.maps.size(); ++i) {
        const Json& record = records.maps[i];
        if (!record.contains("metadata") || !record.contains("metrics") || !record["metadata"].is_object() ||
            !record["metrics"].is_object()) {
            throw BadRecord{fmt::format("record {} has no \"metadata\" and \"metrics\"", i + 1), ""};
        }
        const Json& about = record["metadata"];
        if (about.value("benchmark_phase", "profiling") != std::string("profiling")) {
            continue;
        }
        if ((record.contains("error") && !record["error"].is_null()) || about.value("was_cancelled", false)) {
            ++out.failed;
            continue;
        }
        RecordedRequest one;
        one.at_s = 1e-9 * needed_number(about, {"request_start_ns"}, i);
        const auto prompt = metric(record["metrics"], "input_sequence_length");
        auto output = metric(record["metrics"], "output_sequence_length");
        output = output ? output : metric(record["metrics"], "output_token_count");
        if (!prompt || !output) {
            throw BadRecord{
                fmt::format("record {} has no metric input_sequence_length and output_sequence_length", i + 1),
                "metrics"};
        }
        one.prompt = *prompt;
        one.output = *output;
        one.ttft_s = metric(record["metrics"], "time_to_first_token").value_or(-1);
        one.e2e_s = metric(record["metrics"], "request_latency").value_or(-1);
        if (about.contains("conversation_id") && number_of(about, {"turn_index"})) {
            one.session = sessions.number(about["conversation_id"]);
        }
        out.requests.push_back(std::move(one));
    }
}

void read_data(const JsonRecords& records, Recorded& out) {
    Sessions sessions;
    struct Said {
        double at_s = 0;    // of the request before
        double tokens = 0;  // of the session so far
        std::vector<std::uint64_t> keys;
    };
    std::map<std::uint32_t, Said> said;
    std::uint64_t added = 0;
    for (std::size_t i = 0; i < records.maps.size(); ++i) {
        const Json& record = records.maps[i];
        RecordedRequest one;
        one.prompt = needed_number(record, {"input_length"}, i);
        one.output = number_of(record, {"output_length"}).value_or(128);
        one.session = record.contains("session_id") ? sessions.number(record["session_id"]) : 0;
        const std::optional<double> stamp = number_of(record, {"timestamp"});
        const std::optional<double> delay = number_of(record, {"delay"});
        const bool follows = one.session > 0 && said.contains(one.session);
        one.at_s = follows ? said[one.session].at_s : 0;
        if (delay && follows && !stamp) {
            if (!(*delay >= 0 && *delay <= 1e10)) {
                throw BadRecord{fmt::format("request {} has a delay of {:g} ms", i + 1, *delay), "delay"};
            }
            one.delay_s = 1e-3 * *delay;
        } else if (stamp) {
            one.at_s = 1e-3 * *stamp;
        } else if (follows) {
            one.delay_s = 0;
        }
        const auto ids = record.find("hash_ids");
        if (ids != record.end() && ids->is_array()) {
            for (const Json& id : *ids) {
                if (!id.is_number_integer() || id.get<std::int64_t>() < 0) {
                    throw BadRecord{fmt::format("\"hash_ids\" of request {} is a list of whole numbers from 0", i + 1),
                                    "hash_ids"};
                }
                one.keys.push_back(id.get<std::uint64_t>() + 1);
            }
        }
        if (one.session > 0) {
            Said& before = said[one.session];
            // Rows of some tools hold the whole prompt, those of others what a turn adds to it.
            const bool whole =
                before.tokens == 0 || (one.keys.empty() ? one.prompt >= before.tokens
                                                        : !before.keys.empty() && one.keys[0] == before.keys[0]);
            one.adds = !whole;
            one.prompt += whole ? 0 : before.tokens;
            one.context = whole && one.keys.empty() ? one.session : 0;
            added += whole ? 0 : 1;
            before = {one.at_s, one.prompt + one.output, one.keys};
        }
        out.requests.push_back(std::move(one));
    }
    if (added > 0) {
        out.assumed.push_back(fmt::format(
            "prompts of {} later turns hold what their session said before, as AIPerf sends them: their rows "
            "have less, or other blocks",
            added));
    }
}

}  // namespace

extern const RecordFormat kAiperfFormat = {"aiperf", "results of AIPerf per request (profile_export.jsonl)",
                                           "\"metadata\": {\"request_start_ns\"}, \"metrics\"",
                                           [](const JsonRecords& records) {
                                               const Json& first = records.maps.front();
                                               return first.is_object() && first.contains("metadata") &&
                                                      first.contains("metrics");
                                           },
                                           read_results};

extern const RecordFormat kAiperfDataFormat = {"aiperf-sessions", "AIPerf's JSON lines with sessions and delays",
                                               "\"session_id\", \"input_length\", \"timestamp\" or \"delay\" in ms",
                                               [](const JsonRecords& records) {
                                                   const Json& first = records.maps.front();
                                                   return first.is_object() && first.contains("session_id") &&
                                                          first.contains("input_length");
                                               },
                                               read_data};

}  // namespace orrery::serving
