#include "tools/cudabench/points.hpp"

#include "models/calibration/trace.hpp"
#include "tests/support/command.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

using namespace orrery::cudabench;

TEST_CASE("cudabench: every point has a name of its own, and every group of the plan is there") {
    std::set<std::string> names;
    std::map<std::string, int> groups;
    for (const Point& point : all_points()) {
        CHECK_MESSAGE(names.insert(point.id()).second, point.id());
        ++groups[point.group];
    }
    CHECK(groups.size() == 11);
    CHECK(groups["gemm"] == 43 * 23 + 2 * 75 + 24);
    CHECK(groups["gradients"] == 12 * (3 * 8 + 5 * 3));
    CHECK(groups["launch"] == 3);
}

TEST_CASE("cudabench: rows say how executions were launched, and every operation is one of the trace format") {
    std::set<std::string> unknown;
    for (const Point& point : all_points()) {
        const orrery::TraceOperation* operation = orrery::find_trace_operation(point.op);
        if (operation == nullptr) {
            unknown.insert(point.op);
            continue;
        }
        for (const std::string& name : operation->required) {
            CHECK_MESSAGE(point.dim(name, -1) >= 0, point.id(), " has no ", name);
        }
    }
    CHECK(unknown == std::set<std::string>{});
    Measured measured;
    measured.library = "cublas-13.0";
    measured.mode = "stream";
    measured.median_ns = 1000;
    measured.note = "one, two";
    const std::string row = trace_row(all_points()[0], measured, false);
    CHECK(row.find(",cublas-13.0,stream,") != std::string::npos);
    const orrery::Trace trace = orrery::parse_trace(
        trace_head({{"device", "h200-sxm"}, {"source", "s"}, {"date", "2026-11-26"}}) + row + "\n", "row");
    CHECK(trace.rows.at(0).note == "one; two");
}

TEST_CASE("cudabench: where there is a CUDA compiler it builds without warnings and can set up every point") {
    const orrery::test::Folder folder;
    const orrery::test::Outcome built = orrery::test::shell_command(
        std::string("CUDABENCH_FLAGS='-O1 -Werror all-warnings -Xcompiler -Wall,-Wextra' ") + ORRERY_SOURCE_DIR +
        "/tools/cudabench/build " + folder.file("cuda"));
    REQUIRE_MESSAGE(built.code == 0, built.text);
    if (built.text.find("is not built") != std::string::npos) {
        MESSAGE("skipped: no CUDA compiler here");
        return;
    }
    const orrery::test::Outcome walked = orrery::test::shell_command(folder.file("cuda") + "/cudabench --dry-run");
    CHECK_MESSAGE(walked.code == 0, walked.text);
    const std::string count = std::to_string(all_points().size());
    CHECK_MESSAGE(walked.text.find(count + " of " + count + " points can be set up") != std::string::npos, walked.text);
}

TEST_CASE("cudabench: matrix products of backward passes have the sizes of their layer") {
    // y[tokens, n] = x[tokens, k] w[n, k]^T: dx is tokens x k over n, dw is n x k over the tokens.
    int data = 0;
    int weight = 0;
    for (const Point& point : all_points()) {
        data += point.phase == "data_gradient" && point.shape_text() == "m=1024 n=4096 k=6144" ? 1 : 0;
        weight += point.phase == "weight_gradient" && point.group != "gradients" &&
                          point.shape_text() == "m=6144 n=4096 k=1024"
                      ? 1
                      : 0;
    }
    CHECK(data == 1);
    CHECK(weight == 1);
}

TEST_CASE("cudabench: a trace that was cut off resumes after its last complete row") {
    const std::vector<Point> points = all_points();
    Measured measured;
    measured.library = "none";
    measured.median_ns = 1000.5;
    measured.reps = 7;
    std::string text = trace_head({{"device", "h200-sxm"}, {"source", "test"}, {"date", "2026-11-21"}});
    CHECK(measured_points(text) == std::vector<std::string>{"point"});  // the names of the columns
    text += trace_row(points[0], measured, false) + "\n";
    text += trace_row(points[100], measured, true) + "\n";
    const std::string cut = trace_row(points[200], measured, false).substr(0, 60);
    const std::vector<std::string> found = measured_points(text + cut);
    REQUIRE(found.size() == 3);
    CHECK(found[1] == points[0].id());
    CHECK(found[2] == points[100].id());
}

TEST_CASE("cudabench: the committed runs of a device hold every point of the plan together, and nothing else") {
    for (const char* device : {"h200-sxm", "h100-sxm"}) {
        std::set<std::string> measured;
        int repeats = 0;
        for (const char* day : {"-2026-11-26", "-2026-11-27", "-2026-11-27b"}) {
            const orrery::Trace trace = orrery::read_trace(std::string(ORRERY_SOURCE_DIR) + "/validation/measured/" +
                                                           device + day + "/cudabench.csv.xz");
            for (const orrery::TraceRow& row : trace.rows) {
                repeats += row.split == "repeat" ? 1 : 0;
                CHECK_MESSAGE((measured.insert(row.point).second || row.split == "repeat"), row.point);
            }
        }
        std::set<std::string> planned;
        for (const Point& point : all_points()) {
            planned.insert(point.id());
        }
        CHECK(measured == planned);
        CHECK(repeats == 20 + 360);  // at the end of the first run, and the group gradients once more
    }
}
