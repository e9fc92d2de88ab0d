// Bailian's JSON lines: as Mooncake's, but with timestamps in seconds, hash_ids of 16 tokens each, and chats that follow on others.
// Source: alibaba-edu/qwen-bailian-usagetraces-anon (Wang et al., "KVCache cache in the wild", ATC 2025).

#include "workloads/serving/requests/formats/keyed_lines.hpp"

namespace orrery::serving {

extern const TraceFormat kBailianFormat = {
    "bailian", "Bailian's JSON lines, with keys of the prompts' blocks",
    "{\"chat_id\": ..., \"timestamp\": s, \"input_length\": ..., \"output_length\": ...}", false,
    [](std::string_view first, bool asked) -> std::unique_ptr<RequestLines> {
        const bool chats = first.find("\"chat_id\"") != std::string_view::npos;
        return first.front() == '{' && (chats || asked) ? make_keyed_lines({1, 16, true}) : nullptr;
    }};

}  // namespace orrery::serving
