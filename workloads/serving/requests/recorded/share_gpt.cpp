// ShareGPT: a list of conversations as text. As load generators take it, a conversation is one request: what the first two
// messages say is its prompt and its output.
// Source: vllm/benchmarks/datasets.py (ShareGPTDataset), which leaves out conversations of fewer than two messages.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "workloads/serving/requests/recorded/json_records.hpp"

namespace orrery::serving {

namespace {

using Json = nlohmann::json;

const Json* messages_of(const Json& conversation) {
    for (const char* key : {"conversations", "conversation"}) {
        if (conversation.is_object() && conversation.contains(key) && conversation[key].is_array()) {
            return &conversation[key];
        }
    }
    return nullptr;
}

double tokens_of(const Json& message) {
    for (const char* key : {"value", "content"}) {
        if (message.is_object() && message.contains(key)) {
            return tokens_of_text(message[key]);
        }
    }
    return 0;
}

void read_share_gpt(const JsonRecords& records, Recorded& out) {
    for (std::size_t i = 0; i < records.maps.size(); ++i) {
        const Json* messages = messages_of(records.maps[i]);
        if (messages == nullptr) {
            throw BadRecord{fmt::format("entry {} has no list of \"conversations\"", i + 1), ""};
        }
        RecordedRequest one;
        if (messages->size() >= 2) {
            one.prompt = tokens_of((*messages)[0]);
            one.output = tokens_of((*messages)[1]);
        }
        if (messages->size() < 2 || one.prompt == 0 || one.output == 0) {
            ++out.failed;
            continue;
        }
        out.requests.push_back(one);
    }
    out.assumed.emplace_back("a token for each four characters: the file holds text");
    out.assumed.emplace_back(
        "all requests at once: the file has no times ('requests: {arrivals: closed, clients: N}' keeps N in flight)");
}

}  // namespace

extern const RecordFormat kShareGptFormat = {"sharegpt", "conversations as text (ShareGPT's JSON)",
                                             "[{\"conversations\": [{\"from\", \"value\"}, ...]}]",
                                             [](const JsonRecords& records) {
                                                 const Json& first = records.maps.front();
                                                 return messages_of(first) != nullptr;
                                             },
                                             read_share_gpt};

}  // namespace orrery::serving
