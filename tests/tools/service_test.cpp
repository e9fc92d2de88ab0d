// orrery serve, by the clients of service_test.py.

#include "tests/support/clients.hpp"
#include "tools/service/confine.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

void run_service_test(const char* part) {
    if (!service::can_confine()) {
        MESSAGE("skipped: this kernel has no Landlock");
        return;
    }
    run_clients("service_test.py", part, "orrery-service");
}

}  // namespace

TEST_CASE("The service answers every command as the program does, and describes itself") {
    run_service_test("commands");
}
TEST_CASE("The service says what is wrong with a request, and ends runs at their limit") {
    run_service_test("errors");
}
TEST_CASE("The service is closed to other sites, other hosts and other files") {
    run_service_test("closed");
}
TEST_CASE("A service with a token answers to those who send it") {
    run_service_test("token");
}
TEST_CASE("Jobs of the service are followed, cancelled and refused when too many wait") {
    run_service_test("jobs");
}
TEST_CASE("The service stays up and small under 200 clients, killed, silent and slow ones among them") {
    run_service_test("load");
}
TEST_CASE("The page of the service gives a first result, and works by keyboard, on a phone and on a desktop") {
    run_service_test("page");
}
