#pragma once
// When a service whose requests would come for ever has said enough, and what of the run counts.
//
// Claims: a run is cut into batches of equally many arrivals. It has said enough when its warm-up has ended, as MSER finds on the
// batches' latencies and token rates, and when the intervals of batch means of the rest are as narrow as asked for, with batches that do not
// remember each other. A run that asks for an attainment and may have but one look (SteadySpec::most) is one of several of equal length:
// of it the first eighth is warm-up, whatever was measured. The load goes on until all that came before that is answered, so that nothing measured sees it ebb away.
// Overload: when over the second half of the run fewer requests are accounted for than come, by far more than chance has it, by no less
// in its later part than in its earlier one, and requests wait longer there, then the queue grows without bound. The run is ended, and what was accounted
// for per second is what the service sustains.
// Scope: loads that do not change with time, beyond chance. A closed loop is never overloaded.
// Limits: at most `most` requests, said so where the intervals are wider then; a queue that grows by less than 1 % of the arrivals counts
// as steady; looking several times makes intervals a little too narrow (by tests, 90 % ones hold in 86 % of the cases or more).
// Sources: sim/record/batch_means.hpp; batches merged in pairs as the run grows: Fishman and Yarberry, "An implementation of the batch means
// method", INFORMS Journal on Computing 9(3), 1997.
// Validated by tests/workloads/serving_steady_test.cpp (queues with closed forms).

#include "workloads/serving/metrics/outcome.hpp"
#include "workloads/serving/service_spec.hpp"

#include <functional>

namespace orrery::serving {

class SteadyState {
  public:
    /// All arguments outlive this; `result` has the counts since the last batch. `closed`: requests come when others are answered.
    SteadyState(const ServiceSpec& spec, bool closed, const std::function<void(double)>& progress,
                ServiceResult& result);

    /// A request that its client sent at `sent` has come to the engines.
    void arrived(SimTime sent, SimTime now);
    /// It was answered ...
    void answered(const RequestOutcome& outcome);
    /// ... or will not be.
    void unserved(SimTime sent) { unserved_.push_back(sent); }
    /// Either way it is accounted for. `id`: requests are numbered as they come to the engines.
    void settled(std::uint64_t id);
    /// No more requests are wanted.
    [[nodiscard]] bool over() const { return over_; }
    /// After the run: leaves in the result what belongs to the measured window.
    void finish();

  private:
    // What happened between two arrivals, the last of which is the batch's own.
    struct Batch {
        SimTime start, end;
        double sent = 0;  ///< s in which its requests were sent
        std::uint64_t settled = 0;
        double answered = 0, e2e = 0, ttft = 0, tpot = 0, in_time = 0;  ///< counts, and sums in s
        WindowCounts counts;

        void add(const Batch& next);
    };
    enum class State { running, measured, overloaded };

    void close_batch(SimTime sent, SimTime now);
    void look(SimTime now);
    [[nodiscard]] bool grows(bool last_look) const;
    [[nodiscard]] bool enough();
    [[nodiscard]] std::vector<double> series(std::size_t first, const std::function<double(const Batch&)>& of) const;

    const ServiceSpec& spec_;
    bool closed_;
    const std::function<void(double)>& progress_;
    ServiceResult& result_;
    std::vector<Batch> batches_;
    Batch open_;                   ///< the batch under way
    std::uint64_t in_batch_ = 0;   ///< arrivals of the batch under way,
    std::uint64_t per_batch_ = 0;  ///< of so many
    std::uint64_t arrived_ = 0;
    std::uint64_t settled_ = 0;
    std::uint64_t measured_ = 0;  ///< requests had come when the measurement ended,
    std::uint64_t left_ = 0;      ///< of which so many are not accounted for
    State state_ = State::running;
    bool precise_ = false;
    bool over_ = false;
    std::size_t first_ = 0;  ///< batch that is measured
    SimTime last_sent_;
    std::vector<SimTime> unserved_;  ///< when they were sent
};

}  // namespace orrery::serving
