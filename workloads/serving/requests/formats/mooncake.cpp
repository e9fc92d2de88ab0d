// Mooncake's JSON lines: timestamp in ms, input_length, output_length, hash_ids of 512 tokens each.
// Source: Qin et al., "Mooncake", FAST 2025, and the traces published with it.

#include "workloads/serving/requests/formats/keyed_lines.hpp"

namespace orrery::serving {

extern const TraceFormat kMooncakeFormat = {
    "mooncake", "Mooncake's JSON lines, with keys of the prompts' blocks",
    "{\"timestamp\": ms, \"input_length\": ..., \"output_length\": ...}", false,
    [](std::string_view first, bool asked) -> std::unique_ptr<RequestLines> {
        return first.front() == '{' ? make_keyed_lines({1e-3, 512, asked}) : nullptr;
    }};

}  // namespace orrery::serving
