// Formats of files that faults are read from.

#include "tests/workloads/faults_support.hpp"
#include "workloads/faults/traces/format.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace orrery {

namespace {

std::vector<TimedFault> read_text(const std::string& text, const JobShape& shape) {
    const std::string file =
        (std::filesystem::temp_directory_path() / ("orrery_trace_" + std::to_string(::getpid()))).string();
    std::ofstream(file) << text;
    std::vector<TimedFault> out = read_fault_trace(file, shape);
    std::remove(file.c_str());
    return out;
}

void check_fault(const TimedFault& fault, double at, std::uint32_t place, double lasts) {
    CHECK(fault.at_s == doctest::Approx(at));
    CHECK(fault.fault.kind == FaultKind::preemption);
    CHECK(fault.fault.place.what == Place::What::node);
    CHECK(fault.fault.place.index == place);
    CHECK(fault.fault.lasts_s == doctest::Approx(lasts));
}

}  // namespace

TEST_CASE("spot machines counted by day and time are preempted and come back, whatever the order of the lines") {
    const auto faults = read_text("2021-12-31, 23:59:00, 4\n2022-01-01, 00:01:00, 4\n2022-01-01, 00:00:00, 2\n",
                                  test::nodes_of_eight(4));
    REQUIRE(faults.size() == 2);
    check_fault(faults[0], 60, 3, 60);
    check_fault(faults[1], 60, 2, 60);
}

TEST_CASE("spot machines that are added and removed by name leave the last places empty") {
    const auto faults = read_text("0,add,a\n0,add,b\n60000,remove,a\n90000,add,c\n", test::nodes_of_eight(2));
    REQUIRE(faults.size() == 3);  // both places are empty before the first machine is there
    check_fault(faults.back(), 60, 1, 30);
}

TEST_CASE("GPUs over time fill nodes of as many as a node has") {
    const auto faults = read_text(",Time,GPUs\n0,1000.5,16\n1,1010.5,15\n2,1030.5,16\n", test::nodes_of_eight(2));
    REQUIRE(faults.size() == 1);
    check_fault(faults[0], 10, 1, 20);
}

TEST_CASE("nodes that Slurm took down are away until they are back, and for good without an end") {
    const auto faults = read_text(
        "NodeName|TimeStart|TimeEnd|State|Reason\n|2026-01-31T00:00:00|Unknown||Cluster registered\n"
        "gpu2|2026-02-01T00:10:00|Unknown|DOWN*|GPU fell off the bus\n"
        "gpu1|2026-01-31T23:59:50|2026-02-01T00:00:20|DRAIN|ECC\n"
        "zz-login|2026-01-31T23:59:55|2026-02-01T00:00:20|DOWN|reboot\n",
        test::nodes_of_eight(2));
    REQUIRE(faults.size() == 2);  // zz-login is no place of the job
    check_fault(faults[0], 0, 0, 30);
    check_fault(faults[1], 610, 1, 0);
}

TEST_CASE("nodes that Kubernetes lost are away until they are ready") {
    const auto faults = read_text(
        "TIME,REASON,OBJECT\n2026-03-01T10:00:00Z,Scheduled,pod-1\n2026-03-01T10:05:00Z,NodeNotReady,n1\n"
        "2026-03-01T10:06:00Z,NodeNotReady,n1\n2026-03-01T10:15:00Z,NodeReady,n1\n"
        "2026-03-01T10:20:00Z,NodeNotReady,n0\n",
        test::nodes_of_eight(4));
    REQUIRE(faults.size() == 2);
    check_fault(faults[0], 300, 1, 600);
    check_fault(faults[1], 1200, 0, 0);
}

TEST_CASE("files of faults of no known format are refused with those that are, bad lines with their numbers") {
    const auto refused = [](const std::string& text, int line, const std::string& word) {
        try {
            (void)read_text(text, test::nodes_of_eight(4));
            FAIL("taken: " << text);
        } catch (const ConfigError& error) {
            CHECK(error.diagnostics()[0].line == line);
            CHECK_MESSAGE(std::string(error.what()).find(word) != std::string::npos, error.what());
        }
    };
    refused("when,what\n", 1, "sacctmgr");
    refused("2021-12-31, 23:59:00, 4\n2021-13-31, 23:59:00, 4\n", 2, "expected day");
    refused("0,add,a\n1,melt,b\n", 2, "add or remove");
    refused("TIME,REASON,OBJECT\nyesterday,NodeReady,n1\n", 2, "time such as");
    refused("NodeName|TimeStart|TimeEnd|State|Reason\na|b|c|d|e\n", 2, "expected times");
    refused(",Time,GPUs\n0,1\n", 2, "expected number");
    // Days and times that no calendar has, parts of machines, columns that are not in the header.
    refused("2021-12-31, 23:59:00, 4\n2021-02-29, 23:59:00, 4\n", 2, "expected day");
    refused("TIME,REASON,OBJECT\n2026-03-01T24:00:00Z,NodeReady,n1\n", 2, "time such as");
    refused("time_s,nodes\n0,2.5\n", 2, "whole number");
    refused(",Time,GPUs\n0,1000,2.5\n", 2, "whole number");
    refused("0,add,a\n60000,add,b\n30000,remove,a\n", 3, "times go backwards");
    refused("NodeName|TimeStart|TimeEnd|State|Reason\na|2026-02-01T00:10:00|2026-01-01T00:10:00|DOWN|x\n", 2,
            "TimeEnd is before TimeStart");
    refused("time_s,kind,where,lasts_s,factor\n", 1, "in this order");
    refused("time_s,kind,where\n1,node,node 0,,5\n", 2, "5 cells");
}

}  // namespace orrery
