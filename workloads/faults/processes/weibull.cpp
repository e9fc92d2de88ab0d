#include "workloads/faults/processes/process.hpp"

#include "sim/base/math.hpp"

#include <limits>
#include <queue>

namespace orrery::faults {

namespace {

// Gamma(x) for x > 0 by Lanczos' approximation (g = 7, nine terms; Press et al., Numerical Recipes, section 6.1), with the
// reflection formula left out: the arguments here are above 1.
double gamma_of(double x) {
    constexpr double kTerms[] = {0.99999999999980993,  676.5203681218851,     -1259.1392167224028,
                                 771.32342877765313,   -176.61502916214059,   12.507343278686905,
                                 -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
    constexpr double kRootOfTwoPi = 2.5066282746310002;
    double sum = kTerms[0];
    for (int i = 1; i < 9; ++i) {
        sum += kTerms[i] / (x - 1 + i);
    }
    const double t = x + 6.5;
    return kRootOfTwoPi * pow_pinned(t, x - 0.5) * exp_pinned(-t) * sum;
}

// Each component fails after a Weibull time and is new again then: a shape below 1 is infant mortality, above 1 wear.
class Weibull final : public FaultProcess {
  public:
    struct Parameters {
        double shape = 0.7;
        void describe(Fields& fields) {
            fields.number({"shape", "shape of the distribution; below 1: infant mortality; 1: exponential; above: wear",
                           false, 0.2, 20},
                          shape);
        }
    };
    explicit Weibull(const Parameters& parameters)
        : shape_(parameters.shape), mean_of_unit_(gamma_of(1 + 1 / parameters.shape)) {}

    void begin(const Exposed& exposed, RandomStream& random) override {
        at_.resize(exposed.count());
        for (std::uint32_t i = 0; i < exposed.count(); ++i) {
            renew(exposed, i, 0, random);
        }
    }
    double next() const override { return queue_.empty() ? std::numeric_limits<double>::infinity() : queue_.top().at; }
    void strike(const Exposed& exposed, RandomStream& random, std::vector<Strike>& out) override {
        const Entry first = queue_.top();
        out.push_back({first.component, 0});
        renew(exposed, first.component, first.at, random);
        drop_stale();
    }
    void changed(const Exposed& exposed, std::uint32_t machine, double now_s, RandomStream& random) override {
        at_.resize(exposed.count());
        const std::uint32_t first = exposed.first_of(machine);
        for (std::uint32_t i = first; i < first + exposed.per_machine() && i < exposed.count(); ++i) {
            renew(exposed, i, now_s, random);
        }
        drop_stale();
    }

  private:
    struct Entry {
        double at;
        std::uint32_t component;
        bool operator>(const Entry& other) const {
            return at != other.at ? at > other.at : component > other.component;
        }
    };
    void renew(const Exposed& exposed, std::uint32_t component, double now_s, RandomStream& random) {
        const double scale = exposed.mean_s() / exposed.rate(component) / mean_of_unit_;
        at_[component] = now_s + scale * pow_pinned(random.exponential(1), 1 / shape_);
        queue_.push({at_[component], component});
    }
    void drop_stale() {
        while (!queue_.empty() &&
               (queue_.top().component >= at_.size() || at_[queue_.top().component] != queue_.top().at)) {
            queue_.pop();
        }
    }
    double shape_;
    double mean_of_unit_;
    std::vector<double> at_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

extern const PolicyRow<FaultProcess> kWeibullFaults =
    policy_row<FaultProcess, Weibull>("weibull", "each component ages, and is new again after a failure");

}  // namespace orrery::faults
