#pragma once
// Files that hold requests of the past as JSON: data sets for load generators and results of these, with the latencies that were
// measured. One file and one row each. They are read whole; `requests.trace` takes them as they are, `orrery import requests` writes
// them as a table, and `orrery validate serving --log` compares their latencies.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::serving {

struct RecordedRequest {
    double at_s = 0;      ///< since any moment; of one that waits for an answer, when the request before it came
    double delay_s = -1;  ///< from the answer before it in its session; below 0: it comes at `at_s`
    double prompt = 1;    ///< tokens
    double output = 1;
    std::uint32_t session = 0;  ///< from 1 on; 0: none
    std::uint32_t context = 0;  ///< prompts of one begin with all that it said before; 0: of none
    bool adds = false;          ///< the prompt holds turns of its session that its keys do not cover
    double ttft_s = -1;         ///< below 0: not measured
    double e2e_s = -1;
    std::vector<std::uint64_t> keys;  ///< of each `key_tokens` of the prompt; none: nothing is known of it
    // Of a graph:
    std::vector<std::uint32_t>
        after;               ///< requests whose answers it waits for, by number; `delay_s` counts from the last
    std::uint32_t list = 0;  ///< keys are those of the request before it in this list, so many of them,
    std::uint64_t kept = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> fresh;  ///< and runs of others: the first, and how many
};

struct Recorded {
    std::string format;                     ///< name of its row
    std::vector<RecordedRequest> requests;  ///< those that were answered, in order of arrival
    std::uint64_t failed = 0;               ///< requests that the file lists as failed, which are left out
    std::uint64_t clients = 0;              ///< that the load generator kept in flight at most; 0: not said
    std::uint32_t key_tokens = 512;         ///< of a key
    bool graph = false;                     ///< requests wait for those in `after`
    std::vector<std::string> assumed;       ///< for people
};

struct JsonRecords;

/// One row of the table.
struct RecordFormat {
    const char* name;
    const char* description;
    const char* looks;  ///< the keys that tell it
    bool (*is)(const JsonRecords& records);
    /// Throws BadRecord.
    void (*read)(const JsonRecords& records, Recorded& out);
};
[[nodiscard]] const std::vector<const RecordFormat*>& record_format_table();

struct RequestsSpec;
class RequestSource;
/// The requests of a graph, each when those that it waits for have been answered (request_graph.cpp).
[[nodiscard]] std::unique_ptr<RequestSource> make_request_graph(const RequestsSpec& spec, Recorded recorded,
                                                                std::uint64_t seed);

/// Whether a file with this start is JSON that the table is to be asked about, and no trace whose lines are read one by one.
[[nodiscard]] bool may_be_recorded(std::string_view start);
/// Throws ConfigError with line and column for a text of none of the formats (or not of that `name`), or a malformed one.
[[nodiscard]] Recorded read_recorded(const std::string& text, const std::string& file, const std::string& name = "");
/// The requests as a table that `requests.trace` reads: arrival_s,prompt,output,session,ttft_s,e2e_s.
[[nodiscard]] std::string table_of(const Recorded& recorded);

}  // namespace orrery::serving
