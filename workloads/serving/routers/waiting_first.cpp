#include "workloads/serving/routers/load.hpp"

namespace orrery::serving {

namespace {

/// The balancer of vLLM's data parallelism: the rank with the least of four times its waiting requests and its running ones takes the
/// request, the first of equals (vllm/v1/engine/core_client.py, get_core_engine_for_request; that client hears of the ranks' counts every
/// 100 ms and adds what it has sent since, here they are current).
class WaitingFirst final : public Router {
  public:
    struct Parameters {
        double waiting = 4;
        void describe(Fields& fields) {
            fields.number({"waiting", "running requests that a waiting one counts for", false, 0, 1000}, waiting);
        }
    };
    explicit WaitingFirst(const Parameters& own) : waiting_(own.waiting) {}

    std::uint32_t choose(const EngineStates& engines, const std::vector<std::uint32_t>& among,
                         const RoutedRequest&) override {
        return least(engines, among, [this](const EngineState& engine) {
            const std::size_t waiting = waiting_requests(engine);
            return waiting_ * static_cast<double>(waiting) +
                   static_cast<double>(outstanding_requests(engine) - waiting);
        });
    }

  private:
    double waiting_;
};

}  // namespace

extern const PolicyRow<Router> kWaitingFirst = policy_row<Router, WaitingFirst>(
    "waiting-first",
    "the replica with the fewest waiting and running requests, waiting ones counted several times (vLLM)");

}  // namespace orrery::serving
