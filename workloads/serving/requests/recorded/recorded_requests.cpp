// Requests of a file that is read whole: data sets for load generators, and results of these.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/random.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace orrery::serving {

namespace {

class RecordedRequests final : public RequestSource {
  public:
    RecordedRequests(const RequestsSpec& spec, Recorded recorded, const std::string& file, std::uint64_t seed)
        : spec_(spec), recorded_(std::move(recorded)), adapters_(spec.adapters, spec.adapter_skew, seed, "serving") {
        for (std::size_t i = 0; i < recorded_.requests.size(); ++i) {
            if (recorded_.requests[i].session > 0) {
                Session& session = sessions_[recorded_.requests[i].session];
                session.turns.push_back(i);
                session.adds = session.adds || recorded_.requests[i].adds;
                waits_ = waits_ || recorded_.requests[i].delay_s >= 0;
            }
        }
        const double last = scaled(recorded_.requests.back());
        if (clients() == 0 && spec.count == 0 && spec.to == 0 && last > kLatestArrival) {
            throw ConfigError({Diagnostic{
                file, 1, 1,
                fmt::format("the requests last {:.1f} days of simulated time, and time ends after {:.0f}: use "
                            "'requests.to' or 'requests.time_scale'",
                            last / 86400, kLatestArrival / 86400),
                ErrorCode::malformed_trace}});
        }
    }

    std::uint64_t clients() const override { return clients_of(spec_); }
    bool has_conversations() const override { return waits_; }
    double progress() const override {
        return static_cast<double>(next_) / static_cast<double>(recorded_.requests.size());
    }

    bool next(Request& request) override {
        for (; next_ < recorded_.requests.size() && !ended(); ++next_) {
            const RecordedRequest& one = recorded_.requests[next_];
            const double since = one.at_s - recorded_.requests.front().at_s;
            if (one.delay_s >= 0 || since < spec_.from) {
                continue;
            }
            if (spec_.to > 0 && since >= spec_.to) {
                return false;
            }
            give(next_++, clients() > 0 ? SimTime() : SimTime::from_seconds(scaled(one)), request);
            return true;
        }
        return false;
    }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        Session& session = sessions_.at(turn);
        const std::size_t next = session.turns.at(session.answered);
        if (!served || ended()) {
            return false;
        }
        ORRERY_ASSERT(next < recorded_.requests.size() && recorded_.requests[next].delay_s >= 0);
        give(next, now + SimTime::from_seconds(recorded_.requests[next].delay_s * spec_.time_scale), request);
        return true;
    }

  private:
    struct Session {
        std::vector<std::size_t> turns;  ///< requests, in order
        std::size_t answered = 0;        ///< turns that have been given
        bool adds = false;               ///< turns hold what was said before them
    };

    [[nodiscard]] bool ended() const { return spec_.count > 0 && given_ == spec_.count; }
    [[nodiscard]] double scaled(const RecordedRequest& one) const {
        return std::max(0.0, one.at_s - recorded_.requests.front().at_s - spec_.from) * spec_.time_scale;
    }

    void give(std::size_t index, SimTime at, Request& request) {
        const RecordedRequest& one = recorded_.requests[index];
        ++given_;
        request = Request();
        request.arrival = at;
        request.prompt = static_cast<std::uint32_t>(one.prompt);
        request.output = static_cast<std::uint32_t>(one.output);
        request.session = one.session;
        request.content.conversation = one.context > 0 ? one.context : spec_.conversations ? request.session + 1ULL : 0;
        request.content.keys = one.keys;
        if (one.session > 0) {
            Session& session = sessions_[one.session];
            while (session.answered < session.turns.size() && session.turns[session.answered] <= index) {
                ++session.answered;
            }
            ORRERY_ASSERT(session.answered > 0);
            const bool waited = session.answered < session.turns.size() &&
                                recorded_.requests[session.turns[session.answered]].delay_s >= 0;
            request.turn = waited ? one.session : 0;
            if (session.adds) {
                say(session, one, request.content);
            }
        }
        request.adapter = adapters_.draw();
    }

    // A turn repeats all that its session said before. Keys of the first prompt are shared with other sessions; what comes behind is
    // this session's own. A key of fewer tokens than those of the file finds the end of a prompt again inside a block of the next.
    void say(const Session& session, const RecordedRequest& one, PromptContent& content) const {
        constexpr std::uint32_t kTokens = 16;
        constexpr std::uint32_t kPerKey = 512 / kTokens;
        const RecordedRequest& first = recorded_.requests[session.turns.front()];
        const auto blocks = static_cast<std::uint64_t>((one.prompt + one.output) / kTokens);
        content.key_tokens = kTokens;
        content.keys.clear();
        for (std::uint64_t block = 0; block < blocks; ++block) {
            const bool common =
                static_cast<double>((block + 1) * kTokens) <= first.prompt && block / kPerKey < first.keys.size();
            content.keys.push_back(mix64(common ? mix64(first.keys[block / kPerKey]) + block
                                                : mix64(~std::uint64_t{one.session}) + block) |
                                   1U);
        }
    }

    RequestsSpec spec_;
    Recorded recorded_;
    Popularity adapters_;
    std::map<std::uint32_t, Session> sessions_;
    bool waits_ = false;  ///< requests come after answers of their sessions
    std::size_t next_ = 0;
    std::int64_t given_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> make_recorded_requests(const RequestsSpec& spec, const std::string& file,
                                                      std::uint64_t seed) {
    Recorded recorded = read_recorded(read_input(file), file, spec.trace_format);
    if (recorded.graph) {
        return make_request_graph(spec, std::move(recorded), seed);
    }
    return std::make_unique<RecordedRequests>(spec, std::move(recorded), file, seed);
}

}  // namespace orrery::serving
