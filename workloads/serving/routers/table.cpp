// The table of routers: one row each.

#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

extern const PolicyRow<Router> kRoundRobin;
extern const PolicyRow<Router> kRandom;
extern const PolicyRow<Router> kLeastRequests;
extern const PolicyRow<Router> kLeastCache;
extern const PolicyRow<Router> kPowerOfTwo;
extern const PolicyRow<Router> kWaitingFirst;
extern const PolicyRow<Router> kSession;
extern const PolicyRow<Router> kConsistentHash;
extern const PolicyRow<Router> kPrefix;
extern const PolicyRow<Router> kWeightedScores;
extern const PolicyRow<Router> kAffinity;
extern const PolicyRow<Router> kKvCost;
extern const PolicyRow<Router> kOutsideRouter;

const PolicyTable<Router>& router_table() {
    static const PolicyTable<Router> kTable = {
        &kRoundRobin,     &kRandom, &kLeastRequests,  &kLeastCache, &kPowerOfTwo, &kWaitingFirst,  &kSession,
        &kConsistentHash, &kPrefix, &kWeightedScores, &kAffinity,   &kKvCost,     &kOutsideRouter,
    };
    return kTable;
}

}  // namespace orrery::serving
