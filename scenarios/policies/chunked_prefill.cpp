// The scheduler of vLLM 1 as a policy of your own: decodes first, then prompts cut to the token budget.
//
//     c++ -std=c++20 -O2 -shared -fPIC -I<prefix>/include chunked_prefill.cpp -o chunked_prefill.so
//     orrery run own-scheduler.yaml --set engine.scheduler.from=chunked_prefill.so --allow-policies

#include <orrery/policy.hpp>

#include <algorithm>

namespace {

class ChunkedPrefill final : public orrery::policy::Scheduler {
  public:
    void plan(const orrery::policy::Engine& engine, orrery::policy::Plan& plan) override {
        for (std::size_t i = 0; i < engine.running(); ++i) {
            plan.run(engine.running(i).request, 0, orrery::policy::WhenFull::preempt);
        }
        for (std::size_t i = 0; i < std::min(engine.waiting(), engine.places()); ++i) {
            plan.run(engine.waiting(i).request);
        }
    }
};

}  // namespace

ORRERY_SCHEDULER(ChunkedPrefill)
