// Collective algorithms as data: checks, readers, and programs that equal built-in algorithms.

#include "sim/base/error.hpp"
#include "tests/support/fabrics.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/programs/program.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

using namespace orrery;

namespace {

Schedule schedule_of(const CollectiveProgram& program, double bytes) {
    check_program(program);
    ScheduleBuilder builder;
    add_program(builder, program, bytes);
    return builder.finish();
}

// Everything that a message is and releases, whatever its number.
std::vector<std::string> described(const Schedule& schedule) {
    // By number of the message on its link, which both builders count alike.
    std::vector<std::string> names;
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> on_link;
    for (const Message& message : schedule.messages) {
        names.push_back(fmt::format("{}>{}#{}", message.from, message.to, on_link[{message.from, message.to}]++));
    }
    std::vector<std::string> out;
    for (std::size_t id = 0; id < schedule.messages.size(); ++id) {
        const Message& message = schedule.messages[id];
        std::vector<std::string> releases;
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            releases.push_back(names[schedule.releases[message.first_release + k]]);
        }
        std::sort(releases.begin(), releases.end());
        out.push_back(fmt::format("{} {} B waits {} reduces {} releases {}", names[id], message.bytes,
                                  message.waits_for, static_cast<int>(message.reduces), fmt::join(releases, " ")));
    }
    std::sort(out.begin(), out.end());
    return out;
}

CollectiveSpec spec_of(const char* name, CollectiveOp op, double bytes) {
    CollectiveSpec spec;
    spec.op = op;
    spec.bytes = bytes;
    spec.algorithm = &algorithm(name);
    return spec;
}

std::string error_of(const CollectiveProgram& program) {
    try {
        check_program(program);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

std::string error_of(const std::string& xml) {
    try {
        check_program(read_msccl(xml, "a.xml"));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

bool has(const std::string& text, const std::string& part) {
    const bool found = text.find(part) != std::string::npos;
    CHECK_MESSAGE(found, text, " should say: ", part);
    return found;
}

// Two ranks that exchange halves and add them, with one word changed.
std::string exchange(const std::string& word = "", const std::string& by = "") {
    std::string text = R"(<algo name="x" ngpus="2" coll="allreduce" inplace="1" nchunksperloop="2">
<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1">
<tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu>
<gpu id="1" i_chunks="2" o_chunks="2" s_chunks="1">
<tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu></algo>
)";
    if (!word.empty()) {
        const auto at = text.find(word);
        REQUIRE(at != std::string::npos);
        text.replace(at, word.size(), by);
    }
    return text;
}

}  // namespace

TEST_CASE("A ring as a program has the messages and waits of the built-in ring") {
    for (const CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter}) {
        for (const std::uint32_t ranks : {2U, 3U, 8U, 65U}) {
            CAPTURE(ranks);
            const CollectiveProgram program = ring_program(op, ranks);
            const double bytes = 4096.0 * ranks;
            CHECK(described(schedule_of(program, bytes)) ==
                  described(make_schedule(spec_of("ring", op, bytes), ranks, 1)));
        }
    }
}

TEST_CASE("A tree as a program has the messages and waits of the built-in tree") {
    for (const std::uint32_t ranks : {2U, 3U, 4U, 7U, 8U, 13U, 64U}) {
        for (const std::uint32_t pieces : {1U, 3U}) {
            CAPTURE(ranks);
            CAPTURE(pieces);
            const CollectiveProgram program = tree_program(CollectiveOp::all_reduce, ranks, pieces);
            CollectiveSpec spec = spec_of("tree", CollectiveOp::all_reduce, 12288);
            spec.pipeline = pieces;
            const Schedule own = schedule_of(program, spec.bytes);
            const Schedule built_in = make_schedule(spec, ranks, 1);
            REQUIRE(own.messages.size() == built_in.messages.size());
            // The built-in tree names some waits that others imply; runs are equal.
            const Fabric fabric(test::hosts(ranks, ranks, 4, 50e9, 1e-6));
            const MessageRunOptions options;
            CHECK(run_messages(fabric, own, options).seconds ==
                  doctest::Approx(run_messages(fabric, built_in, options).seconds).epsilon(1e-9));
        }
    }
}

TEST_CASE("A program that is written as MSCCL's XML and read again is the same") {
    for (const CollectiveProgram& program :
         {ring_program(CollectiveOp::all_reduce, 5), ring_program(CollectiveOp::all_gather, 4),
          ring_program(CollectiveOp::reduce_scatter, 4), tree_program(CollectiveOp::all_reduce, 6, 2)}) {
        const std::string text = write_msccl(program);
        const CollectiveProgram again = read_msccl(text, "again.xml");
        CHECK(write_msccl(again) == text);
        CHECK(described(schedule_of(again, 840)) == described(schedule_of(program, 840)));
    }
    CHECK(error_of(exchange()) == "");
}

TEST_CASE("Programs that cannot be right are refused with the step and rank") {
    // Deadlocks: a receive without a send, a send without a receive, steps that wait for each other.
    has(error_of(exchange("type=\"s\"", "type=\"nop\"")), "waits for ever: nothing more is sent from rank 0 to rank 1");
    has(error_of(exchange("type=\"r\"", "type=\"nop\"")), "nothing receives what it sends from rank 1 to rank 0");
    has(error_of(exchange("cnt=\"1\" depid=\"-1\" deps=\"-1\"", "cnt=\"1\" depid=\"0\" deps=\"2\"")), "deadlock");
    has(error_of(exchange("cnt=\"1\" depid=\"-1\" deps=\"-1\"", "cnt=\"1\" depid=\"0\" deps=\"0\"")),
        "rank 0, block 0, step 0 (s): deadlock: it waits for it");
    has(error_of(exchange("depid=\"-1\" deps=\"-1\"", "depid=\"3\" deps=\"0\"")), "which the rank does not have");
    // Buffer bounds, and what nothing has written.
    has(error_of(exchange("srcbuf=\"i\" srcoff=\"1\"", "srcbuf=\"i\" srcoff=\"2\"")),
        "a.xml:4:1: error: rank 0, block 0, step 0 (s): chunk 2 is outside its buffer i, which has 2");
    has(error_of(exchange("srcbuf=\"i\" srcoff=\"1\"", "srcbuf=\"s\" srcoff=\"0\"")),
        "reads chunk 0 of buffer s, which nothing has written");
    // Wrong sums.
    has(error_of(exchange("srcoff=\"1\"", "srcoff=\"0\"")), "it adds chunk 0 to chunk 1");
    has(error_of(exchange("rrcs", "rcs")), "the contribution of rank 0 is missing");
    CollectiveProgram ring = ring_program(CollectiveOp::all_reduce, 4);
    ring.ranks[1].blocks[0].steps[4].kind = StepKind::receive_add_send;
    has(error_of(ring), "rank 1, block 0, step 4 (rrcs): it adds the contribution of rank");
    CollectiveProgram gather = ring_program(CollectiveOp::all_gather, 4);
    gather.ranks[2].blocks[0].steps[3].target.offset = 1;
    has(error_of(gather), "wrong chunk 1 of rank 2's output: it holds chunk 3 instead of 1");
    // Sizes and peers.
    CollectiveProgram sizes = ring_program(CollectiveOp::all_gather, 4);
    sizes.ranks[3].chunks[1] = 5;
    has(error_of(sizes), "rank 3 has 1 chunks of input and 5 of output, which is no all-gather over 4 ranks");
    CollectiveProgram self = ring_program(CollectiveOp::all_gather, 4);
    self.ranks[1].blocks[0].send_to = 1;
    has(error_of(self), "sends to rank 1, which is no other rank");
    CollectiveProgram counts = ring_program(CollectiveOp::all_gather, 4);
    counts.ranks[0].blocks[0].steps[0].count = 2;
    has(error_of(counts), "it takes 1 chunks, and rank 0, block 0, step 0 (s) sends 2");
}

TEST_CASE("MSCCL files that are none are refused at their line") {
    has(error_of(exchange("coll=\"allreduce\"", "coll=\"custom\"")), "a.xml:1:1: error: 'coll' is 'custom'");
    has(error_of(exchange("type=\"s\"", "type=\"q\"")), "a.xml:4:1: error: 'type' must be one of s, r, rrc");
    has(error_of(exchange("ngpus=\"2\"", "ngpus=\"3\"")), "ngpus is 3, and there are 2 of <gpu>");
    has(error_of(exchange("<gpu id=\"1\"", "<gpu id=\"7\"")), "a.xml:8:1: error: the next <gpu> is 1");
    has(error_of(exchange("<step s=\"1\"", "<step s=\"4\"")), "a.xml:5:1: error: the next <step> of this <tb> is 1");
    has(error_of(exchange("srcoff=\"1\"", "srcoff=\"-1\"")), "'srcoff' of <step> must be a whole number");
    has(error_of(exchange("</algo>", "<copy/></algo>")), "<copy> has no place in <algo>");
    has(error_of(std::string("<algo coll=\"allreduce\"/>")), "there is no <algo> with a <gpu>");
}

TEST_CASE("A list of sends is a program, whose sends wait for their chunk and their link") {
    // All-gather over three ranks in a line, both ways.
    const std::string text = "chunk,from,to\n0,0,1\n1,1,0\n1,1,2\n2,2,1\n0,1,2\n2,1,0\n";
    const CollectiveProgram program = read_sends(text, "s.csv", CollectiveOp::all_gather, 3);
    const Schedule schedule = schedule_of(program, 3000);
    REQUIRE(schedule.messages.size() == 6);
    for (const Message& message : schedule.messages) {
        CHECK(message.bytes == 1000);
        // What goes on from the middle has two to wait for: its chunk, and the link's message before it.
        CHECK(message.waits_for <= 2);
    }
    const auto waits = std::count_if(schedule.messages.begin(), schedule.messages.end(),
                                     [](const Message& message) { return message.waits_for == 2; });
    CHECK(waits == 2);
    const auto failure = [](const std::string& rows, CollectiveOp op) {
        try {
            check_program(read_sends("chunk,from,to,reduce\n" + rows, "s.csv", op, 2));
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(failure("0,1,0,1\n1,0,1,1\n0,0,1,0\n1,1,0,0\n", CollectiveOp::all_reduce).empty());
    CHECK(failure("0,1,0,1\n1,0,1,1\n", CollectiveOp::reduce_scatter).empty());
    has(failure("0,1,0,1\n1,0,1,1\n0,0,1,0\n", CollectiveOp::all_reduce), "wrong chunk 1 of rank 0's output");
    has(failure("0,1,0,1\n1,0,1,1\n0,0,1,1\n", CollectiveOp::all_reduce), "s.csv:4:1: error: rank 1");
    has(failure("1,0,1,0\n", CollectiveOp::all_gather), "reads chunk 1 of buffer o, which nothing has written");
    has(failure("0,0,0,0\n", CollectiveOp::all_gather), "rank 0 sends to itself");
    has(failure("0,0,2,0\n", CollectiveOp::all_gather), "'to' must be a whole number up to 1");
    has(failure("0,0,1,0\n", CollectiveOp::all_gather), "its 1 chunks cannot belong to 2 ranks");
    has(failure("0,0,1,0\n", CollectiveOp::broadcast), "not broadcast");
}
