// Recorded requests of which some wait for the answers of several others: agents with tools, sub-agents and joins.
//
// A request comes its delay after the last of those that it waits for was answered. Where one was not answered, what waits for it never
// comes. In a closed loop each client plays one session at a time, all of its branches, and takes the next when the last of it has ended.

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"
#include "workloads/serving/requests/request_sources.hpp"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <unordered_map>

namespace orrery::serving {

namespace {

class RequestGraph final : public RequestSource {
  public:
    RequestGraph(const RequestsSpec& spec, Recorded recorded, std::uint64_t seed)
        : spec_(spec),
          recorded_(std::move(recorded)),
          adapters_(spec.adapters, spec.adapter_skew, seed, "serving"),
          waits_(recorded_.requests.size()),
          then_(recorded_.requests.size()) {
        double origin_s = std::numeric_limits<double>::infinity();
        for (std::uint32_t i = 0; i < recorded_.requests.size(); ++i) {
            const RecordedRequest& one = recorded_.requests[i];
            waits_[i] = static_cast<std::uint32_t>(one.after.size());
            for (const std::uint32_t before : one.after) {
                then_[before].push_back(i);
            }
            Session& session = sessions_[one.session];
            ++session.left;
            if (one.after.empty()) {
                session.roots.push_back(i);
                session.first_s = std::min(session.first_s, one.at_s);
                origin_s = std::min(origin_s, one.at_s);
            }
        }
        check_times(origin_s);
        next_session_ = sessions_.begin();
        if (spec.arrivals == ArrivalKind::closed) {
            for (std::int64_t i = 0; i < spec.clients; ++i) {
                begin_session(SimTime());
            }
        } else {
            for (const auto& [number, session] : sessions_) {
                for (const std::uint32_t root : session.roots) {
                    const double since = recorded_.requests[root].at_s - origin_s;
                    if (since >= spec.from && (spec.to <= 0 || since < spec.to)) {
                        ready_.emplace(SimTime::from_seconds((since - spec.from) * spec.time_scale), root);
                    }
                }
            }
        }
    }

    bool has_conversations() const override { return true; }
    double progress() const override {
        return static_cast<double>(given_) / static_cast<double>(recorded_.requests.size());
    }

    bool next(Request& request) override { return give(ready_, request); }

    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        const std::uint32_t index = turn - 1;
        end(index, now);
        for (const std::uint32_t next : then_[index]) {
            if (!served) {
                drop(next, now);
            } else if (waits_[next] != kDropped && --waits_[next] == 0) {
                const double delay = std::max(0.0, recorded_.requests[next].delay_s) * spec_.time_scale;
                set_off_.emplace(now + SimTime::from_seconds(delay), next);
            }
        }
        return give(set_off_, request);
    }

    bool another(Request& request) override { return give(set_off_, request); }

  private:
    struct Session {
        std::vector<std::uint32_t> roots;                          ///< requests that wait for none
        std::uint32_t left = 0;                                    ///< requests that have not ended
        double first_s = std::numeric_limits<double>::infinity();  ///< when the first of its roots came
    };
    using Ready = std::multimap<SimTime, std::uint32_t>;

    // Simulated time ends.
    void check_times(double origin_s) const {
        for (const RecordedRequest& one : recorded_.requests) {
            const double seconds = (one.after.empty() ? one.at_s - origin_s : one.delay_s) * spec_.time_scale;
            if (seconds > kLatestArrival && (!one.after.empty() || (spec_.to == 0 && spec_.count == 0))) {
                throw ConfigError(
                    fmt::format("a request comes after {:.1f} days of simulated time, and time ends after {:.0f}: use "
                                "'requests.to' or 'requests.time_scale'",
                                seconds / 86400, kLatestArrival / 86400),
                    ErrorCode::malformed_trace);
            }
        }
    }

    // One of its requests has ended, or will never come.
    void end(std::uint32_t index, SimTime now) {
        Session& session = sessions_.at(recorded_.requests[index].session);
        if (--session.left == 0 && spec_.arrivals == ArrivalKind::closed && !session.roots.empty()) {
            begin_session(now);
        }
    }

    void drop(std::uint32_t first, SimTime now) {
        std::vector<std::uint32_t> gone = {first};
        while (!gone.empty()) {
            const std::uint32_t index = gone.back();
            gone.pop_back();
            if (waits_[index] == kDropped) {
                continue;
            }
            waits_[index] = kDropped;
            gone.insert(gone.end(), then_[index].begin(), then_[index].end());
            end(index, now);
        }
    }

    // Its requests count from its own start. One whose requests all wait for those of others begins with these.
    void begin_session(SimTime at) {
        while (next_session_ != sessions_.end() && next_session_->second.roots.empty()) {
            ++next_session_;
        }
        if (next_session_ == sessions_.end()) {
            return;
        }
        const Session& session = (next_session_++)->second;
        Ready& into = given_ == 0 && at == SimTime() ? ready_ : set_off_;
        for (const std::uint32_t root : session.roots) {
            const double since = recorded_.requests[root].at_s - session.first_s;
            into.emplace(at + SimTime::from_seconds(since * spec_.time_scale), root);
        }
    }

    bool give(Ready& from, Request& request) {
        if (from.empty() || (spec_.count > 0 && given_ == spec_.count)) {
            return false;
        }
        const auto [at, index] = *from.begin();
        from.erase(from.begin());
        ++given_;
        const RecordedRequest& one = recorded_.requests[index];
        request = Request();
        request.arrival = at;
        request.prompt = static_cast<std::uint32_t>(one.prompt);
        request.output = static_cast<std::uint32_t>(one.output);
        request.session = one.session;
        request.turn = index + 1;
        request.adapter = adapters_.draw();
        request.content.keys = keys_of(one);
        request.content.key_tokens = recorded_.key_tokens;
        request.content.conversation = request.content.keys.empty() ? one.context : 0;
        return true;
    }

    // Keys of a context are kept as what each request has new: the first ones are those of the request before.
    std::vector<std::uint64_t> keys_of(const RecordedRequest& one) {
        if (one.fresh.empty() && one.kept == 0) {
            return one.keys;
        }
        std::vector<std::uint64_t>& keys = contexts_[one.list];
        keys.resize(std::min<std::size_t>(keys.size(), one.kept));
        for (const auto& [first, count] : one.fresh) {
            for (std::uint64_t i = 0; i < count; ++i) {
                keys.push_back(mix64(mix64(~std::uint64_t{one.session}) + first + i));
            }
        }
        return keys;
    }

    static constexpr std::uint32_t kDropped = 0xFFFFFFFFU;
    RequestsSpec spec_;
    Recorded recorded_;
    Popularity adapters_;
    std::vector<std::uint32_t> waits_;              ///< answers that a request waits for
    std::vector<std::vector<std::uint32_t>> then_;  ///< requests that wait for one
    std::map<std::uint32_t, Session> sessions_;
    std::map<std::uint32_t, Session>::iterator next_session_;                 ///< of a closed loop
    Ready ready_;                                                             ///< that come at times of their own,
    Ready set_off_;                                                           ///< and when others have ended
    std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> contexts_;  ///< keys of the last prompt, by list
    std::int64_t given_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> make_request_graph(const RequestsSpec& spec, Recorded recorded, std::uint64_t seed) {
    return std::make_unique<RequestGraph>(spec, std::move(recorded), seed);
}

}  // namespace orrery::serving
