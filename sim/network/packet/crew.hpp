#pragma once
// Threads that run the parts of a network side by side.
//
// Claims: parts run in strides, each a share of a link's latency (parts.hpp). A part begins a stride when all others have ended the
// one that is a latency before it, and takes what they sent in that; so it may be ahead of them, and waits only where it has been faster
// for long. After a round of strides all meet and go on from the first event of all. Which thread runs a part, and whether several do
// so at once, changes nothing.
// Where a completion may bring new messages, no part may run past it: a round is one stride of a whole latency then, and while some
// flow lacks so few packets that it could end within it, one thread runs all parts in turn, each up to the next event of the others.

#include "sim/network/packet/partition.hpp"

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace orrery::network::packet {

class Crew {
  public:
    using Team = std::vector<std::unique_ptr<Partition>>;
    /// A thread a part but the first, which the caller's runs. `watcher` is told now and then, between steps.
    Crew(const Setup& setup, Team& parts, const Parts& division, Watcher& watcher);
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    /// Runs all parts to `limit` (included); unless `ahead`, or to the end of the first instant at which messages complete.
    void run(std::int64_t limit, bool ahead);
    /// ps, of the first event of all parts. What left a part is with another between runs.
    [[nodiscard]] std::int64_t next_time() const;
    /// Strides that threads have taken side by side.
    [[nodiscard]] std::uint64_t side_by_side() const { return side_by_side_; }

  private:
    // What a part tells the others at the end of a round; two take turns, so that one is read while the other is written.
    struct alignas(64) Told {
        std::int64_t next = 0;  ///< ps, its first event and what it has sent
        std::uint64_t events = 0;
        std::uint64_t delivered = 0;
        double payload = 0;
        bool close = false;   ///< flows could end within a latency
        bool failed = false;  ///< see failures_
    };
    // Strides that a part has ended, and whose boxes from the others it has emptied.
    struct alignas(64) Progress {
        std::atomic<std::uint32_t> ended{0};
        std::uint32_t emptied = 0;
        std::atomic<int> processor{-1};  ///< of its thread, when it last looked
    };
    [[nodiscard]] std::int64_t first(std::uint32_t turn) const;
    [[nodiscard]] bool any(std::uint32_t turn, bool Told::*what) const;
    void tell(std::uint32_t part, std::uint32_t turn);
    void step(std::uint32_t part, std::int64_t end);
    void leave(std::uint32_t part, std::int64_t end);
    void enter(std::uint32_t part, std::uint32_t strides);
    void in_turn(std::int64_t end);
    bool one_by_one(std::int64_t end);
    void meet_alone();
    void together(std::uint32_t part);
    void spread(std::uint32_t part);
    void round(std::uint32_t part, std::int64_t begin);
    void wait_for_others(std::uint32_t part, std::uint32_t strides) const;
    void meet();
    void start();
    void work(std::uint32_t part);
    void look(std::uint32_t turn);
    bool hand_over();
    void rethrow();
    [[nodiscard]] std::int64_t end_of_step(std::int64_t begin) const;

    const Setup& setup_;
    Team& parts_;
    std::int64_t lookahead_;
    Watcher& watcher_;
    std::vector<std::array<Told, 2>> told_;
    std::vector<Progress> progress_;
    std::vector<std::exception_ptr> failures_;
    std::uint32_t turn_ = 0;
    std::int64_t limit_ = 0;
    bool ahead_ = false;
    std::uint64_t side_by_side_ = 0;
    std::uint64_t watch_next_;
    alignas(64) std::atomic<std::uint32_t> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> met_{0};
    alignas(64) std::atomic<std::uint32_t> started_{0};
    std::atomic<bool> over_{false};
    std::vector<std::thread> threads_;
};

}  // namespace orrery::network::packet
