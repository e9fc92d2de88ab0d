#pragma once
// Policies of your own, in C++: include this file alone, build a shared object, and name it in a scenario.
//
//     class ShortestFirst final : public orrery::policy::Scheduler { ... };
//     ORRERY_SCHEDULER(ShortestFirst)
//
//     c++ -std=c++20 -shared -fPIC -I<prefix>/include shortest_first.cpp -o shortest_first.so
//     engine: {scheduler: {kind: outside, from: shortest_first.so}}
//
// Orrery loads it only when the command line says --allow-policies. A policy reads the state through the views below and answers
// with decisions; it never changes the state itself. Times are in seconds of simulated time, lengths in tokens. A policy that draws
// random numbers takes its seed from its parameters, so that a run can be repeated.

#include <cstddef>
#include <cstdint>

/// Rises whenever a type below changes; a new kind of policy changes none. Orrery refuses an object that was built against another number.
#define ORRERY_POLICY_VERSION 1

namespace orrery::policy {

/// A request on an engine.
struct Sequence {
    std::uint64_t request;    ///< its number, in order of arrival over the whole run
    double arrival;           ///< s
    std::uint32_t session;    ///< of the conversation or client that sent it
    std::uint32_t prompt;     ///< tokens
    std::uint32_t output;     ///< tokens that it will give; a real engine does not know this
    std::uint32_t generated;  ///< tokens given so far
    std::uint32_t computed;   ///< tokens whose keys and values are in the cache
    std::uint32_t blocks;     ///< of the cache that it holds
    std::uint32_t remaining;  ///< tokens to compute before its next token: 1 while it decodes
};

/// An engine between two iterations.
class Engine {
  public:
    [[nodiscard]] virtual std::uint32_t number() const = 0;  ///< of the replica, from 0
    [[nodiscard]] virtual double now() const = 0;            ///< s
    [[nodiscard]] virtual std::uint32_t token_budget() const = 0;
    [[nodiscard]] virtual std::uint32_t block_tokens() const = 0;
    [[nodiscard]] virtual std::uint64_t blocks() const = 0;           ///< of the whole cache
    [[nodiscard]] virtual std::uint64_t free_blocks() const = 0;      ///< those that hold idle prefixes included
    [[nodiscard]] virtual std::size_t places() const = 0;             ///< requests that may still be admitted
    [[nodiscard]] virtual std::size_t waiting() const = 0;            ///< requests in the queue ...
    [[nodiscard]] virtual Sequence waiting(std::size_t i) const = 0;  ///< ... in order of arrival, preempted ones first
    [[nodiscard]] virtual std::size_t running() const = 0;            ///< requests that hold a place ...
    [[nodiscard]] virtual Sequence running(std::size_t i) const = 0;  ///< ... in order of admission

  protected:
    ~Engine() = default;
};

/// What happens when the cache has no room for a step.
enum class WhenFull : std::uint32_t {
    stop,     ///< the batch ends here
    skip,     ///< the next step is tried
    preempt,  ///< the last admitted running request that is not in the batch is preempted, and the step is tried again
};

/// What a scheduler decides for one iteration. Orders are carried out in the order in which they are given.
class Plan {
  public:
    /// Computes `tokens` of a running or waiting request: at most what remains of it and of the token budget; 0 stands for all of
    /// that. A waiting request is admitted, with what the prefix cache has of its prompt; the batch ends where no place is free,
    /// and nothing is admitted in an iteration in which something was preempted.
    virtual void run(std::uint64_t request, std::uint32_t tokens = 0, WhenFull when_full = WhenFull::stop) = 0;
    /// Preempts a running request: its blocks are freed, it goes to the front of the queue, and its tokens are recomputed later.
    virtual void preempt(std::uint64_t request) = 0;

  protected:
    ~Plan() = default;
};

/// Forms the batch of each iteration. One object per engine.
class Scheduler {
  public:
    virtual ~Scheduler() = default;
    /// Called between iterations while requests wait or run. A plan without orders waits for the next request to come.
    virtual void plan(const Engine& engine, Plan& plan) = 0;
};

/// A request that a router places.
struct Request {
    std::uint64_t request;  ///< its number
    double now;             ///< s
    std::uint32_t session;
    std::uint32_t prompt;  ///< tokens
};

/// Replicas that take requests, as a router sees them. `i` counts from 0 to size() - 1.
class Replicas {
  public:
    [[nodiscard]] virtual std::size_t size() const = 0;
    [[nodiscard]] virtual std::uint32_t number(std::size_t i) const = 0;       ///< of the replica in the service
    [[nodiscard]] virtual std::size_t requests(std::size_t i) const = 0;       ///< waiting and running there
    [[nodiscard]] virtual std::uint64_t used_blocks(std::size_t i) const = 0;  ///< of its cache
    [[nodiscard]] virtual std::uint64_t blocks(std::size_t i) const = 0;
    [[nodiscard]] virtual std::uint32_t cached(std::size_t i) const = 0;  ///< tokens of this prompt in its prefix cache

  protected:
    ~Replicas() = default;
};

/// Chooses the replica that takes a request. One object for the entries of a service, and one for its decoders where there are any.
class Router {
  public:
    virtual ~Router() = default;
    /// An index below replicas.size().
    [[nodiscard]] virtual std::size_t choose(const Replicas& replicas, const Request& request) = 0;
};

/// Says of each request that comes to a service whether it is taken. One object for the service.
class Admission {
  public:
    virtual ~Admission() = default;
    /// False: the request is turned away at once. `replicas`: those among which the router would choose.
    [[nodiscard]] virtual bool admits(const Replicas& replicas, const Request& request) = 0;
};

/// Equal replicas whose number follows the load (engine.autoscale), at the end of an interval.
struct Pool {
    std::uint32_t number;       ///< 0; where prompts and decoding have replicas of their own, 1 is that of decoding
    double now;                 ///< s
    double interval;            ///< s since it was last looked at
    std::uint64_t outstanding;  ///< requests that wait and run in it
    std::uint64_t arrived;      ///< requests that came in the interval
    std::uint32_t running;      ///< replicas that take requests,
    std::uint32_t starting;     ///< and those that will
    std::uint32_t least;        ///< replicas, as the scenario says: autoscale.least ...
    std::uint32_t most;         ///< ... and replicas
    double target;              ///< load of a replica, as the scenario says: autoscale.target
};

/// Says how many replicas a pool should have. One object for the service, which is asked for each pool in turn.
class Autoscaler {
  public:
    virtual ~Autoscaler() = default;
    /// From pool.least to pool.most. Starts take their time, and stops wait for the cooldown and for running requests.
    [[nodiscard]] virtual std::uint32_t scale(const Pool& pool) = 0;
};

/// A policy of a class that has a constructor without arguments, or one that takes the scenario's `parameters`.
template <class Base, class Class>
[[nodiscard]] void* make(const char* parameters) {
    Base* made = nullptr;
    if constexpr (requires { Class(parameters); }) {
        made = new Class(parameters);
    } else {
        made = new Class();
    }
    return made;
}

}  // namespace orrery::policy

// What Orrery looks for in a shared object: its version, and functions that make its policies.
#define ORRERY_POLICY_SYMBOL extern "C" __attribute__((visibility("default")))
#define ORRERY_POLICY_EXPORT(Base, Class, symbol)                             \
    ORRERY_POLICY_SYMBOL int symbol##_version() {                             \
        return ORRERY_POLICY_VERSION;                                         \
    }                                                                         \
    ORRERY_POLICY_SYMBOL void* symbol(const char* parameters) {               \
        return orrery::policy::make<orrery::policy::Base, Class>(parameters); \
    }
#define ORRERY_SCHEDULER(Class) ORRERY_POLICY_EXPORT(Scheduler, Class, orrery_scheduler)
#define ORRERY_ROUTER(Class) ORRERY_POLICY_EXPORT(Router, Class, orrery_router)
#define ORRERY_ADMISSION(Class) ORRERY_POLICY_EXPORT(Admission, Class, orrery_admission)
#define ORRERY_AUTOSCALER(Class) ORRERY_POLICY_EXPORT(Autoscaler, Class, orrery_autoscaler)
