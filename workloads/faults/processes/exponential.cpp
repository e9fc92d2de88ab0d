#include "workloads/faults/processes/process.hpp"

#include <limits>

namespace orrery::faults {

namespace {

// Failures without memory: those of all components together come at the sum of their rates.
class Exponential final : public FaultProcess {
  public:
    using Parameters = NoParameters;
    explicit Exponential(const Parameters&) {}

    void begin(const Exposed& exposed, RandomStream& random) override { draw(exposed, 0, random); }
    double next() const override { return next_; }
    void strike(const Exposed& exposed, RandomStream& random, std::vector<Strike>& out) override {
        out.push_back({exposed.draw(random), 0});
        draw(exposed, next_, random);
    }
    void changed(const Exposed& exposed, std::uint32_t, double now_s, RandomStream& random) override {
        if (exposed.total_rate() != rate_) {
            draw(exposed, now_s, random);  // without memory: as if it had always been so
        }
    }

  private:
    void draw(const Exposed& exposed, double now_s, RandomStream& random) {
        rate_ = exposed.total_rate();
        next_ =
            rate_ > 0 ? now_s + random.exponential(exposed.mean_s() / rate_) : std::numeric_limits<double>::infinity();
    }
    double next_ = 0;
    double rate_ = 0;
};

}  // namespace

extern const PolicyRow<FaultProcess> kExponentialFaults =
    policy_row<FaultProcess, Exponential>("exponential", "without memory: a constant rate");

}  // namespace orrery::faults
