#include "workloads/faults/processes/process.hpp"

#include "sim/base/math.hpp"

#include <limits>

namespace orrery::faults {

namespace {

// Failures come in bursts: a component and its neighbours behind it, one after another. Sizes are geometric. MTBF stays that of a
// component: bursts are as much rarer as they are larger.
class Burst final : public FaultProcess {
  public:
    struct Parameters {
        double size = 3;
        double gap = 60;
        void describe(Fields& fields) {
            fields.number({"size", "mean number of neighbours that a burst strikes", false, 1, 1000}, size);
            fields.quantity({"gap", "mean time between two strikes of a burst, exponential", false, 0, 1e6},
                            Dimension::time, gap);
        }
    };
    explicit Burst(const Parameters& parameters) : own_(parameters) {}

    void begin(const Exposed& exposed, RandomStream& random) override { draw(exposed, 0, random); }
    double next() const override { return next_; }
    void strike(const Exposed& exposed, RandomStream& random, std::vector<Strike>& out) override {
        std::uint32_t component = exposed.draw(random);
        double after = 0;
        for (std::uint32_t struck = 1;; ++struck) {
            out.push_back({component, after});
            if (struck >= exposed.count() || random.uniform() * own_.size < 1) {
                break;
            }
            component = (component + 1) % exposed.count();
            after += own_.gap > 0 ? random.exponential(own_.gap) : 0;
        }
        draw(exposed, next_, random);
    }
    void changed(const Exposed& exposed, std::uint32_t, double now_s, RandomStream& random) override {
        if (exposed.total_rate() != rate_) {
            draw(exposed, now_s, random);
        }
    }

  private:
    void draw(const Exposed& exposed, double now_s, RandomStream& random) {
        rate_ = exposed.total_rate();
        next_ = rate_ > 0 ? now_s + random.exponential(exposed.mean_s() * own_.size / rate_)
                          : std::numeric_limits<double>::infinity();
    }
    Parameters own_;
    double next_ = 0;
    double rate_ = 0;
};

}  // namespace

extern const PolicyRow<FaultProcess> kBurstFaults =
    policy_row<FaultProcess, Burst>("burst", "neighbours fail together");

}  // namespace orrery::faults
