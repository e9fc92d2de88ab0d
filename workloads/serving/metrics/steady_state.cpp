#include "workloads/serving/metrics/steady_state.hpp"

#include "sim/base/error.hpp"
#include "sim/record/batch_means.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::serving {

namespace {

constexpr std::size_t kMostBatches = 128;  ///< then they are merged in pairs
constexpr std::size_t kLooks = 16;         ///< batches between two looks at them
constexpr std::size_t kGroups = 16;        ///< batches that intervals are made of
constexpr double kConfidence = 0.9;

// A run that ends at its first look: one of several of equal length.
bool has_one_look(const SteadySpec& steady) {
    return steady.most < steady.batch * (kMostBatches / 2 + kLooks);
}

}  // namespace

SteadyState::SteadyState(const ServiceSpec& spec, bool closed, const std::function<void(double)>& progress,
                         ServiceResult& result)
    : spec_(spec), closed_(closed), progress_(progress), result_(result), per_batch_(spec.steady.batch) {
    ORRERY_ASSERT(per_batch_ > 0 && per_batch_ * kMostBatches / 2 <= spec.steady.most);
}

void SteadyState::Batch::add(const Batch& next) {
    end = next.end;
    sent += next.sent;
    settled += next.settled;
    answered += next.answered;
    e2e += next.e2e;
    ttft += next.ttft;
    tpot += next.tpot;
    in_time += next.in_time;
    counts.add(next.counts);
}

void SteadyState::answered(const RequestOutcome& outcome) {
    ++open_.answered;
    open_.e2e += static_cast<double>(outcome.e2e);
    open_.ttft += static_cast<double>(outcome.ttft);
    open_.tpot += static_cast<double>(outcome.tpot);
    open_.in_time += outcome.in_time ? 1 : 0;
}

void SteadyState::settled(std::uint64_t id) {
    ++settled_;
    ORRERY_ASSERT(over_ || settled_ <= arrived_);
    ++open_.settled;
    if (state_ == State::measured && id < measured_ && --left_ == 0) {
        over_ = true;
    }
}

void SteadyState::arrived(SimTime sent, SimTime now) {
    if (over_) {
        return;
    }
    if (arrived_ == 0) {
        last_sent_ = sent;
        open_.start = now;
    }
    ++arrived_;
    ++in_batch_;
    if (state_ == State::measured) {
        // Those that starve may be left behind for ever: no longer than the run was.
        over_ = in_batch_ >= per_batch_ * batches_.size();
    } else if (in_batch_ == per_batch_) {
        close_batch(sent, now);
    }
}

void SteadyState::close_batch(SimTime sent, SimTime now) {
    open_.end = now;
    open_.sent = (sent - last_sent_).seconds();
    open_.counts = static_cast<WindowCounts&>(result_);
    static_cast<WindowCounts&>(result_) = WindowCounts();
    result_.pools.resize(open_.counts.pools.size());
    batches_.push_back(std::move(open_));
    ORRERY_ASSERT(batches_.size() <= kMostBatches);
    open_ = Batch();
    open_.start = now;
    last_sent_ = sent;
    in_batch_ = 0;
    if (batches_.size() >= kMostBatches / 2 && batches_.size() % kLooks == 0) {
        look(now);
    }
    if (state_ == State::running && batches_.size() == kMostBatches) {
        for (std::size_t i = 0; i < kMostBatches / 2; ++i) {
            if (i > 0) {
                batches_[i] = std::move(batches_[2 * i]);
            }
            batches_[i].add(batches_[2 * i + 1]);
        }
        batches_.resize(kMostBatches / 2);
        per_batch_ *= 2;
    }
}

std::vector<double> SteadyState::series(std::size_t first, const std::function<double(const Batch&)>& of) const {
    std::vector<double> out;
    for (std::size_t i = first; i < batches_.size(); ++i) {
        out.push_back(of(batches_[i]));
    }
    return out;
}

void SteadyState::look(SimTime now) {
    // Simulated time ends after 9.2e6 s, and the next look may be a quarter later, with all that follows it.
    constexpr double kLatest = 3e6;
    const bool last = arrived_ + per_batch_ * kLooks > spec_.steady.most || now.seconds() > kLatest;
    if (!closed_ && grows(last)) {
        state_ = State::overloaded;
        first_ = batches_.size() / 2;
        over_ = true;
        return;
    }
    if (spec_.steady.attainment > 0 && has_one_look(spec_.steady)) {
        // A cut that follows from what was measured would leave out long queues at the start and keep those at the end.
        constexpr std::size_t kCut = 8;
        first_ = batches_.size() / kCut;
        while (first_ + kGroups < batches_.size() && batches_[first_].start.seconds() < spec_.measure.from) {
            ++first_;
        }
    } else {
        precise_ = enough();
    }
    if (precise_ || last) {
        state_ = State::measured;
        measured_ = arrived_;
        left_ = arrived_ - settled_;
    }
}

// Whether the queue has grown over the second half of the run as it would for ever.
bool SteadyState::grows(bool last_look) const {
    const std::size_t half = batches_.size() / 2;
    const std::size_t quarter = half / 2;
    const auto shortfall = [&](const Batch& batch) {
        const double seconds = (batch.end - batch.start).seconds();
        const double came = static_cast<double>(per_batch_) * (batch.sent > 0 ? seconds / batch.sent : 1);
        return came - static_cast<double>(batch.settled);
    };
    constexpr std::size_t kParts = 8;
    const std::vector<double> parts = grouped(series(half, shortfall), kParts);
    double all = 0;
    double later = 0;
    for (std::size_t i = 0; i < kParts; ++i) {
        all += parts[i];
        later += i >= kParts / 2 ? parts[i] : 0;
    }
    const double mean = all / kParts;
    double squares = 0;
    for (const double part : parts) {
        squares += (part - mean) * (part - mean);
    }
    const double error = std::sqrt(squares / (kParts - 1) / kParts);
    constexpr double kSure = 4.785;  // Student's t with 7 degrees of freedom at 99.9 %
    constexpr double kLeastGrowth = 0.01;
    const double came = static_cast<double>(per_batch_) * static_cast<double>(batches_.size() - half);
    if (mean <= kSure * error || all < kLeastGrowth * came) {
        return false;
    }
    // A system that fills falls short by less and less, one that overflows by the same for ever.
    constexpr double kSame = 0.6;
    if (later < kSame * (all - later)) {
        return false;
    }
    if (last_look) {
        return true;
    }
    double answered[2] = {0, 0};
    double ttft[2] = {0, 0};
    double tpot[2] = {0, 0};
    for (std::size_t i = half; i < batches_.size(); ++i) {
        const std::size_t part = i < half + quarter ? 0 : 1;
        answered[part] += batches_[i].answered;
        ttft[part] += batches_[i].ttft;
        tpot[part] += batches_[i].tpot;
    }
    constexpr double kFewest = 50;
    if (answered[0] < kFewest || answered[1] < kFewest) {
        return false;
    }
    constexpr double kLonger = 1.2;
    const auto longer = [&](const double* sum) { return sum[1] / answered[1] > kLonger * sum[0] / answered[0]; };
    return longer(ttft) || longer(tpot);
}

// Whether the warm-up has ended, which is then left out, and the rest says enough.
bool SteadyState::enough() {
    first_ = batches_.size() / 2;  // where that is not known, and the run has to end
    const auto answered = [](const Batch& batch) { return batch.answered; };
    const auto seconds = [](const Batch& batch) { return (batch.end - batch.start).seconds(); };
    const auto tokens = [](const Batch& batch) { return static_cast<double>(batch.counts.output_tokens); };
    const std::vector<double> counts = series(0, answered);
    if (std::find(counts.begin() + static_cast<std::ptrdiff_t>(first_), counts.end(), 0) != counts.end()) {
        return false;
    }
    const auto latency = warm_up_of(series(0, [](const Batch& b) { return b.answered > 0 ? b.e2e / b.answered : 0; }));
    const auto rate =
        warm_up_of(series(0, [&](const Batch& b) { return seconds(b) > 0 ? tokens(b) / seconds(b) : 0; }));
    if (!latency || !rate) {
        return false;
    }
    std::size_t first = std::max(*latency, *rate);
    while (first < batches_.size() && batches_[first].start.seconds() < spec_.measure.from) {
        ++first;
    }
    const std::size_t left = batches_.size() - first;
    if (left < kMostBatches / 4) {
        return false;
    }
    first += left % kGroups;
    const auto estimate = [&](const auto& counted, const auto& reference) {
        return ratio_of_batches(grouped(series(first, counted), kGroups), grouped(series(first, reference), kGroups),
                                kConfidence);
    };
    first_ = first;
    const double window = (batches_.back().end - batches_[first].start).seconds();
    const BatchEstimate e2e = estimate([](const Batch& batch) { return batch.e2e; }, answered);
    // What is still under way at the end of a short run is not among its answers.
    constexpr double kLifetimes = 5;
    if (!(window > kLifetimes * e2e.value)) {
        return false;
    }
    const SteadySpec& wanted = spec_.steady;
    if (wanted.attainment > 0) {
        const BatchEstimate in_time = estimate([](const Batch& batch) { return batch.in_time; },
                                               [](const Batch& batch) { return static_cast<double>(batch.settled); });
        constexpr double kNearEnough = 0.005;
        return in_time.independent(kGroups) &&
               (std::fabs(in_time.value - wanted.attainment) > in_time.half_width || in_time.half_width < kNearEnough);
    }
    const BatchEstimate given = estimate(tokens, seconds);
    const BatchEstimate ttft = estimate([](const Batch& batch) { return batch.ttft; }, answered);
    double farthest = 1;
    for (const auto& [one, width] : {std::pair{given, wanted.tokens}, {e2e, wanted.e2e}, {ttft, wanted.ttft}}) {
        farthest = std::max({farthest, one.relative() / width, one.independent(kGroups) ? 0.0 : 1.01});
    }
    if (progress_) {
        progress_(1 / (farthest * farthest));  // intervals shrink with the root of the length
    }
    return farthest <= 1;
}

void SteadyState::finish() {
    WindowCounts counts;
    if (state_ == State::running) {  // the requests have ended after all: measured whole
        std::for_each(batches_.begin(), batches_.end(), [&](const Batch& batch) { counts.add(batch.counts); });
        counts.add(result_);
        counts.unserved = unserved_.size();
        static_cast<WindowCounts&>(result_) = std::move(counts);
        return;
    }
    SteadyRun out;
    const SimTime from = batches_[first_].start;
    const SimTime to = batches_.back().end;
    const auto requests = [&](std::size_t batches) { return per_batch_ * batches; };
    ORRERY_ASSERT(first_ < batches_.size() && from <= to);
    out.warm_up_s = from.seconds();
    out.warm_up = requests(first_);
    out.measured = requests(batches_.size() - first_);
    out.precise = precise_;
    out.overloaded = state_ == State::overloaded;
    double sent = 0;
    double settled = 0;
    for (std::size_t i = first_; i < batches_.size(); ++i) {
        counts.add(batches_[i].counts);
        sent += batches_[i].sent;
        settled += static_cast<double>(batches_[i].settled);
    }
    result_.window_s = (to - from).seconds();
    out.offered_rps = sent > 0 ? static_cast<double>(out.measured) / sent : 0;
    out.sustainable_rps = result_.window_s > 0 ? settled / result_.window_s : 0;
    const auto groups = [&](const std::function<double(const Batch&)>& of) {
        return grouped(series(first_, of), kGroups);
    };
    if (batches_.size() - first_ >= kGroups) {
        out.seconds = groups([](const Batch& batch) { return (batch.end - batch.start).seconds(); });
        out.finished = groups([](const Batch& batch) { return static_cast<double>(batch.counts.finished); });
        out.tokens = groups([](const Batch& batch) { return static_cast<double>(batch.counts.output_tokens); });
    }
    const auto outside = [&](SimTime at) { return at < from || at >= to; };
    std::erase_if(result_.requests, [&](const RequestOutcome& request) { return outside(request.arrival); });
    counts.unserved =
        unserved_.size() - static_cast<std::uint64_t>(std::count_if(unserved_.begin(), unserved_.end(), outside));
    static_cast<WindowCounts&>(result_) = std::move(counts);
    result_.steady = std::move(out);
}

}  // namespace orrery::serving
