#include "workloads/outside/session.hpp"

namespace orrery::outside {

namespace {

std::chrono::nanoseconds clock_now() {
    return std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace

Session& session() {
    static Session one;
    return one;
}

Decision::Decision() : start_(clock_now()) {}

Decision::~Decision() {
    session().deciding += clock_now() - start_;
    ++session().decisions;
}

}  // namespace orrery::outside
