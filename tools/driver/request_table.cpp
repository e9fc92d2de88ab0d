#include "tools/driver/request_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace orrery::driver {

RequestRow row_of(const Sequence& sequence, Ending ending, SimTime now) {
    RequestRow row;
    row.id = sequence.id;
    row.ending = ending;
    row.arrival = sequence.arrival.seconds();
    row.e2e = (now - sequence.arrival).seconds();
    row.prompt = sequence.prompt;
    row.output = sequence.generated;
    row.adapter = sequence.adapter;
    row.retries = sequence.retries;
    if (sequence.generated > 0) {
        row.ttft = (sequence.first_token - sequence.arrival).seconds();
    }
    if (sequence.generated > 1) {
        row.tpot = (sequence.last_token - sequence.first_token).seconds() / (sequence.generated - 1);
    }
    return row;
}

std::string requests_csv(std::vector<RequestRow> rows, bool adapters) {
    static constexpr const char* kEndings[] = {"finished", "refused", "timed out", "failed"};
    std::sort(rows.begin(), rows.end(), [](const RequestRow& a, const RequestRow& b) { return a.id < b.id; });
    std::string out = "request,arrival_s,ending,prompt,output,ttft_s,tpot_s,e2e_s,retries";
    out += adapters ? ",adapter\n" : "\n";
    for (const RequestRow& row : rows) {
        fmt::format_to(std::back_inserter(out), "{},{:.6f},{},{},{},{:.6f},{:.6f},{:.6f},{}", row.id, row.arrival,
                       kEndings[static_cast<std::size_t>(row.ending)], row.prompt, row.output, row.ttft, row.tpot,
                       row.e2e, row.retries);
        out += adapters ? fmt::format(",{}\n", row.adapter) : "\n";
    }
    return out;
}

}  // namespace orrery::driver
