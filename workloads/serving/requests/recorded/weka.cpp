// Conversations of agents in the format of kv-cache-tester (WEKA): a line each, with the requests of a conversation, those of its
// sub-agents and the time that the client thought before each.
//
// A conversation is a session: a request comes so long after the answer before it. Markers of sub-agents that follow each other stand for
// agents side by side: they begin after the answer before them, as far apart as their markers, and what comes behind waits for all of them.
// Blocks of the prompts are those of the file (`hash_ids`, or `keep` and `new` of its packed form); a file without them says nothing of
// prefixes but that a context begins with all that it said before. In a closed loop each client plays a conversation at a time.
// Checked against the corpus of 710 conversations: 49,334 requests; with a cache without end, and each conversation on one replica, 96.3 % of
// the prompt tokens are found, as its authors count those that were in the request before.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

class Conversations {
  public:
    explicit Conversations(Recorded& out) : out_(out) {}

    void take(const Json& requests, std::uint32_t session) { (void)take_list(requests, session, {}, 0, false); }

  private:
    using Requests = std::vector<std::uint32_t>;

    // Requests of a list, one after another, the first behind `after` and so much later; returns those that what comes next waits for.
    Requests take_list(const Json& requests, std::uint32_t session, Requests after, double later_s, bool nested) {
        const std::uint32_t list = ++lists_;
        Json before = Json::array();
        Requests ends;  // of sub-agents side by side
        double marked_s = 0;
        for (const Json& request : requests) {
            if (!request.is_object()) {
                throw BadRecord{"a request of a conversation is no JSON map", "requests"};
            }
            if (const auto inner = request.find("requests"); inner != request.end() && inner->is_array()) {
                if (nested) {
                    throw BadRecord{"a sub-agent has sub-agents, and one level is read", "requests"};
                }
                const double at_s = number_of(request, {"t"}).value_or(marked_s);
                marked_s = ends.empty() ? at_s : marked_s;
                const Requests last = take_list(*inner, session, after, std::max(0.0, at_s - marked_s), true);
                ends.insert(ends.end(), last.begin(), last.end());
                continue;
            }
            if (!ends.empty()) {
                after = std::exchange(ends, {});
            }
            const std::size_t index = out_.requests.size();
            RecordedRequest one;
            one.prompt = needed_number(request, {"in"}, index);
            one.output = needed_number(request, {"out"}, index);
            one.session = session;
            one.delay_s = after.empty() ? -1 : later_s + std::max(0.0, number_of(request, {"think_time"}).value_or(0));
            one.at_s = after.empty() ? later_s : 0;
            one.after = after;
            one.context = one.list = list;
            read_blocks(request, before, one);
            later_s = 0;
            after = {static_cast<std::uint32_t>(index)};
            out_.requests.push_back(std::move(one));
        }
        return ends.empty() ? after : ends;
    }

    static void read_blocks(const Json& request, Json& before, RecordedRequest& one) {
        const auto number = [](const Json& value, const char* key) {
            if (!value.is_number_unsigned()) {
                throw BadRecord{fmt::format("\"{}\" has whole numbers from 0", key), key};
            }
            return value.get<std::uint64_t>();
        };
        if (const auto runs = request.find("new"); runs != request.end() && runs->is_array()) {
            one.kept = static_cast<std::uint64_t>(std::max(0.0, number_of(request, {"keep"}).value_or(0)));
            for (const Json& run : *runs) {
                if (!run.is_array() || run.size() != 2 || number(run[1], "new") > kMostBlocks) {
                    throw BadRecord{"\"new\" has runs of two numbers, the first block and how many", "new"};
                }
                one.fresh.emplace_back(number(run[0], "new"), number(run[1], "new"));
            }
            return;
        }
        const auto ids = request.find("hash_ids");
        if (ids == request.end() || !ids->is_array()) {
            return;
        }
        while (one.kept < ids->size() && one.kept < before.size() && (*ids)[one.kept] == before[one.kept]) {
            ++one.kept;
        }
        for (std::size_t i = one.kept; i < ids->size(); ++i) {
            const std::uint64_t id = number((*ids)[i], "hash_ids");
            if (!one.fresh.empty() && one.fresh.back().first + one.fresh.back().second == id) {
                ++one.fresh.back().second;
            } else {
                one.fresh.emplace_back(id, 1);
            }
        }
        before = *ids;
    }

    static constexpr std::uint64_t kMostBlocks = 1U << 24U;
    Recorded& out_;
    std::uint32_t lists_ = 0;
};

void read_weka(const JsonRecords& records, Recorded& out) {
    Conversations conversations(out);
    std::uint32_t session = 0;
    out.graph = true;
    const std::optional<double> block = number_of(records.maps.front(), {"block_size"});
    out.key_tokens = static_cast<std::uint32_t>(std::clamp(block.value_or(64), 1.0, 65536.0));
    for (const Json& record : records.maps) {
        if (!record.is_object() || !record.contains("requests") || !record["requests"].is_array()) {
            throw BadRecord{fmt::format("conversation {} has no list of \"requests\"", session + 1), ""};
        }
        conversations.take(record["requests"], ++session);
    }
    out.assumed.push_back(fmt::format(
        "all {} conversations begin at once: 'requests: {{arrivals: closed, clients: N}}' plays N at a time", session));
    if (std::all_of(out.requests.begin(), out.requests.end(),
                    [](const RecordedRequest& one) { return one.fresh.empty() && one.kept == 0; })) {
        out.assumed.emplace_back("a prompt begins with all that its conversation said before");
    }
}

}  // namespace

extern const RecordFormat kWekaFormat = {"weka", "conversations of agents (kv-cache-tester's JSON lines)",
                                         "\"block_size\", \"requests\": [{\"in\", \"out\", \"think_time\"}]",
                                         [](const JsonRecords& records) {
                                             const Json& first = records.maps.front();
                                             return first.is_object() && first.contains("requests") &&
                                                    (first.contains("hash_id_scope") || first.contains("block_size"));
                                         },
                                         read_weka};

}  // namespace orrery::serving
