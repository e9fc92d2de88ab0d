#include "workloads/serving/arrivals.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <unordered_map>

namespace orrery {

namespace {

constexpr double kMostTokens = 1 << 24;
constexpr std::int64_t kGenerated = 1000;  ///< requests, where a scenario does not say how many

// Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26(3), 2000; shape below 1 by boosting.
double draw_gamma(RandomStream& random, double shape) {
    if (shape < 1) {
        const double u = random.uniform();
        return draw_gamma(random, shape + 1) * exp_pinned(log_pinned(u > 0 ? u : 0x1p-53) / shape);
    }
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
        const double x = random.normal();
        const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
        const double u = random.uniform();
        if (v > 0 && u > 0 && log_pinned(u) < 0.5 * x * x + d - d * v + d * log_pinned(v)) {
            return d * v;
        }
    }
}

std::uint32_t draw_length(RandomStream& random, const LengthSpec& spec) {
    double value = spec.mean;
    if (spec.kind == LengthKind::uniform) {
        value = spec.mean * (1 + spec.spread * (2 * random.uniform() - 1));
    } else if (spec.kind == LengthKind::lognormal) {
        // The mean of the distribution is the mean asked for.
        value = spec.mean * exp_pinned(spec.spread * random.normal() - 0.5 * spec.spread * spec.spread);
    }
    return static_cast<std::uint32_t>(std::clamp(std::round(value), 1.0, static_cast<double>(spec.most)));
}

std::uint64_t clients_of(const RequestsSpec& spec) {
    const auto clients = static_cast<std::uint64_t>(std::max<std::int64_t>(1, spec.clients));
    return spec.arrivals == ArrivalKind::closed ? clients : 0;
}

// Adapters by popularity: the k-th of them in proportion to 1 / k^skew (Zipf).
class Popularity {
  public:
    Popularity(std::int64_t count, double skew, std::uint64_t seed, const std::string& name)
        : random_(seed, name + "/adapters") {
        double sum = 0;
        for (std::int64_t k = 1; k <= count; ++k) {
            sum += exp_pinned(-skew * log_pinned(static_cast<double>(k)));
            up_to_.push_back(sum);
        }
    }
    /// From 1 on; 0 when there are none.
    [[nodiscard]] std::uint32_t draw() {
        if (up_to_.empty()) {
            return 0;
        }
        const auto found = std::upper_bound(up_to_.begin(), up_to_.end(), random_.uniform() * up_to_.back());
        return static_cast<std::uint32_t>(std::min(found, std::prev(up_to_.end())) - up_to_.begin()) + 1;
    }

  private:
    RandomStream random_;
    std::vector<double> up_to_;
};

class Generator final : public RequestSource {
  public:
    /// `name`: of its random streams, so that clients of a mix have their own.
    Generator(const RequestsSpec& spec, std::uint64_t seed, const std::string& name = "serving")
        : spec_(spec),
          seed_(seed),
          name_(name),
          gaps_(seed, name + "/arrivals"),
          lengths_(seed, name + "/lengths"),
          contents_(seed, name + "/contents"),
          adapters_(spec.adapters, spec.adapter_skew, seed, name) {
        spec_.count = spec.count > 0 ? spec.count : kGenerated;
    }

    double progress() const override { return static_cast<double>(made_) / static_cast<double>(spec_.count); }

    std::uint64_t clients() const override { return clients_of(spec_); }

    bool next(Request& request) override {
        if (made_ >= spec_.count) {
            return false;
        }
        if (made_++ > 0 || spec_.arrivals == ArrivalKind::poisson || spec_.arrivals == ArrivalKind::gamma) {
            at_ += gap();
        }
        request.arrival = SimTime::from_seconds(daily(at_));
        request.prompt = draw_length(lengths_, spec_.prompt);
        request.output = draw_length(lengths_, spec_.output);
        request.session = spec_.sessions > 1
                              ? static_cast<std::uint32_t>(lengths_.below(static_cast<std::uint64_t>(spec_.sessions)))
                              : 0;
        request.content = PromptContent();
        if (spec_.common > 0) {
            request.content.common = static_cast<std::uint32_t>(spec_.common);
            request.content.group =
                static_cast<std::uint32_t>(contents_.below(static_cast<std::uint64_t>(spec_.common_kinds)));
            request.prompt += request.content.common;
        }
        request.adapter = adapters_.draw();
        if (spec_.turns > 0) {
            begin_talk(request);
        } else if (spec_.conversations) {
            continue_conversation(request);
        }
        return true;
    }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        const auto found = talks_.find(turn);
        ORRERY_ASSERT(found != talks_.end());
        Talk& talk = found->second;
        // What a conversation asks depends on itself alone, not on when others are answered.
        const bool goes_on = talk.random.uniform() >= 1 / spec_.turns;
        const double think = talk.random.exponential(spec_.think);
        const std::int64_t prompt =
            std::int64_t{talk.last.prompt} + talk.last.output + draw_length(talk.random, spec_.prompt);
        if (!served || !goes_on || prompt > spec_.prompt.most || made_ >= spec_.count) {
            talks_.erase(found);
            return false;
        }
        ++made_;
        talk.last.prompt = static_cast<std::uint32_t>(prompt);
        talk.last.output = draw_length(talk.random, spec_.output);
        talk.last.arrival = now + SimTime::from_seconds(think);
        request = talk.last;
        return true;
    }

  private:
    struct Talk {
        Request last;
        RandomStream random;
    };

    void begin_talk(Request& request) {
        request.turn = ++conversation_count_;
        request.session = request.turn;
        request.content.conversation = request.turn;
        talks_.emplace(request.turn, Talk{request, RandomStream(mix64(seed_ ^ mix64(request.turn)), name_ + "/talk")});
    }

    void continue_conversation(Request& request) {
        history_.resize(static_cast<std::size_t>(spec_.sessions));
        History& history = history_[request.session];
        const std::int64_t prompt =
            std::int64_t{history.tokens} + request.prompt - (history.tokens > 0 ? spec_.common : 0);
        if (history.conversation == 0 || prompt > spec_.prompt.most) {
            history = {++conversation_count_, 0, request.content.group};
        } else {
            request.prompt = static_cast<std::uint32_t>(prompt);
        }
        request.content.group = history.group;
        request.content.conversation = history.conversation;
        history.tokens = request.prompt + request.output;
    }

    // When as many requests have come as come in `at` seconds at the mean rate: within a half period the rate changes
    // linearly, so the requests up to a time are a quadratic function of it.
    [[nodiscard]] double daily(double at) const {
        const double swing = spec_.swing;
        if (swing <= 0) {
            return at;
        }
        const double half = spec_.period / 2;
        const double halves = std::floor(at / half);
        const bool rising = std::fmod(halves, 2) < 1;
        const double rest = (at / half - halves);  // of the half period's requests
        const auto rise = [&](double requests) {
            // (1 - swing) x + swing x^2 = requests, of 0 to 1 each
            const double b = 1 - swing;
            return 2 * requests / (b + std::sqrt(b * b + 4 * swing * requests));
        };
        const double part = rest <= 0 ? 0 : rising ? rise(rest) : 1 - rise(1 - rest);
        return (halves + part) * half;
    }

    double gap() {
        switch (spec_.arrivals) {
            case ArrivalKind::poisson:
                return gaps_.exponential(1 / spec_.rate);
            case ArrivalKind::gamma: {
                const double shape = 1 / (spec_.burstiness * spec_.burstiness);
                return draw_gamma(gaps_, shape) / (shape * spec_.rate);
            }
            case ArrivalKind::fixed:
                return 1 / spec_.rate;
            case ArrivalKind::at_once:
            case ArrivalKind::closed:
                break;
        }
        return 0;
    }

    RequestsSpec spec_;
    std::uint64_t seed_;
    std::string name_;
    RandomStream gaps_;
    RandomStream lengths_;
    RandomStream contents_;
    Popularity adapters_;
    struct History {
        std::uint64_t conversation = 0;
        std::uint32_t tokens = 0;
        std::uint32_t group = 0;
    };
    std::vector<History> history_;                   ///< by session
    std::unordered_map<std::uint32_t, Talk> talks_;  ///< under way, by turn; only looked up
    std::uint32_t conversation_count_ = 0;
    std::int64_t made_ = 0;
    double at_ = 0;
};

// Clients side by side. Their turns and conversations are numbered in turns: client i of n has i + 1, i + 1 + n, ...
class Mix final : public RequestSource {
  public:
    Mix(const RequestsSpec& spec, std::uint64_t seed)
        : count_(spec.count > 0 ? spec.count : kGenerated), n_(spec.mix.size()) {
        double shares = 0;
        for (const ClientSpec& client : spec.mix) {
            shares += client.share;
        }
        for (std::size_t i = 0; i < spec.mix.size(); ++i) {
            const ClientSpec& client = spec.mix[i];
            RequestsSpec own = spec;
            own.mix.clear();
            own.arrivals = ArrivalKind::gamma;
            own.burstiness = client.burstiness;
            own.rate = spec.rate * client.share / shares;
            own.prompt = client.prompt;
            own.output = client.output;
            own.count = count_;
            clients_.push_back({std::make_unique<Generator>(own, seed, fmt::format("serving/mix/{}", i)), Request(),
                                static_cast<std::uint32_t>(client.adapter)});
            advance(i);
        }
    }

    double progress() const override { return static_cast<double>(made_) / static_cast<double>(count_); }

    bool next(Request& request) override {
        if (made_ >= count_ || coming_.empty()) {
            return false;
        }
        ++made_;
        const std::size_t i = coming_.begin()->second;
        coming_.erase(coming_.begin());
        request = std::move(clients_[i].next);
        advance(i);
        return true;
    }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        const std::size_t i = (turn - 1) % n_;
        const auto its_turn = static_cast<std::uint32_t>((turn - 1) / n_) + 1;
        const bool more = clients_[i].source->follow_up(its_turn, now, served && made_ < count_, request);
        if (more) {
            ++made_;
            finish(i, request);
        }
        return more;
    }

  private:
    struct Client {
        std::unique_ptr<Generator> source;
        Request next;
        std::uint32_t adapter;
    };

    void advance(std::size_t i) {
        Client& client = clients_[i];
        client.next = Request();
        if (client.source->next(client.next)) {
            finish(i, client.next);
            coming_.emplace(client.next.arrival, i);
        }
    }

    void finish(std::size_t i, Request& request) const {
        const auto own = [&](std::uint64_t number) { return number > 0 ? (number - 1) * n_ + i + 1 : 0; };
        request.session = static_cast<std::uint32_t>(i);
        request.turn = static_cast<std::uint32_t>(own(request.turn));
        request.content.conversation = own(request.content.conversation);
        request.adapter = clients_[i].adapter > 0 ? clients_[i].adapter : request.adapter;
    }

    std::int64_t count_;
    std::size_t n_;  ///< clients
    std::int64_t made_ = 0;
    std::vector<Client> clients_;
    std::set<std::pair<SimTime, std::size_t>> coming_;  ///< the next arrival of each client
};

// Seconds since some fixed day of "2023-11-16 18:17:03.9799600"; below 0 when it is no such date.
double seconds_of_date(std::string_view text) {
    // Leading zeros are part of a date, not signs of an octal number.
    const auto part = [&](std::size_t from, std::size_t count) {
        double value = 0;
        for (const char c : text.substr(std::min(from, text.size()), count)) {
            if (c < '0' || c > '9') {
                return -1.0;
            }
            value = 10 * value + (c - '0');
        }
        return from + count <= text.size() ? value : -1.0;
    };
    if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') {
        return -1;
    }
    const double year = part(0, 4);
    const double month = part(5, 2);
    const double day = part(8, 2);
    const double hour = part(11, 2);
    const double minute = part(14, 2);
    std::string_view fraction = text.substr(19);
    fraction = fraction.substr(0, fraction.find_first_of("+Z"));
    double below = 0;
    const bool whole =
        fraction.empty() || (fraction.front() == '.' && parse_number(fmt::format("0{}", fraction), below));
    const double second = part(17, 2);
    if (year < 0 || month < 1 || month > 12 || day < 1 || hour < 0 || minute < 0 || second < 0 || !whole) {
        return -1;
    }
    // Days since the first of March of the year 0 (proleptic Gregorian).
    const double y = month <= 2 ? year - 1 : year;
    const double m = month <= 2 ? month + 9 : month - 3;
    const double days = 365 * y + std::floor(y / 4) - std::floor(y / 100) + std::floor(y / 400) +
                        std::floor((153 * m + 2) / 5) + day - 1;
    return ((days * 24 + hour) * 60 + minute) * 60 + second + below;
}

class TraceReader final : public RequestSource {
  public:
    TraceReader(const RequestsSpec& spec, const std::string& file, std::uint64_t seed)
        : spec_(spec), file_(file), in_(file), adapters_(spec.adapters, spec.adapter_skew, seed, "serving") {
        std::error_code failed;
        size_ = static_cast<double>(std::filesystem::file_size(file_, failed));
        if (!in_ || failed) {
            throw ConfigError({Diagnostic{file_, 0, 0, "cannot be read"}});
        }
    }

    std::uint64_t clients() const override { return clients_of(spec_); }

    double progress() const override { return size_ > 0 ? read_ / size_ : 1; }

    bool next(Request& request) override {
        if (spec_.count > 0 && given_ == spec_.count) {
            return false;
        }
        while (read_line()) {
            if (line_.empty() || !parse(request) || last_ - origin_ < spec_.from) {
                continue;
            }
            if (spec_.to > 0 && last_ - origin_ >= spec_.to) {
                return false;
            }
            ++given_;
            request.adapter = adapters_.draw();
            return true;
        }
        return false;
    }

  private:
    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{file_, number_, 1, problem}});
    }

    bool read_line() {
        if (!std::getline(in_, line_)) {
            return false;
        }
        ++number_;
        read_ += static_cast<double>(line_.size()) + 1;
        if (line_.size() > 1 << 20) {
            fail("a line is longer than 1 MiB");
        }
        while (!line_.empty() && (line_.back() == '\r' || line_.back() == ' ')) {
            line_.pop_back();
        }
        return true;
    }

    bool parse(Request& request) {
        double at = 0;
        double prompt = 0;
        double output = 0;
        double session = 0;
        if (line_.front() == '{') {
            at = json_number("timestamp") * 1e-3;
            prompt = std::min(kMostTokens, json_number("input_length"));
            output = std::min(kMostTokens, json_number("output_length"));
            read_keys(request.content.keys);
        } else {
            cells_ = split(line_, ',');
            if (number_ == 1) {
                read_header();
                return false;
            }
            at = time_of(cell(time_column_));
            prompt = number_of(cell(prompt_column_), "prompt tokens");
            output = number_of(cell(output_column_), "output tokens");
            session = session_column_ < kNone ? number_of(cell(session_column_), "session") : 0;
        }
        if (first_) {
            origin_ = at;
            first_ = false;
        }
        if (at < last_ && last_ > origin_) {
            fail("goes back in time; sort the file by arrival");
        }
        last_ = at;
        request.arrival = SimTime::from_seconds(std::max(0.0, at - origin_ - spec_.from) * spec_.time_scale);
        // Engines give at least one token; a request of none asks for its end-of-text token.
        request.prompt = static_cast<std::uint32_t>(std::max(1.0, prompt));
        request.output = static_cast<std::uint32_t>(std::max(1.0, output));
        request.session = static_cast<std::uint32_t>(session);
        request.content.conversation = spec_.conversations ? request.session + 1ULL : 0;
        return true;
    }

    // "hash_ids": [46, 47]; none: nothing is known of the content.
    void read_keys(std::vector<std::uint64_t>& keys) const {
        keys.clear();
        std::size_t at = line_.find("\"hash_ids\"");
        at = at == std::string::npos ? at : line_.find('[', at);
        while (at != std::string::npos && line_[at] != ']') {
            const std::size_t end = std::min(line_.find_first_of(",]", at + 1), line_.size());
            const std::size_t start = std::min(line_.find_first_not_of(' ', at + 1), end);
            double value = 0;
            if (start < end &&
                (!parse_number(std::string_view(line_).substr(start, end - start), value) || value < 0)) {
                fail("\"hash_ids\" is a list of numbers from 0");
            }
            if (end == line_.size()) {
                fail("\"hash_ids\" has no end");
            }
            if (start < end) {
                keys.push_back(static_cast<std::uint64_t>(value) + 1);
            }
            at = end;
        }
    }

    void read_header() {
        const std::array<std::pair<const char*, std::size_t*>, 9> names = {{{"TIMESTAMP", &time_column_},
                                                                            {"Timestamp", &time_column_},
                                                                            {"arrival_s", &time_column_},
                                                                            {"ContextTokens", &prompt_column_},
                                                                            {"Request tokens", &prompt_column_},
                                                                            {"prompt", &prompt_column_},
                                                                            {"GeneratedTokens", &output_column_},
                                                                            {"Response tokens", &output_column_},
                                                                            {"output", &output_column_}}};
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            for (const auto& [name, column] : names) {
                if (cells_[i] == name) {
                    *column = i;
                }
            }
            if (cells_[i] == "session") {
                session_column_ = i;
            }
        }
        if (time_column_ == kNone || prompt_column_ == kNone || output_column_ == kNone) {
            fail(
                "the header names no arrival, prompt and output: TIMESTAMP,ContextTokens,GeneratedTokens (Azure), "
                "Timestamp,...,Request tokens,Response tokens (BurstGPT) or arrival_s,prompt,output[,session]");
        }
    }

    [[nodiscard]] std::string_view cell(std::size_t column) const {
        if (column >= cells_.size()) {
            fail(fmt::format("{} cells, but column {} is needed", cells_.size(), column + 1));
        }
        return cells_[column];
    }

    [[nodiscard]] double time_of(std::string_view text) const {
        double value = seconds_of_date(text);
        if (value < 0 && (!parse_number(text, value) || !(value >= 0) || value > 1e12)) {
            fail(fmt::format("'{}' is no time: seconds, or a date such as 2023-11-16 18:17:03.97", text));
        }
        return value;
    }

    [[nodiscard]] double number_of(std::string_view text, const char* what) const {
        double value = 0;
        if (!parse_number(text, value) || value < 0 || value > kMostTokens) {
            fail(fmt::format("{} is a number from 0 to {:.0f}, not '{}'", what, kMostTokens, text));
        }
        return value;
    }

    // The number behind a key of a flat JSON line.
    [[nodiscard]] double json_number(const char* key) const {
        const std::string quoted = fmt::format("\"{}\"", key);
        const std::size_t at = line_.find(quoted);
        const std::size_t colon = at == std::string::npos ? at : line_.find(':', at);
        if (colon == std::string::npos) {
            fail(fmt::format("has no {}", quoted));
        }
        const std::size_t start = std::min(line_.find_first_not_of(' ', colon + 1), line_.size());
        const std::size_t end = std::min(line_.find_first_of(",} ", start), line_.size());
        double value = 0;
        const std::string text = line_.substr(start, end - start);
        if (!parse_number(text, value) || value < 0 || value > 1e13) {
            fail(fmt::format("{} is a number from 0, not '{}'", quoted, text));
        }
        return value;
    }

    static constexpr std::size_t kNone = 1000;
    RequestsSpec spec_;
    std::string file_;
    std::ifstream in_;
    Popularity adapters_;
    std::string line_;
    std::vector<std::string_view> cells_;
    int number_ = 0;
    std::size_t time_column_ = kNone, prompt_column_ = kNone, output_column_ = kNone, session_column_ = kNone;
    std::int64_t given_ = 0;
    double size_ = 0;  ///< B
    double read_ = 0;
    bool first_ = true;
    double origin_ = 0;
    double last_ = 0;
};

// Some of another source's requests.
class Sample final : public RequestSource {
  public:
    Sample(std::unique_ptr<RequestSource> all, double share, std::uint64_t seed)
        : all_(std::move(all)), share_(share), random_(seed, "serving/sample") {}

    double progress() const override { return all_->progress(); }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        return all_->follow_up(turn, now, served, request);
    }

    bool next(Request& request) override {
        while (all_->next(request)) {
            if (random_.uniform() < share_) {
                return true;
            }
            if (Request none; request.turn > 0) {
                (void)all_->follow_up(request.turn, request.arrival, false, none);
            }
        }
        return false;
    }

  private:
    std::unique_ptr<RequestSource> all_;
    double share_;
    RandomStream random_;
};

void describe(Fields& fields, LengthSpec& spec) {
    fields.enumeration({"kind", "distribution of the number of tokens"}, {"fixed", "uniform", "lognormal"}, spec.kind);
    fields.number({"mean", "tokens", false, 1, kMostTokens}, spec.mean);
    fields.number({"spread", "lognormal: sigma of the logarithm; uniform: half width over the mean", false, 0, 10},
                  spec.spread);
    fields.integer({"most", "longer ones are cut to this", false, 1, 1 << 24}, spec.most);
}

void describe(Fields& fields, ClientSpec& client) {
    fields.number({"share", "of the rate, over the sum of all shares", false, 1e-9, 1e9}, client.share);
    fields.number({"burstiness", "coefficient of variation of the gaps; 1 is Poisson", false, 0.01, 100},
                  client.burstiness);
    fields.section({"prompt", "lengths of its prompts"}, [&](Fields& inner) { describe(inner, client.prompt); });
    fields.section({"output", "lengths of its outputs"}, [&](Fields& inner) { describe(inner, client.output); });
    fields.integer({"adapter", "LoRA adapter of its requests, from 1 on; 0: none", false, 0, 1 << 20}, client.adapter);
}

}  // namespace

void describe(Fields& fields, RequestsSpec& spec) {
    fields.text({"trace", "file of requests: Azure, BurstGPT or plain CSV, or Mooncake JSONL; none: generated"},
                spec.trace);
    fields.enumeration({"arrivals", "how generated requests come; closed: also those of a trace"},
                       {"poisson", "gamma", "fixed", "at-once", "closed"}, spec.arrivals);
    bool closed = spec.clients > 0;
    fields.group(closed, [&](Fields& same) {
        same.integer(
            {"clients", "closed: each sends its next request when the last one is answered", false, 1, 1 << 20},
            spec.clients);
    });
    fields.number({"rate", "generated requests a second", false, 1e-6, 1e7}, spec.rate);
    fields.number({"burstiness", "gamma: coefficient of variation of the gaps; 1 is Poisson", false, 0.01, 100},
                  spec.burstiness);
    fields.integer({"count", "requests; 0: all of a trace, 1,000 generated ones", false, 0, 1'000'000'000}, spec.count);
    fields.section({"prompt", "lengths of generated prompts"}, [&](Fields& inner) { describe(inner, spec.prompt); });
    fields.section({"output", "lengths of generated outputs"}, [&](Fields& inner) { describe(inner, spec.output); });
    fields.number({"time_scale", "gaps of a trace times this", false, 1e-6, 1e6}, spec.time_scale);
    fields.quantity({"from", "of a trace: what comes before is left out", false, 0, 9e6}, Dimension::time, spec.from);
    fields.quantity({"to", "of a trace: where it ends; 0 s: at its end", false, 0, 9e6}, Dimension::time, spec.to);
    fields.quantity({"sample", "share of the requests that are kept", false, 1e-6, 1}, Dimension::fraction,
                    spec.sample);
    fields.number({"swing", "generated: the rate swings by this share of itself", false, 0, 1}, spec.swing);
    fields.quantity({"period", "in which it does", false, 1, 9e6}, Dimension::time, spec.period);
    fields.quantity({"timeout", "after which a client gives up; 0 s: never", false, 0, 1e6}, Dimension::time,
                    spec.timeout);
    fields.integer({"sessions", "generated requests belong to one of so many sessions", false, 1, 1 << 20},
                   spec.sessions);
    fields.boolean({"conversations", "prompts contain the earlier turns of their session"}, spec.conversations);
    fields.integer({"common", "tokens of a system prompt before each generated prompt", false, 0, 1 << 20},
                   spec.common);
    fields.integer({"common_kinds", "different system prompts", false, 1, 1 << 20}, spec.common_kinds);
    bool waits = spec.turns > 0;
    fields.group(waits, [&](Fields& same) {
        same.number({"turns",
                     "mean questions of a conversation, each after the answer to the one before; arrivals are "
                     "then of conversations",
                     false, 1, 1e6},
                    spec.turns);
        same.quantity({"think", "mean time from an answer to the next question", false, 0, 1e6}, Dimension::time,
                      spec.think);
    });
    bool named = spec.adapters > 0;
    fields.group(named, [&](Fields& same) {
        same.integer({"adapters", "LoRA adapters that requests name", false, 1, 1 << 20}, spec.adapters);
        same.number({"adapter_skew", "the k-th adapter is wanted 1 / k^skew times as often as the first", false, 0, 10},
                    spec.adapter_skew);
    });
    bool mixed = !spec.mix.empty();
    fields.group(mixed, [&](Fields& same) {
        std::size_t clients = spec.mix.size();
        same.list({"mix", "clients that share the rate, each with lengths and gaps of its own"}, clients,
                  [&](Fields& inner, std::size_t i) {
                      spec.mix.resize(std::max(spec.mix.size(), i + 1));
                      describe(inner, spec.mix[i]);
                  });
    });
}

bool RequestsSpec::names_adapters() const {
    return adapters > 0 ||
           std::any_of(mix.begin(), mix.end(), [](const ClientSpec& client) { return client.adapter > 0; });
}

std::vector<std::string> problems_of(const RequestsSpec& spec) {
    std::vector<std::string> problems;
    const bool closed = spec.arrivals == ArrivalKind::closed;
    if (spec.turns > 0 && (closed || !spec.trace.empty())) {
        problems.emplace_back("'turns' are of generated requests that come at a rate: no 'trace', no closed loop");
    }
    if (spec.turns <= 0 && spec.think > 0) {
        problems.emplace_back("'think' is the time between 'turns': say how many there are");
    }
    if (spec.turns > 0 && spec.conversations) {
        problems.emplace_back("'turns' make conversations of their own: leave out 'conversations'");
    }
    if (!spec.mix.empty() && (closed || !spec.trace.empty())) {
        problems.emplace_back("a 'mix' of clients is generated at a rate: no 'trace', no closed loop");
    }
    if (!spec.mix.empty() && spec.conversations) {
        problems.emplace_back("clients of a 'mix' have 'turns', not 'conversations' by session");
    }
    return problems;
}

std::unique_ptr<RequestSource> make_requests(const RequestsSpec& spec, const std::string& file, std::uint64_t seed) {
    std::unique_ptr<RequestSource> source;
    if (!file.empty()) {
        source = std::make_unique<TraceReader>(spec, file, seed);
    } else if (!spec.mix.empty()) {
        source = std::make_unique<Mix>(spec, seed);
    } else {
        source = std::make_unique<Generator>(spec, seed);
    }
    if (spec.sample < 1) {
        source = std::make_unique<Sample>(std::move(source), spec.sample, seed);
    }
    return source;
}

}  // namespace orrery
