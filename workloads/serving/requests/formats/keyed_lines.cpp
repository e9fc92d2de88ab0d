#include "workloads/serving/requests/formats/keyed_lines.hpp"

#include "sim/config/units.hpp"
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

class KeyedLines final : public RequestLines {
  public:
    explicit KeyedLines(const KeyedStyle& style) : style_(style) {}

    void read(std::string_view line, TracedRequest& request) override {
        if (line.front() != '{') {
            throw BadLine{"is no JSON map, but the lines before are"};
        }
        const double stamp = traced_number(member(line, "timestamp"), "\"timestamp\"", kLatestStampMs);
        request.at_s = stamp * style_.unit_s;
        request.prompt = traced_count(member(line, "input_length"), "\"input_length\"", kMostTokens);
        request.output = traced_count(member(line, "output_length"), "\"output_length\"", kMostTokens);
        request.key_tokens = style_.block;
        read_keys(line, request.keys);
        if (style_.sure) {
            return;
        }
        const double blocks = std::ceil(request.prompt / style_.block);
        if (stamp != std::floor(stamp) || static_cast<double>(request.keys.size()) > blocks) {
            throw BadLine{fmt::format(
                "has timestamp {} and {} hash_ids for {:.0f} tokens, and Mooncake's are whole milliseconds and blocks "
                "of 512: "
                "say which it is with 'requests.trace_format: mooncake', or 'bailian' for seconds and blocks of 16",
                member(line, "timestamp"), request.keys.size(), request.prompt)};
        }
    }

    std::optional<double> stamp(std::string_view line) const override {
        double value = 0;
        const auto text = text_behind(line, "timestamp");
        return text && parse_number(*text, value) ? std::optional(value * style_.unit_s) : std::nullopt;
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

    KeyedStyle style_;
};

}  // namespace

std::unique_ptr<RequestLines> make_keyed_lines(const KeyedStyle& style) {
    return std::make_unique<KeyedLines>(style);
}

}  // namespace orrery::serving
