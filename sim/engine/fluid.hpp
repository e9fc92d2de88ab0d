#pragma once
// Fluid resource sharing: weighted max-min fairness, recomputed only where something changed.
//
// Claims: at every instant the rates are max-min fair: no activity's rate can be raised without lowering that of one
// with an equal or lower rate, and no resource carries more than its capacity. Completion times are exact to the
// picosecond rounding of each completion.
//
// How it is fast, without approximation:
//   * activities with equal demands are one class with one rate and one completion entry;
//   * changes are settled once an instant; an equal replacement of a finished activity needs no solve;
//   * a resource that could carry all its users at their solo rates never binds, and couples nothing;
//   * a change is repaired locally: the classes it touches are filled again with all others fixed, and whoever is then
//     left without a bottleneck joins, until nobody is;
//   * where that spreads too far, only the classes at or above the fill level of the change, connected through binding
//     resources, are filled again: an arrival or departure at level r leaves all rates below r as they were;
//   * a capacity that changes, the rare case, has all filled again that is connected to it through binding resources.
// Optionally completions are grouped in a window (off by default; each handling is late by at most the window, and what
// has finished holds its share until then, so delays can add up over successive completions).
//
// Sources: Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2 (progressive filling); the level argument is
// proved in the comment at lower_bound_level().
// Validated by tests/sim/engine/fluid_test.cpp (closed forms, brute-force max-min, conservation) and
// tests/sim/network/simgrid_test.cpp (SimGrid at tightened precision).

#include "sim/engine/engine.hpp"
#include "sim/engine/resource_model.hpp"

#include <map>
#include <unordered_map>
#include <vector>

namespace orrery::inline engine {

class FluidModel final : public ResourceModel, public EventHandler {
  public:
    /// `window`: each completion is handled at most this late, together with others. Zero: exact.
    explicit FluidModel(Engine& engine, SimTime window = SimTime());

    ResourceId add_resource(double capacity) override;
    [[nodiscard]] double capacity(ResourceId resource) const override;
    void set_capacity(ResourceId resource, double capacity) override;
    ClassId hold(std::span<const Demand> demands, double rate_bound = kUnbounded) override;
    void release(ClassId id) override;
    void start(ClassId id, double amount, ListenerId listener, std::uint64_t token) override;
    [[nodiscard]] ResourceReport report(std::size_t links) const override;
    void require_conserved() const override;

    void on_event(std::uint32_t datum) override;
    void settle() override;

    /// Current rate of each activity of the class, in units per second.
    [[nodiscard]] double rate(ClassId id) const { return classes_[id.value()].rate; }
    /// Sum of the rates times weights on a resource, in units per second.
    [[nodiscard]] double load(ResourceId resource) const;
    /// Units that have passed a resource so far, in its own units.
    [[nodiscard]] double carried(ResourceId resource) const;

    /// Counters for benchmarks: solves done and classes filled in them.
    [[nodiscard]] std::uint64_t solves() const { return solves_; }
    [[nodiscard]] std::uint64_t classes_filled() const { return classes_filled_; }

  private:
    struct Slot {  ///< one demand of a class, with its place in the resource's list of users
        std::uint32_t resource;
        std::uint32_t position;
        double weight;
    };
    struct Member {
        double threshold;  ///< value of the class's served amount at which it is done
        std::uint64_t token;
        ListenerId listener;
    };
    struct Class {
        // What the fills read of every user of a resource comes first, in one line of the cache.
        double rate = 0;
        double new_rate = 0;               ///< found by the fill under way
        double count = 0;                  ///< members, as of the solve under way
        std::uint32_t bottleneck = kNone;  ///< the saturated resource that holds it back; none: its own bound
        std::uint32_t new_bottleneck = kNone;
        std::uint32_t in_set = 0;  ///< the set of classes being filled that it was last in
        bool unfrozen = false;     ///< still rising in the fill under way
        bool touched = false;
        bool attached = false;
        std::uint32_t capacities = 0;  ///< number of the capacity change that `solo_rate` is from
        std::uint32_t first_slot = 0;
        std::uint32_t slot_count = 0;
        double rate_bound = 0;
        double solo_rate = 0;  ///< rate when alone: the bound and capacity/weight of each resource
        double served = 0;     ///< units served to each member since the class was last empty
        double total = 0;      ///< units served to all members since then
        std::int64_t served_at = 0;
        double solved_count = 0;  ///< members at the last solve
        std::uint32_t holds = 0;
        std::uint32_t heap_position = kNone;
        std::uint32_t next_same_hash = kNone;
        std::uint64_t hash = 0;
        std::vector<Member> members;  ///< a heap on threshold
    };
    struct User {
        std::uint32_t owner;  ///< class
        std::uint32_t slot;
        double weight;
    };
    struct Resource {
        double capacity = 0;
        double potential = 0;  ///< sum of weight * count * solo rate of its users
        double carried = 0;    ///< units carried for classes that have left
        std::uint32_t in_set = 0;
        std::uint32_t held_back = 0;  ///< classes whose bottleneck it is
        // Of the fill under way: classes still rising, their weight, what is left for them, where it saturated.
        std::uint32_t unfrozen = 0;
        double free = 0;
        double weight = 0;
        double level = -1;
        std::vector<User> users;
    };
    struct Changed {             ///< a resource whose capacity has changed
        std::int64_t since = 0;  ///< ps, of the present capacity
        double area = 0;         ///< units that it could have carried before
    };
    struct Level {  ///< an entry of the filling heap: a resource saturates, or a class meets its own bound
        double level;
        std::uint32_t index;
        bool is_class;
    };
    struct Completion {  ///< the next one of a class; here and not in the class, because the heap compares many
        std::int64_t at;
        std::uint32_t id;
        friend bool operator<(const Completion& a, const Completion& b) {
            return a.at < b.at || (a.at == b.at && a.id < b.id);
        }
    };
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

    [[nodiscard]] std::uint32_t allocate_slots(std::span<const Demand> demands);
    void free_class(std::uint32_t id);
    void attach(std::uint32_t id);
    void detach(std::uint32_t id);
    void touch(std::uint32_t id);
    void advance(Class& c);
    void update_completion(std::uint32_t id);
    [[nodiscard]] bool binding(const Resource& resource) const;
    [[nodiscard]] double lower_bound_level(const Resource& resource) const;
    [[nodiscard]] double solo_rate(const Class& c) const;
    void apply_capacities();
    void fill_after_capacities();
    void solve();
    void set_bottleneck(Class& c, std::uint32_t resource);
    void start_set();
    void include_resource(std::uint32_t index);
    void include_class(std::uint32_t id);
    [[nodiscard]] bool repair();
    [[nodiscard]] bool include_violators();
    void fill_from_level();
    void fill();
    void freeze(std::uint32_t id, double level, std::uint32_t bottleneck);
    void schedule_wake();

    void heap_update(std::uint32_t id, std::int64_t key);
    void heap_remove(std::uint32_t id);
    void sift_up(std::uint32_t position);
    void sift_down(std::uint32_t position);
    void place_at(std::uint32_t position, const Completion& entry);

    void hold_again(ClassId id) override { ++classes_[id.value()].holds; }
    double withdraw(const ActivityHandle& activity) override;
    ClassId hold_bounded(ClassId id, double rate_bound) override;

    Engine& engine_;
    std::uint32_t handler_;
    SimTime window_;
    std::vector<Resource> resources_;
    std::vector<Class> classes_;
    std::vector<std::uint32_t> free_classes_;
    std::vector<Slot> slots_;
    std::vector<std::vector<std::uint32_t>> free_slots_;  ///< by length
    std::unordered_map<std::uint64_t, std::uint32_t> by_hash_;
    std::vector<Completion> heap_;
    std::vector<std::uint32_t> touched_;
    std::vector<std::uint32_t> seeds_;
    std::vector<std::uint32_t> affected_resources_;
    std::vector<std::uint32_t> affected_classes_;
    std::vector<Level> levels_;
    std::vector<Level> raised_;
    std::vector<std::uint32_t> finished_;
    std::map<std::uint32_t, Changed> changed_;   ///< by resource
    std::vector<std::uint32_t> new_capacities_;  ///< resources whose capacity changed at this instant
    std::vector<std::uint32_t> reshaped_;        ///< resources that their users share anew because of that
    std::uint32_t capacity_changes_ = 0;
    std::uint32_t set_epoch_ = 0;
    std::size_t attached_count_ = 0;
    std::size_t rising_ = 0;  ///< classes not frozen yet in the fill under way
    std::uint32_t repair_pause_ = 0;
    std::uint32_t repair_backoff_ = 1;
    std::uint32_t wake_generation_ = 0;
    std::int64_t wake_at_ = -1;  ///< time of the wake event in the queue that still counts; negative: none
    std::uint64_t solves_ = 0;
    std::uint64_t classes_filled_ = 0;
};

}  // namespace orrery::inline engine
