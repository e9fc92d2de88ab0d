#pragma once
// Sequences that wait for a slot for their adapter, and adapters on their way from host memory.

#include "workloads/serving/fleet/fleet.hpp"

namespace orrery::serving {

class AdapterListener {
  public:
    virtual ~AdapterListener() = default;
    /// The adapter of a sequence is here: it is the newest waiting one of its replica.
    virtual void adapter_ready(std::uint32_t replica, std::uint32_t sequence) = 0;
};

class AdapterLoads {
  public:
    /// All arguments outlive this.
    AdapterLoads(Fleet& fleet, AdapterListener& listener, bool timeline, ServiceResult& result)
        : fleet_(fleet), listener_(listener), timeline_(timeline), result_(result) {}
    void begin(Dispatcher& dispatcher);

    /// True when the newest waiting sequence of a replica needs no adapter or has it; otherwise it is set aside.
    [[nodiscard]] bool ready(std::uint32_t replica, std::uint32_t sequence);
    /// Sequences have left a replica: the adapters that were wanted first get the slots that nobody uses any more.
    void fill(std::uint32_t replica);
    void on_task(const Token& token);
    /// A replica fails, with all that waits there.
    void fail(std::uint32_t replica);

  private:
    struct Waiter {
        std::uint32_t sequence;
        SimTime since;
    };
    struct Queue {
        std::deque<std::uint32_t> without_slot;                ///< adapters, in the order in which they were wanted
        std::map<std::uint32_t, std::vector<Waiter>> waiters;  ///< by adapter
        std::uint32_t coming = 0;                              ///< adapters
    };
    struct Load {
        std::uint32_t replica = 0;
        std::uint32_t adapter = 0;
        bool lost = false;
        bool under_way = false;
    };
    void bring(std::uint32_t replica, std::uint32_t adapter);
    void note(std::uint32_t replica);

    Fleet& fleet_;
    AdapterListener& listener_;
    bool timeline_;
    ServiceResult& result_;
    Dispatcher* dispatcher_ = nullptr;
    std::vector<Queue> queues_;  ///< by replica
    std::vector<Load> loads_;
    std::vector<std::uint32_t> free_;
};

}  // namespace orrery::serving
