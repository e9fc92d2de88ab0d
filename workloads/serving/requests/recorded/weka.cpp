// Conversations of agents in the format of kv-cache-tester (WEKA): a line each, with the requests of a conversation, those of its
// sub-agents and the time that the client thought before each.
//
// A conversation is a session: a request comes so long after the answer before it. A sub-agent's requests come one after another where
// its marker stands, as the parent waits for it, and have a context of their own. In a closed loop each client plays a conversation at a
// time. Limits: blocks' numbers are not kept: a prompt begins with all that its context said before, or with nothing of it where fewer
// than half of the blocks before are in it (a context that was made shorter).

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

class Conversations {
  public:
    explicit Conversations(Recorded& out) : out_(out) {}

    void take(const Json& requests, std::uint32_t session, bool nested) {
        std::uint32_t context = ++contexts_;
        double before = 0;  // blocks of the prompt before
        Json ids = Json::array();
        for (const Json& request : requests) {
            if (!request.is_object()) {
                throw BadRecord{"a request of a conversation is no JSON map", "requests"};
            }
            if (const auto inner = request.find("requests"); inner != request.end() && inner->is_array()) {
                if (nested) {
                    throw BadRecord{"a sub-agent has sub-agents, and one level is read", "requests"};
                }
                take(*inner, session, true);
                continue;
            }
            const std::size_t index = out_.requests.size();
            RecordedRequest one;
            one.prompt = needed_number(request, {"in"}, index);
            one.output = needed_number(request, {"out"}, index);
            one.session = session;
            one.delay_s = started_ == session ? std::max(0.0, number_of(request, {"think_time"}).value_or(0)) : -1;
            started_ = session;
            if (kept(request, ids) < before / 2) {
                context = ++contexts_;
            }
            before = blocks_of(request);
            one.context = context;
            out_.requests.push_back(one);
        }
    }

  private:
    static double blocks_of(const Json& request) {
        const auto ids = request.find("hash_ids");
        return ids != request.end() && ids->is_array() ? static_cast<double>(ids->size())
                                                       : number_of(request, {"blocks"}).value_or(0);
    }
    // Leading blocks that the prompt has from the one before.
    static double kept(const Json& request, Json& last) {
        const auto ids = request.find("hash_ids");
        if (ids == request.end() || !ids->is_array()) {
            return number_of(request, {"keep"}).value_or(1e9);
        }
        std::size_t same = 0;
        while (same < ids->size() && same < last.size() && (*ids)[same] == last[same]) {
            ++same;
        }
        last = *ids;
        return static_cast<double>(same);
    }

    Recorded& out_;
    std::uint32_t contexts_ = 0;
    std::uint32_t started_ = 0;
};

void read_weka(const JsonRecords& records, Recorded& out) {
    Conversations conversations(out);
    std::uint32_t session = 0;
    for (const Json& record : records.maps) {
        if (!record.is_object() || !record.contains("requests") || !record["requests"].is_array()) {
            throw BadRecord{fmt::format("conversation {} has no list of \"requests\"", session + 1), ""};
        }
        conversations.take(record["requests"], ++session, false);
    }
    out.assumed.push_back(fmt::format(
        "all {} conversations begin at once: 'requests: {{arrivals: closed, clients: N}}' plays N at a time", session));
    out.assumed.emplace_back("a prompt begins with all that its conversation said before");
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
