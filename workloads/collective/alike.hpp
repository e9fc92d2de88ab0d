#pragma once
// Messages that must go alike: which of them start together and have the same rate at every instant.
//
// Claims: messages are put into classes and links into cells such that all messages of a class have the same size, bound and
// latency, wait for messages of the same class and use links of the same cells with the same shares, and all links of a cell
// have the same capacity and carry equally many messages of each class (an equitable partition of messages and links). Then the
// max-min fair rates of the classes, each link standing for its cell, are those of the messages: no link carries more than it can,
// and each message is held back where its class is. Max-min fair rates are unique, so that it is the allocation; and messages that
// are equally large at the start stay so.
// How it is found: links begin as equal where their capacities are; they are told apart by the messages that they carry, and
// messages by their links, until nothing more is told apart (colour refinement). Hashes find the classes; the conditions are then
// counted link by link, so that nothing rests on hashes. Neither messages nor their paths are stored.
// Where the fabric is irregular, or hashes choose paths, no two messages are alike: nothing is returned.
// Sources: Kersting, Mladenov, Garnett, Grohe, "Power Iterated Color Refinement", AAAI 2014; Bertsekas and Gallager, Data
// Networks, 2nd ed., section 6.5.2 (uniqueness).
// Validated by tests/workloads/alike_test.cpp: folded = unfolded.

#include "sim/network/placement.hpp"
#include "workloads/collective/message_run.hpp"

#include <functional>
#include <optional>

namespace orrery::collective {

/// Messages of one size, as they are generated: each rank sends its own once, or again and again in step with others.
struct MessageStream {
    /// Number of a message, its sender, its receiver (ranks).
    using Visit = std::function<void(std::uint64_t number, std::uint32_t from, std::uint32_t to)>;
    std::function<void(const Visit& visit)> for_each;
    std::uint64_t size = 0;
    double bytes = 0;
    /// The message that brings what this one sends on; null: they all start at once.
    std::function<std::uint64_t(std::uint64_t number)> before = nullptr;
};

struct MessageClass {
    std::vector<Demand> demands;  ///< of one link for each cell: what all messages of the class put on it
    double bound = 0;             ///< B/s of one message
    double latency = 0;           ///< s
    std::uint64_t count = 0;      ///< messages
    std::uint32_t before = 0;     ///< class of the messages that bring what these send on
};

/// Nothing where the classes would be more than a quarter of the messages.
[[nodiscard]] std::optional<std::vector<MessageClass>> alike_messages(const Fabric& fabric, const Placement& placement,
                                                                      const MessageStream& stream, PathChoice paths);

}  // namespace orrery::collective
