// Mooncake's JSON lines: timestamp in ms, input_length, output_length, hash_ids of 512 tokens each.
// Source: Qin et al., "Mooncake", FAST 2025, and the traces published with it.

#include "sim/config/units.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery::serving {

namespace {

constexpr double kMostKeys = 9e15;  // whole numbers up to here are exact

// The text of the number behind a key of a flat JSON line; nothing when the key is not there.
std::optional<std::string_view> text_behind(std::string_view line, std::string_view key) {
    const std::size_t at = line.find(fmt::format("\"{}\"", key));
    const std::size_t colon = at == std::string_view::npos ? at : line.find(':', at);
    if (colon == std::string_view::npos) {
        return std::nullopt;
    }
    const std::size_t start = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    return line.substr(start, std::min(line.find_first_of(",} ", start), line.size()) - start);
}

class MooncakeLines final : public RequestLines {
  public:
    void read(std::string_view line, TracedRequest& request) override {
        if (line.front() != '{') {
            throw BadLine{"is no JSON map, but the lines before are"};
        }
        request.at_s = traced_number(member(line, "timestamp"), "\"timestamp\"", kLatestStampMs) * 1e-3;
        request.prompt = traced_count(member(line, "input_length"), "\"input_length\"", kMostTokens);
        request.output = traced_count(member(line, "output_length"), "\"output_length\"", kMostTokens);
        read_keys(line, request.keys);
    }

    std::optional<double> stamp(std::string_view line) const override {
        double ms = 0;
        const auto text = text_behind(line, "timestamp");
        return text && parse_number(*text, ms) ? std::optional(ms * 1e-3) : std::nullopt;
    }

  private:
    static std::string_view member(std::string_view line, const char* key) {
        const auto text = text_behind(line, key);
        if (!text) {
            throw BadLine{fmt::format("has no \"{}\"", key)};
        }
        const std::string quoted = fmt::format("\"{}\"", key);
        if (line.find(quoted, line.find(quoted) + 1) != std::string_view::npos) {
            throw BadLine{fmt::format("has two members {}", quoted)};
        }
        return *text;
    }

    // "hash_ids": [46, 47]; none: nothing is known of the content.
    static void read_keys(std::string_view line, std::vector<std::uint64_t>& keys) {
        std::size_t at = line.find("\"hash_ids\"");
        at = at == std::string_view::npos ? at : line.find('[', at);
        while (at != std::string_view::npos && line[at] != ']') {
            const std::size_t end = std::min(line.find_first_of(",]", at + 1), line.size());
            const std::size_t start = std::min(line.find_first_not_of(' ', at + 1), end);
            double value = 0;
            if (start < end && (!parse_number(line.substr(start, end - start), value) ||
                                !(value >= 0 && value < kMostKeys) || value != std::floor(value))) {
                throw BadLine{"\"hash_ids\" is a list of whole numbers from 0"};
            }
            if (end == line.size()) {
                throw BadLine{"\"hash_ids\" has no end"};
            }
            if (start < end) {
                keys.push_back(static_cast<std::uint64_t>(value) + 1);
            }
            at = end;
        }
    }
};

}  // namespace

extern const TraceFormat kMooncakeFormat = {"mooncake", "Mooncake's JSON lines, with keys of the prompts' blocks",
                                            "{\"timestamp\": ms, \"input_length\": ..., \"output_length\": ...}", false,
                                            [](std::string_view first) -> std::unique_ptr<RequestLines> {
                                                return first.front() == '{' ? std::make_unique<MooncakeLines>()
                                                                            : nullptr;
                                            }};

}  // namespace orrery::serving
