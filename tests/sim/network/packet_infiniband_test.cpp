// InfiniBand's transport: its congestion control table against closed forms, an incast and its victim over links with credits, and
// what go-back-N sends again without them.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr double kFull = 4160;      // bytes
constexpr double kPacket = 83.2e3;  // ps, at 50 GB/s
constexpr double kLine = 50e9;      // B/s

// One connection, by itself.
struct Connection {
    explicit Connection(const std::string& settings)
        : transport(test::transport("{kind: infiniband" + settings + "}").policy.make()) {
        packet::CongestionSettings run;
        run.packet = kFull;
        run.payload = kMtu;
        run.line_rate = kLine;
        run.base_rtt = 10e6;
        run.max_window = 1e6;
        transport->begin(run);
        transport->start(state);
    }
    void ack(bool marked) {
        packet::Acknowledged news;
        news.now = now;
        news.bytes = kFull;
        news.marked = marked;
        transport->on_ack(state, news);
    }
    // Lets time pass, as the engine does.
    void wait(std::int64_t ps) {
        for (now += ps; state.timer <= now;) {
            transport->on_timer(state, state.timer);
        }
    }
    // Times of sending a packet that it waits before the next.
    [[nodiscard]] double delay() const { return state.rate > 0 ? kLine / state.rate - 1 : 0; }

    std::unique_ptr<packet::Transport> transport;
    packet::CongestionState state;
    std::int64_t now = 1'000'000'000;
};

PacketSpec spec_of(const std::string& settings, double credits) {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport = test::transport("{kind: infiniband" + settings + "}");
    spec.queues.credits = credits * kFull;
    spec.queues.mark_low = spec.queues.mark_high = 4 * kFull;
    return spec;
}

struct Sent {
    std::uint32_t from, to;
    std::uint64_t packets;
};

struct Outcome {
    std::vector<double> done;  // ps
    PacketStatistics statistics;
    PacketReport report;
    [[nodiscard]] double last() const { return *std::max_element(done.begin(), done.end()); }
};

Outcome run_case(const PacketSpec& spec, const std::vector<Sent>& all) {
    const Fabric fabric(test::hosts(16, 4, 1, 50e9, 500e-9));
    Network network(fabric, spec, 1);
    std::uint64_t packets = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        network.send({GpuId(all[i].from), GpuId(all[i].to), all[i].packets * kMtu, 0, i});
        packets += all[i].packets;
    }
    Outcome out;
    for (const std::int64_t at : test::finish(network, all.size())) {
        out.done.push_back(static_cast<double>(at));
    }
    out.statistics = network.statistics();
    out.report = network.report();
    CHECK(network.conserved());
    CHECK(out.statistics.packets_delivered == packets);
    return out;
}

std::uint64_t marks_elsewhere(const Outcome& out, const std::string& port) {
    std::uint64_t marks = 0;
    for (const PortReport& one : out.report.ports) {
        marks += one.name.find(port) == std::string::npos ? one.marks : 0;
    }
    return marks;
}

}  // namespace

TEST_CASE("infiniband: after n marked acknowledgements a connection sends at its link's rate over 1 + n") {
    Connection one("");
    CHECK(one.state.rate == 0);  // as the link allows
    one.ack(false);
    CHECK(one.state.rate == 0);
    for (int n = 1; n <= 127; ++n) {
        one.ack(true);
        CHECK(one.state.rate == doctest::Approx(kLine / (1 + n)));
    }
    one.ack(true);
    CHECK(one.delay() == doctest::Approx(127));  // CCTI_Limit
    Connection faster(", ccti_increase: 5, ccti_limit: 12");
    for (const int index : {5, 10, 12, 12}) {
        faster.ack(true);
        CHECK(faster.delay() == doctest::Approx(index));
    }
    Connection without(", infiniband_control: false");
    without.ack(true);
    CHECK(without.state.rate == 0);
    CHECK(without.state.timer == packet::kNoTimer);
}

TEST_CASE("infiniband: the timer lowers the index by one, to its least") {
    Connection one(", ccti_timer: 10 us, ccti_min: 2, ccti_increase: 3");
    CHECK(one.delay() == doctest::Approx(2));
    CHECK(one.state.timer == packet::kNoTimer);
    one.ack(true);
    one.ack(true);
    CHECK(one.delay() == doctest::Approx(8));
    one.wait(9'999'999);
    CHECK(one.delay() == doctest::Approx(8));
    for (const int index : {7, 6, 5, 4, 3, 2, 2}) {
        one.wait(10'000'000);
        CHECK(one.delay() == doctest::Approx(index));
    }
    CHECK(one.state.timer == packet::kNoTimer);
    one.ack(true);  // and it runs anew from the next mark on
    one.wait(9'999'999);
    CHECK(one.delay() == doctest::Approx(5));
    one.wait(1);
    CHECK(one.delay() == doctest::Approx(4));
}

TEST_CASE("infiniband: where a share p of packets is marked the index settles where marks and timer balance") {
    // A rate of line / (1 + i) brings p / ((1 + i) T) marks a second, T being the time of a packet, and the timer takes 1 / timer.
    for (const int one_in : {4, 10}) {
        CAPTURE(one_in);
        Connection one(", ccti_timer: 20 us");
        double sum = 0;
        constexpr int kAll = 40'000;
        for (int i = 0; i < kAll; ++i) {
            one.ack(i % one_in == 0);
            one.wait(std::llround(kPacket * (1 + one.delay())));
            sum += i >= kAll / 2 ? one.delay() : 0;
        }
        CHECK(sum / (kAll / 2) == doctest::Approx(20e6 / (one_in * kPacket) - 1).epsilon(0.05));
    }
}

TEST_CASE("infiniband: the quadratic table") {
    Connection one(", cct: quadratic");
    for (int n = 1; n <= 127; ++n) {
        one.ack(true);
        CHECK(one.delay() == doctest::Approx(std::floor(7 * n * n / (95.0 * 95.0) / 0.218)));
    }
}

TEST_CASE("infiniband: one acknowledgement tells of 16 KiB of payload, four packets of 4 KiB") {
    const Outcome out = run_case(spec_of("", 100), {{0, 1, 400}});
    CHECK(out.last() == doctest::Approx(401 * kPacket + 2 * 500e3));
    CHECK(out.statistics.control_hops == 2 * 100);
    PacketSpec each = spec_of("", 100);
    each.nic.acknowledge_every = 1;
    CHECK(run_case(each, {{0, 1, 400}}).statistics.control_hops == 2 * 400);
}

namespace {

// Three hosts of a leaf and one from elsewhere send to the fourth one of that leaf; beside the last one, over the same link into the
// leaf, another sends to an idle host.
const std::vector<Sent> kHotSpot = {{1, 0, 2000}, {2, 0, 2000}, {3, 0, 2000}, {4, 0, 2000}, {8, 1, 2000}};

double waiting_in(const Outcome& out, const std::string& port) {
    double bytes = 0;
    for (const PortReport& one : out.report.ports) {
        bytes += one.name.find(port) != std::string::npos ? one.mean_queue_bytes : 0;
    }
    return bytes;
}

}  // namespace

TEST_CASE("infiniband: over links with credits nothing is lost, and control frees the victim of a hot spot") {
    const Outcome free = run_case(spec_of(", infiniband_control: false", 16), kHotSpot);
    // Four share the receiver's link, and the victim is as slow as the one whose packets stand in its way.
    CHECK(free.last() == doctest::Approx(4 * 2000 * kPacket).epsilon(0.03));
    CHECK(free.done.back() == doctest::Approx(free.last()).epsilon(0.03));
    CHECK(waiting_in(free, "spine 0 to leaf 0") > 20 * kFull);
    for (const char* settings : {"", ", ccti_timer: 4 us", ", ccti_timer: 4 us, cct: quadratic"}) {
        CAPTURE(std::string(settings));
        const Outcome out = run_case(spec_of(settings, 16), kHotSpot);
        CHECK(out.statistics.drops == 0);
        CHECK(out.statistics.retransmissions == 0);
        CHECK(out.done.back() < 1.2 * 2000 * kPacket);  // as if alone
        CHECK(waiting_in(out, "spine 0 to leaf 0") < 2 * kFull);
        CHECK(out.last() >= 4 * 2000 * kPacket);
    }
}

TEST_CASE("infiniband: ports without credits are victims of congestion and do not mark") {
    const Outcome roots = run_case(spec_of(", infiniband_control: false", 16), kHotSpot);
    CHECK(roots.statistics.ecn_marks > 0);
    CHECK(marks_elsewhere(roots, "to nic") == 0);
    // Other transports' marks are of any queue.
    PacketSpec spec = spec_of("", 16);
    spec.transport = test::transport("{kind: window}");
    CHECK(marks_elsewhere(run_case(spec, kHotSpot), "to nic") > 0);
}

TEST_CASE("infiniband: without credits go-back-N sends again what queues lose") {
    std::vector<Sent> incast;
    for (std::uint32_t i = 4; i < 8; ++i) {
        incast.push_back({i, 0, 400});
    }
    PacketSpec spec = spec_of("", 0);
    CHECK(problems_of(spec).empty());
    CHECK(notes_of(spec).front().find("over links without credits") != std::string::npos);
    CHECK(notes_of(spec_of("", 16)).empty());
    spec.queues.size = 20 * kFull;
    const Outcome out = run_case(spec, incast);
    CHECK(out.statistics.drops > 0);
    CHECK(out.statistics.retransmissions >= out.statistics.drops);
    spec.paths.policy.choose("spray");
    CHECK(problems_of(spec).front().find("go-back-n needs packets in order") != std::string::npos);
}
