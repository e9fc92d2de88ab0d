// Execution plans of MSCCL++: what puts, gets, signals and waits become, and plans that cannot be right.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/programs/program.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

using namespace orrery;

namespace {

using Json = nlohmann::json;

// Channels and buffers of rank r are numbered by peer, its own left out.
std::uint32_t number_of(std::uint32_t rank, std::uint32_t peer) {
    return peer - (peer > rank ? 1 : 0);
}

Json local(const char* type, std::uint32_t index) {
    return {{"type", type}, {"index", index}, {"size", 1}};
}

// Remote buffers: the input of each peer, then the scratch of each.
Json remote(std::uint32_t rank, std::uint32_t ranks, std::uint32_t peer, bool scratch, std::uint32_t index) {
    return {{"buffer_id", number_of(rank, peer) + (scratch ? ranks - 1 : 0)}, {"index", index}, {"size", 1}};
}

Json synchronise(const char* name, const char* type, std::uint32_t ranks) {
    Json ids = Json::array();
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
        ids.push_back(i);
    }
    return {{"name", name}, {"channel_ids", ids}, {"channel_type", type}};
}

using Blocks = std::vector<Json>;  // ops of each thread block

Json plan_of(std::uint32_t ranks, const char* type, const std::function<Blocks(std::uint32_t rank)>& blocks) {
    Json plan = {{"name", "mine"}, {"collective", "allreduce"}, {"protocol", "Simple"}, {"inplace", true}};
    plan["gpus"] = Json::array();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        Json gpu = {{"id", rank}, {"input_chunks", ranks}, {"output_chunks", ranks}, {"scratch_chunks", ranks}};
        Json peers = Json::array();
        Json numbers = Json::array();
        Json buffers = Json::array();
        Json places = Json::array();
        for (const char* buffer : {"i", "s"}) {
            for (std::uint32_t peer = 0; peer < ranks; ++peer) {
                if (peer != rank) {
                    places.push_back(buffers.size());
                    buffers.push_back({{"rank", peer}, {"type", buffer}, {"access_channel_types", {type}}});
                }
            }
        }
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
            if (peer != rank) {
                numbers.push_back(peers.size());
                peers.push_back(peer);
            }
        }
        gpu["threadblocks"] = Json::array();
        for (const Json& ops : blocks(rank)) {
            gpu["threadblocks"].push_back(
                {{"id", gpu["threadblocks"].size()},
                 {"ops", ops},
                 {"channels", Json::array({{{"channel_type", type}, {"channel_ids", numbers}}})},
                 {"remote_buffer_refs",
                  Json::array({{{"access_channel_type", type}, {"remote_buffer_ids", places}}})}});
        }
        gpu["channels"] = Json::array({{{"channel_type", type}, {"connected_to", peers}}});
        gpu["remote_buffers"] = buffers;
        plan["gpus"].push_back(gpu);
    }
    return plan;
}

// Every rank puts each part to who adds it up, and then its sum to all.
Json by_puts(std::uint32_t ranks) {
    return plan_of(ranks, "port", [&](std::uint32_t rank) {
        Json ops = Json::array();
        const auto to_all = [&](const std::function<Json(std::uint32_t)>& from, bool scratch, std::uint32_t offset) {
            for (std::uint32_t peer = 0; peer < ranks; ++peer) {
                if (peer != rank) {
                    ops.push_back({{"name", "put"},
                                   {"src_buff", Json::array({from(peer)})},
                                   {"dst_buff", Json::array({remote(rank, ranks, peer, scratch, offset)})},
                                   {"channel_ids", Json::array({number_of(rank, peer)})},
                                   {"channel_type", "port"}});
                }
            }
            ops.push_back(synchronise("signal", "port", ranks));
            ops.push_back(synchronise("wait", "port", ranks));
        };
        to_all([](std::uint32_t peer) { return local("i", peer); }, true, rank);
        Json sources = Json::array({local("i", rank)});
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
            if (peer != rank) {
                sources.push_back(local("s", peer));
            }
        }
        ops.push_back({{"name", "re"}, {"src_buff", sources}, {"dst_buff", Json::array({local("i", rank)})}});
        to_all([&](std::uint32_t) { return local("i", rank); }, false, rank);
        ops.push_back(synchronise("flush", "port", ranks));
        return Blocks{ops};
    });
}

// Every rank reads its part of all others, adds it up, and reads the sums of the others; these in a second thread block where `two`.
Json by_reads(std::uint32_t ranks, bool two) {
    return plan_of(ranks, "memory", [&](std::uint32_t rank) {
        Json first = Json::array();
        Json sources = Json::array({local("i", rank)});
        Json gets = Json::array();
        for (std::uint32_t peer = 0; peer < ranks; ++peer) {
            if (peer != rank) {
                sources.push_back(remote(rank, ranks, peer, false, rank));
                gets.push_back({{"name", "get"},
                                {"src_buff", Json::array({remote(rank, ranks, peer, false, peer)})},
                                {"dst_buff", Json::array({local("i", peer)})},
                                {"channel_type", "memory"}});
            }
        }
        first.push_back({{"name", "rre"},
                         {"src_buff", sources},
                         {"dst_buff", Json::array({local("i", rank)})},
                         {"channel_type", "memory"}});
        first.push_back({{"name", "nop"}});
        first.push_back(synchronise("signal", "memory", ranks));
        first.push_back(synchronise("wait", "memory", ranks));
        const Json barrier = {{"name", "barrier"}, {"barrier_id", 0}, {"num_threadblocks", 2}};
        Json second = Json::array();
        if (two) {
            first.push_back(barrier);
            second.push_back(barrier);
        }
        Json& last = two ? second : first;
        last.insert(last.end(), gets.begin(), gets.end());
        return two ? Blocks{first, second} : Blocks{first};
    });
}

CollectiveProgram checked(const Json& plan) {
    CollectiveProgram program = read_msccl_plus(plan.dump(1), "plan.json");
    check_program(program);
    return program;
}

Schedule schedule_of(const CollectiveProgram& program) {
    ScheduleBuilder builder;
    add_program(builder, program, 1 << 20);
    return builder.finish();
}

// Messages with what they wait for by ends: those of two programs that do the same are the same.
std::multiset<std::string> described(const Schedule& schedule) {
    std::multiset<std::string> out;
    for (const Message& message : schedule.messages) {
        std::multiset<std::string> releases;
        for (std::uint32_t k = 0; k < message.release_count; ++k) {
            const Message& other = schedule.messages[schedule.releases[message.first_release + k]];
            releases.insert(fmt::format("{}>{}", other.from, other.to));
        }
        out.insert(fmt::format("{}>{} {} B waits {} reduces {} releases {}", message.from, message.to, message.bytes,
                               message.waits_for, static_cast<int>(message.reduces), fmt::join(releases, " ")));
    }
    return out;
}

std::string error_of(const Json& plan) {
    try {
        (void)checked(plan);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a plan of puts has the messages of the same program of MSCCL") {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/scenarios/collective/all-pairs-8.xml";
    const Schedule schedule = schedule_of(checked(by_puts(8)));
    // The same messages; in MSCCL's a thread block's receives also wait for what it has sent.
    const auto ends = [](const Schedule& one) {
        std::multiset<std::string> out;
        for (const Message& message : one.messages) {
            out.insert(fmt::format("{}>{} {} B", message.from, message.to, message.bytes));
        }
        return out;
    };
    CHECK(schedule.messages.size() == 2 * 8 * 7);
    CHECK(ends(schedule) == ends(schedule_of(read_msccl(read_input(file), file))));
    // A sum goes to a rank when seven parts have arrived, and what went there before.
    for (const Message& message : schedule.messages) {
        CHECK((message.waits_for == 0 || message.waits_for == 8));
    }
    CHECK(std::count_if(schedule.messages.begin(), schedule.messages.end(),
                        [](const Message& message) { return message.waits_for == 8; }) == 8 * 7);
    // And what is written of it as XML is the same again.
    const CollectiveProgram again = read_msccl(write_msccl(checked(by_puts(4))), "again.xml");
    check_program(again);
    CHECK(described(schedule_of(again)) == described(schedule_of(checked(by_puts(4)))));
}

TEST_CASE("a plan of reads sends what is read, after its owner has signalled that it is there") {
    for (const bool two : {false, true}) {
        const Schedule schedule = schedule_of(checked(by_reads(4, two)));
        CHECK(schedule.messages.size() == 2 * 4 * 3);
        std::size_t sums = 0;
        std::size_t waiting = 0;
        for (const Message& message : schedule.messages) {
            sums += message.reduces;
            // A sum goes on when what it adds up has arrived.
            waiting += message.reduces == 0 && message.waits_for > 0 ? 1 : 0;
        }
        CHECK(sums == 4 * 3);
        CHECK(waiting == 4 * 3);
    }
}

TEST_CASE("a plan that cannot be right is refused with its gpu, thread block and operation") {
    const auto says = [](Json plan, const std::function<void(Json&)>& change, const std::string& said) {
        change(plan);
        const std::string error = error_of(plan);
        CHECK_MESSAGE(error.find(said) != std::string::npos, error);
    };
    const auto ops = [](Json& plan, int gpu) -> Json& { return plan["gpus"][gpu]["threadblocks"][0]["ops"]; };
    const Json puts = by_puts(4);
    says(
        puts, [&](Json& plan) { ops(plan, 1).erase(3); }, "it waits for ever: gpu 1 sends no more signals");
    says(
        puts, [&](Json& plan) { ops(plan, 2).erase(4); }, "nothing waits for its signal to gpu 2");
    says(
        puts, [&](Json& plan) { ops(plan, 0)[5]["src_buff"].erase(2); }, "the contribution of rank 2 is missing");
    says(
        puts, [&](Json& plan) { ops(plan, 0)[5]["src_buff"][2]["index"] = 1; }, "a second time");
    says(
        puts, [&](Json& plan) { ops(plan, 0)[0]["dst_buff"][0]["buffer_id"] = 9; },
        "gpu 0, threadblock 0, op 0 (put): its 'remote_buffer_refs' have no number 9 of type port");
    says(
        puts, [&](Json& plan) { ops(plan, 3)[5]["name"] = "glres"; },
        "gpu 3, threadblock 0, op 5 (glres): it is not read here");
    says(
        puts, [&](Json& plan) { ops(plan, 3)[5]["dst_buff"][0]["index"] = 4; }, "outside its buffer i");
    says(
        puts, [&](Json& plan) { ops(plan, 3)[5]["dst_buff"][0]["index"] = "x"; }, "'index', a whole number");
    says(
        puts, [](Json& plan) { plan["protocol"] = "LL"; }, "plans of protocol Simple are read");
    says(
        puts, [](Json& plan) { plan["collective"] = "broadcast"; }, "'collective' is 'broadcast'");
    says(
        puts, [](Json& plan) { plan.erase("gpus"); }, "the plan has no list 'gpus'");
    says(
        by_reads(4, true), [](Json& plan) { plan["gpus"][2]["threadblocks"][1]["ops"].erase(0); },
        "other thread blocks never come to the barrier");
    // Sums that are read before they are there.
    says(
        by_reads(4, false),
        [&](Json& plan) {
            for (int gpu = 0; gpu < 4; ++gpu) {
                Json& own = ops(plan, gpu);
                own.erase(3);
                own.erase(2);
            }
        },
        "wrong chunk");
    CHECK_THROWS_AS((void)read_msccl_plus("{\"gpus\": [", "plan.json"), ConfigError);
}
