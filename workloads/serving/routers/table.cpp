// The table of routers: one row each.

#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

extern const PolicyRow<Router> kRoundRobin;
extern const PolicyRow<Router> kLeastRequests;
extern const PolicyRow<Router> kLeastCache;
extern const PolicyRow<Router> kSession;
extern const PolicyRow<Router> kPrefix;
extern const PolicyRow<Router> kOutsideRouter;

const PolicyTable<Router>& router_table() {
    static const PolicyTable<Router> kTable = {
        &kRoundRobin, &kLeastRequests, &kLeastCache, &kSession, &kPrefix, &kOutsideRouter,
    };
    return kTable;
}

}  // namespace orrery::serving
