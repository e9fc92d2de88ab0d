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
//   * nor does one beside which all its users have the same narrower one (a GPU's PCIe link before its NIC): fills pass it over;
//   * the classes that one resource holds back have one rate, its level, and one virtual time: the units that each has been
//     served since. They finish in the order of their virtual finishes, so that a change of the level moves one completion
//     and not one for each class;
//   * a change is filled in one pass over rising levels that opens a resource's classes only where the change reaches
//     them: what lies below or beside it is neither filled nor read (see fluid_fill.cpp).
// Optionally completions are grouped in a window (off by default; each handling is late by at most the window, and what
// has finished holds its share until then, so delays can add up over successive completions).
//
// Sources: Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2 (progressive filling); Parekh and Gallager, "A
// generalized processor sharing approach to flow control", IEEE/ACM ToN 1993 (virtual time). That one pass suffices is
// shown in the comment at the head of fluid_fill.cpp.
// Validated by tests/sim/engine/fluid_test.cpp (closed forms, brute-force max-min, conservation) and
// tests/sim/network/simgrid_test.cpp (SimGrid at tightened precision).

#include "sim/base/huge_pages.hpp"
#include "sim/base/kept_tables.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/list_pool.hpp"
#include "sim/engine/resource_model.hpp"

#include <array>
#include <map>
#include <vector>

namespace orrery::engine {

class FluidModel final : public ResourceModel, public EventHandler {
  public:
    /// `window`: each completion is handled at most this late, together with others. Zero: exact.
    explicit FluidModel(Engine& engine, SimTime window = SimTime());

    ResourceId add_resource(double capacity) override;
    ResourceId add_resources(std::span<const double> capacities) override;
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
    [[nodiscard]] double rate(ClassId id) const { return rate_of(classes_[id.value()]); }
    /// Sum of the rates times weights on a resource, in units per second.
    [[nodiscard]] double load(ResourceId resource) const;
    /// Units that have passed a resource so far, in its own units.
    [[nodiscard]] double carried(ResourceId resource) const;

    /// Counters for benchmarks: solves done and classes whose rate was sought anew in them.
    [[nodiscard]] std::uint64_t solves() const { return solves_; }
    [[nodiscard]] std::uint64_t classes_filled() const { return classes_filled_; }

  private:
    struct Slot {  ///< one demand of a class, with its place in the resource's list of users
        std::uint32_t resource;
        std::uint32_t position : 31;
        std::uint32_t passed : 1;  ///< fills pass the resource over: another of the class is always full first
        double weight;
    };
    struct Member {
        double threshold;  ///< value of the class's served amount at which it is done
        std::uint64_t token;
        ListenerId listener;
    };
    struct Class {
        // What the fills read of every class comes first, in one line of the cache.
        double count = 0;                  ///< members, as of the solve under way
        double rate = 0;                   ///< where no resource holds it back; else it is the resource's level
        std::uint32_t bottleneck = kNone;  ///< the saturated resource that holds it back; none: its own bound
        std::uint32_t place = kNone;       ///< among those that its bottleneck holds back
        std::uint32_t first_slot = 0;
        std::uint32_t slot_count = 0;
        bool rising = false;    ///< without a bottleneck, in the fill under way
        bool reshaped = false;  ///< what it can have alone has changed
        bool touched = false;
        bool attached = false;
        std::uint32_t capacities = 0;  ///< number of the capacity change that `solo_rate` is from
        double rate_bound = 0;
        double solo_rate = 0;  ///< rate when alone: the bound and capacity/weight of each resource
        double served = 0;     ///< units served to each member since the class was last empty
        double total = 0;      ///< units served to all members since then
        double joined = 0;     ///< virtual time of its bottleneck that `served` is from
        std::int64_t served_at = 0;
        double solved_count = 0;  ///< members at the last solve
        std::uint32_t holds = 0;
        std::uint32_t heap_position = kNone;
        std::uint32_t next_same_hash = kNone;  ///< with the same bucket of the table
        std::uint32_t hash = 0;
        ListPool<Member>::List members;  ///< a heap on threshold
    };
    struct User {  ///< of a resource; a fill reads all of them, and of few more than this
        std::uint32_t slot;
        std::uint32_t bottleneck;  ///< of its class
        double use;                ///< weight x members, as of the solve under way
    };
    struct Held {  ///< a class that a resource holds back, with what fills read of it
        static constexpr std::size_t kNear =
            6;          ///< from leaf to leaf between GPUs behind PCIe: five beside the own one
        double finish;  ///< virtual time at which the first of its members is done
        double use;     ///< of each resource in `near`
        std::uint32_t owner;
        bool plain;    ///< its demands beside that resource are `near`, all with one weight; else they are in its slots
        bool bounded;  ///< it may meet its own bound before its bottleneck saturates
        std::array<std::uint32_t, kNear> near;
        friend bool operator<(const Held& a, const Held& b) {
            return a.finish < b.finish || (a.finish == b.finish && a.owner < b.owner);
        }
    };
    enum class Filling : std::uint8_t { fixed, rising, settled };
    enum class Seen : std::uint8_t {
        none,
        slack,    ///< something on it has changed, but it couples nobody
        included  ///< the fill under way looks at it
    };
    struct alignas(64) Resource {  ///< one line of the cache
        double capacity = 0;
        double potential = 0;  ///< sum of weight * count * solo rate of its users
        double held_use = 0;   ///< sum of weight * count of those that it holds back
        double carried = 0;    ///< units carried for classes that have left
        std::uint32_t within =
            kUndecided;             ///< a narrower one that all its users have used so far; kNone: there is none
        ListPool<Held>::List held;  ///< a heap on the virtual finish
        ListPool<User>::List users;
        bool stale = false;   ///< its next completion has to be found anew
        bool bounds = false;  ///< `within` of others
    };
    struct VirtualTime {    ///< of what a resource holds back
        double served = 0;  ///< units, to each activity, since it held back nobody
        std::int64_t at = 0;
        std::int64_t since = 0;
        std::uint32_t heap_position = kNone;
    };
    /// What fills read and write of a resource: one line of the cache, zero at first but for `key`.
    struct alignas(64) Room {
        double level;   ///< rate of each activity that it holds back
        double load;    ///< what users that do not rise take of it
        double weight;  ///< sum of weight * count of those that rise
        // What is left to those that rise, and what these weigh, with some of the fixed users among them (those above `cut`):
        // it saturates no lower than the ratio.
        double low_free;
        double low_weight;
        double cut;
        double key;  ///< the level at which it is looked at next, as in `levels_`; without bound: not there
        std::uint32_t rising;
        Filling filling;
        Seen seen;
        bool raised;
        bool alone : 1;           ///< it was opened at its own level: nobody fixed is above that
        std::uint8_t unread : 7;  ///< fills since `load` was summed anew
    };
    struct Changed {             ///< a resource whose capacity has changed
        std::int64_t since = 0;  ///< ps, of the present capacity
        double area = 0;         ///< units that it could have carried before
    };
    struct Level {  ///< an entry of the filling heap: a resource may saturate, or a class meets its own bound
        double level;
        std::uint32_t index;
        bool is_class;
        friend bool operator<(const Level& a, const Level& b) {
            return a.level < b.level ||
                   (a.level == b.level && (a.index < b.index || (a.index == b.index && a.is_class && !b.is_class)));
        }
    };
    struct Completion {  ///< the next one of a class without bottleneck, or of those that a resource holds back
        std::int64_t at;
        std::uint32_t id;
        friend bool operator<(const Completion& a, const Completion& b) {
            return a.at < b.at || (a.at == b.at && a.id < b.id);
        }
    };
    static constexpr std::uint32_t kOfResource = 0x80000000U;  ///< of a completion's id
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
    static constexpr std::uint32_t kUndecided = 0xFFFFFFFEU;
    static constexpr std::uint32_t kIsFar = 0xFFFFFFFEU;

    void note_narrower(std::span<const Demand> demands);
    void no_longer_within(std::uint32_t index);
    [[nodiscard]] bool is_within(const Resource& resource) const { return resource.within < kUndecided; }
    [[nodiscard]] std::uint32_t allocate_slots(std::span<const Demand> demands, std::uint32_t owner);
    void enter_into_table(std::uint32_t id);
    void remove_from_table(std::uint32_t id);
    void free_class(std::uint32_t id);
    void attach(std::uint32_t id);
    void detach(std::uint32_t id);
    void touch(std::uint32_t id);
    [[nodiscard]] double rate_of(const Class& c) const {
        return c.bottleneck == kNone ? c.rate : rooms_[c.bottleneck].level;
    }
    [[nodiscard]] double solo_rate(const Class& c) const;
    void apply_capacities();
    void solve();
    void finish_members(std::uint32_t id);

    // Virtual time (fluid_held.cpp).
    [[nodiscard]] double served_now(const Class& c) const;
    [[nodiscard]] double virtual_now(std::uint32_t resource) const;
    void advance(Class& c);
    void advance_resource(std::uint32_t index);
    void join(std::uint32_t id, std::uint32_t resource);
    void note_near(const Class& c, Held& held) const;
    void leave(std::uint32_t id);
    void set_bottleneck_of_users(const Class& c);
    [[nodiscard]] double use_of(const Class& c, std::uint32_t resource) const;
    void set_level(std::uint32_t index, double level);
    void mark_stale(std::uint32_t index);
    void collect_finished(std::uint32_t index);
    void update_completion(std::uint32_t id);
    void update_stale();
    void schedule_wake();
    void heap_update(std::uint32_t id, std::int64_t key);
    void heap_remove(std::uint32_t id);
    [[nodiscard]] std::uint32_t& heap_position(std::uint32_t id);

    // Filling (fluid_fill.cpp).
    [[nodiscard]] bool couples(const Resource& resource) const;
    [[nodiscard]] bool rises(const Class& c) const;
    [[nodiscard]] double reach(const User& user) const;
    void fill();
    void start_fill();
    [[nodiscard]] double fill_from(std::uint32_t index, double level);
    void include(std::uint32_t index);
    void queue(std::uint32_t index, double floor);
    void push_level(std::uint32_t index);
    /// Something far may come before what is in the heap.
    [[nodiscard]] bool far_first() const {
        return !far_.empty() && (levels_.empty() || levels_.front().level > far_from_);
    }
    void come_near(double floor);
    void sift_level(std::size_t position);
    void drop_top();
    void sum_load(std::uint32_t index);
    [[nodiscard]] double next_look(std::uint32_t index, double floor) const;
    void open(std::uint32_t index, double floor);
    void open_class(std::uint32_t id, double floor);
    void raise(std::uint32_t id, double rate);
    void raise_on(std::uint32_t id, std::uint32_t index, double use, double rate, std::uint32_t count = 1);
    void subtract_on(std::uint32_t index, double use, double level);
    void queue_bound(std::uint32_t id);
    [[nodiscard]] bool find_saturation(std::uint32_t index, double& level, double limit);
    void open_above(std::uint32_t index, double level);
    void saturate(std::uint32_t index, double level);
    void freeze(std::uint32_t id, double level, std::uint32_t bottleneck);
    void freeze_tied();
    void note_raised(std::uint32_t id, std::uint32_t index);
    void include_raised(double floor);
    void subtract(const Class& c, double level, std::uint32_t except);

    void hold_again(ClassId id) override { ++classes_[id.value()].holds; }
    double withdraw(const ActivityHandle& activity) override;
    ClassId hold_bounded(ClassId id, double rate_bound) override;

    Engine& engine_;
    std::uint32_t handler_;
    SimTime window_;
    HugeVector<Resource> resources_;
    HugeVector<VirtualTime> times_;  ///< by resource
    HugeVector<double> reaches_;     ///< by resource: its level; without bound while what it holds back rises
    HugeVector<Room> rooms_;         ///< by resource
    KeptVector<Class> classes_;
    KeptVector<std::uint32_t> free_classes_;
    KeptVector<Slot> slots_;
    KeptVector<std::uint32_t> owners_;                    ///< class, by slot
    std::vector<std::vector<std::uint32_t>> free_slots_;  ///< by length
    ListPool<User> users_;
    ListPool<Held> held_;
    ListPool<Member> members_;
    HugeVector<std::uint32_t> table_;  ///< first class, by hash: a power of two of them
    std::size_t table_entries_ = 0;
    KeptVector<Completion> heap_;
    KeptVector<std::uint32_t> touched_;
    KeptVector<std::uint32_t> seeds_;     ///< classes whose rate is sought anew from zero
    KeptVector<std::uint32_t> included_;  ///< resources that the fill under way has seen
    KeptVector<std::uint32_t> raised_;    ///< resources on which a class began to rise just now
    KeptVector<std::uint32_t> bounded_;   ///< classes that the fill under way froze at their own bounds
    std::vector<std::pair<std::uint32_t, std::uint32_t>> tied_;  ///< class, the settled resource that it uses
    KeptVector<Level> levels_;                                   ///< a heap
    HugeVector<std::uint32_t> queued_;                           ///< place in it, by resource, or kIsFar
    KeptVector<std::uint32_t> far_;                              ///< resources that wait outside it
    double far_from_ = 0;                                        ///< where their levels begin
    KeptVector<std::uint32_t> stale_;                            ///< resources
    KeptVector<std::uint32_t> due_;
    KeptVector<std::uint32_t> finished_;
    std::map<std::uint32_t, Changed> changed_;   ///< by resource
    std::vector<std::uint32_t> new_capacities_;  ///< resources whose capacity changed at this instant
    std::vector<std::uint32_t> reshaped_;        ///< resources that their users share anew because of that
    std::uint32_t capacity_changes_ = 0;
    std::uint32_t wake_generation_ = 0;
    std::int64_t wake_at_ = -1;  ///< time of the wake event in the queue that still counts; negative: none
    std::uint64_t solves_ = 0;
    std::uint64_t classes_filled_ = 0;
};

}  // namespace orrery::engine
