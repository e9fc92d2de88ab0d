// Generated requests: arrivals, lengths, conversations and mixes of clients.

#include "sim/base/error.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <iterator>
#include <set>
#include <unordered_map>

namespace orrery::serving {

namespace {

constexpr int kMostDraws = 1000;  ///< of one request's lengths

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
        spec_.count = !spec.stages.empty() ? spec.in_stages() : spec.count > 0 ? spec.count : kGenerated;
        draw_questions();
    }

    double progress() const override { return static_cast<double>(made_) / static_cast<double>(spec_.count); }

    std::uint64_t clients() const override { return clients_of(spec_); }

    bool next(Request& request) override {
        if (made_ >= spec_.count) {
            return false;
        }
        if (!spec_.stages.empty()) {
            enter_stage();
        }
        request.stage = stage_;
        const bool first = spec_.stages.empty() ? made_ == 0 : in_stage_ == 1;
        ++made_;
        if (!first || spec_.arrivals == ArrivalKind::poisson || spec_.arrivals == ArrivalKind::gamma) {
            at_ += gap();
        }
        request.arrival = SimTime::from_seconds(daily(at_));
        if (spec_.samples > 1) {
            draw_sample(request);
            return true;
        }
        if (!questions_.empty()) {
            ask(request);
            return true;
        }
        draw_lengths(request);
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
        talk.lost = talk.lost || !served;
        if (--talk.open > 0) {
            return false;  // another branch of the same question is still under way
        }
        talk.said += talk.joins;
        talk.joins = 0;
        // What a conversation asks depends on itself alone, not on when others are answered.
        const bool goes_on = talk.random.uniform() >= 1 / spec_.turns;
        const double think = talk.random.exponential(spec_.think);
        std::vector<Request> asks;
        bool fits = !talk.lost && goes_on && made_ + spec_.branches <= spec_.count;
        for (std::int64_t i = 0; fits && i < spec_.branches; ++i) {
            const std::int64_t prompt = talk.said + draw_length(talk.random, spec_.prompt);
            if (prompt > spec_.prompt.most) {
                fits = false;
                break;
            }
            Request one = talk.last;
            one.prompt = static_cast<std::uint32_t>(prompt);
            one.output = draw_length(talk.random, spec_.output);
            one.arrival = now + SimTime::from_seconds(think);
            if (spec_.branches > 1) {
                one.content.branch = ++talk.branches;
                one.content.forked = static_cast<std::uint32_t>(talk.said);
            }
            talk.joins += prompt - talk.said + one.output;
            asks.push_back(std::move(one));
        }
        if (!fits) {
            talks_.erase(found);
            return false;
        }
        made_ += spec_.branches;
        talk.open = static_cast<std::uint32_t>(asks.size());
        request = std::move(asks.front());
        beside_.assign(std::next(asks.begin()), asks.end());
        return true;
    }

    bool another(Request& request) override {
        if (beside_.empty()) {
            return false;
        }
        request = std::move(beside_.front());
        beside_.pop_front();
        return true;
    }

    bool has_conversations() const override { return spec_.turns > 0; }

  private:
    struct Talk {
        Request last;  ///< the first, for what all have in common
        RandomStream random;
        std::int64_t said = 0;       ///< tokens, in whatever branch
        std::int64_t joins = 0;      ///< that the branches under way add to them
        std::uint32_t open = 1;      ///< branches under way
        std::uint64_t branches = 0;  ///< so far
        bool lost = false;           ///< one of them was not answered
    };

    void draw_lengths(Request& request) {
        for (int i = 0; i < kMostDraws; ++i) {
            request.prompt = draw_length(lengths_, spec_.prompt);
            request.output = draw_length(lengths_, spec_.output);
            if (spec_.longest == 0 || std::int64_t{request.prompt} + request.output <= spec_.longest) {
                return;
            }
        }
        throw_too_long();
    }

    [[noreturn]] void throw_too_long() const {
        throw InfeasibleError(fmt::format("'longest': of {} requests drawn none had {} tokens or fewer in all",
                                          kMostDraws, spec_.longest));
    }

    // The first of a prompt draws it; the others ask it again. All of it is the same, and of no other prompt.
    void draw_sample(Request& request) {
        const std::int64_t asked = (made_ - 1) / spec_.samples;
        const SimTime arrival = request.arrival;
        if ((made_ - 1) % spec_.samples == 0) {
            draw_lengths(sampled_);
            sampled_.session = static_cast<std::uint32_t>(asked);
            sampled_.content.common = sampled_.prompt;
            sampled_.content.group = static_cast<std::uint32_t>(asked);
        } else {
            const std::int64_t room = spec_.longest > 0 ? spec_.longest - sampled_.prompt : kEndlessRequests;
            ORRERY_ASSERT(room > 0);
            do {
                sampled_.output = draw_length(lengths_, spec_.output);
            } while (sampled_.output > room);  // the first one found one
        }
        request = sampled_;
        request.arrival = arrival;
        request.adapter = adapters_.draw();
    }

    // Every prompt that there is, in the order in which they are asked.
    void draw_questions() {
        const std::int64_t prompts = spec_.questions * (spec_.common > 0 ? spec_.common_kinds : 1);
        for (std::int64_t i = 0; i < prompts; ++i) {
            Request one;
            draw_lengths(one);
            one.content.conversation = static_cast<std::uint64_t>(i) + 1;
            one.content.group = static_cast<std::uint32_t>(i / spec_.questions);
            one.content.common = static_cast<std::uint32_t>(spec_.common);
            one.prompt += one.content.common;
            questions_.push_back(one);
        }
        for (std::size_t i = questions_.size(); i > 1; --i) {
            std::swap(questions_[i - 1], questions_[contents_.below(i)]);
        }
    }

    // Its prompt was drawn; the length of an answer is one of each time.
    void ask(Request& request) {
        const Request& question = questions_[asked_++ % questions_.size()];
        request.prompt = question.prompt;
        request.content = question.content;
        const std::int64_t room = spec_.longest > 0 ? spec_.longest - request.prompt : kEndlessRequests;
        int draws = 0;
        do {
            request.output = draw_length(lengths_, spec_.output);
        } while (request.output > room && ++draws < kMostDraws);
        if (request.output > room) {
            throw_too_long();
        }
        request.session = spec_.sessions > 1
                              ? static_cast<std::uint32_t>(lengths_.below(static_cast<std::uint64_t>(spec_.sessions)))
                              : 0;
        request.adapter = adapters_.draw();
    }

    // The next request's stage. Its arrivals count from the stage's start, and its questions from the first.
    void enter_stage() {
        if (stage_ == 0 || in_stage_ == spec_.stages[stage_ - 1].requests()) {
            ORRERY_ASSERT(stage_ < spec_.stages.size());
            spec_.rate = spec_.stages[stage_++].rate;
            in_stage_ = 0;
            asked_ = 0;
            at_ = 0;
        }
        ++in_stage_;
    }

    void begin_talk(Request& request) {
        request.turn = ++conversation_count_;
        request.session = request.turn;
        request.content.conversation = request.turn;
        ORRERY_ASSERT(!talks_.contains(request.turn));
        Talk talk{request, RandomStream(mix64(seed_ ^ mix64(request.turn)), name_ + "/talk")};
        talk.joins = std::int64_t{request.prompt} + request.output;
        talks_.emplace(request.turn, std::move(talk));
    }

    void continue_conversation(Request& request) {
        history_.resize(static_cast<std::size_t>(spec_.sessions));
        ORRERY_ASSERT(request.session < history_.size());
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
    std::deque<Request> beside_;                     ///< branches of the last question that are still to be given
    Request sampled_;                                ///< the prompt that is asked several times
    std::vector<Request> questions_;                 ///< prompts that are asked again and again, in their order
    std::size_t asked_ = 0;                          ///< of them, in this stage
    std::uint32_t stage_ = 0;                        ///< from 1 on; 0: there are none
    std::int64_t in_stage_ = 0;                      ///< requests made
    std::uint32_t conversation_count_ = 0;
    std::int64_t made_ = 0;
    double at_ = 0;
};

// Clients side by side. Their turns and conversations are numbered in turns: client i of n has i + 1, i + 1 + n, ...
class Mix final : public RequestSource {
  public:
    Mix(const RequestsSpec& spec, std::uint64_t seed)
        : count_(spec.count > 0 ? spec.count : kGenerated), branches_(spec.branches), n_(spec.mix.size()) {
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
        ORRERY_ASSERT(coming_.begin()->first == clients_[i].next.arrival);
        coming_.erase(coming_.begin());
        request = std::move(clients_[i].next);
        advance(i);
        return true;
    }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        ORRERY_ASSERT(turn > 0);
        const std::size_t i = (turn - 1) % n_;
        const auto its_turn = static_cast<std::uint32_t>((turn - 1) / n_) + 1;
        const bool more = clients_[i].source->follow_up(its_turn, now, served && made_ + branches_ <= count_, request);
        if (more) {
            ++made_;
            finish(i, request);
            followed_ = i;
        }
        return more;
    }

    bool another(Request& request) override {
        if (!clients_[followed_].source->another(request)) {
            return false;
        }
        ++made_;
        finish(followed_, request);
        return true;
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
    std::int64_t branches_;  ///< of each question after the first
    std::size_t n_;          ///< clients
    std::int64_t made_ = 0;
    std::size_t followed_ = 0;  ///< client that asked a next question last
    std::vector<Client> clients_;
    std::set<std::pair<SimTime, std::size_t>> coming_;  ///< the next arrival of each client
};

}  // namespace

std::unique_ptr<RequestSource> make_generator(const RequestsSpec& spec, std::uint64_t seed) {
    if (!spec.mix.empty()) {
        return std::make_unique<Mix>(spec, seed);
    }
    return std::make_unique<Generator>(spec, seed);
}

}  // namespace orrery::serving
