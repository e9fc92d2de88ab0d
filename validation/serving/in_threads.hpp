#pragma once
// Runs of many scenarios, two at a time.

#include "tools/driver/model_cache.hpp"
#include "tools/terminal/terminal.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery::validation {

/// Calls `run(models, i)` for each i below `count`, each thread with models of its own; what it throws is thrown here. `progress` is called
/// with the share that is done, by this thread.
template <class Run, class Report>
void in_threads(std::size_t count, const DataDirectory& data, const Run& run, const Report& progress) {
    constexpr std::size_t kThreads = 2;
    std::atomic<std::size_t> next = 0;
    std::mutex lock;
    std::exception_ptr failure;
    const auto work = [&](bool shows) {
        try {
            ModelCache models(data);
            for (std::size_t i = next++; i < count; i = next++) {
                run(models, i);
                if (shows) {
                    progress(static_cast<double>(i) / static_cast<double>(count));
                }
            }
        } catch (...) {
            const std::lock_guard<std::mutex> guard(lock);
            failure = std::current_exception();
            next = count;
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < kThreads; ++i) {
        threads.emplace_back(work, false);
    }
    work(true);
    for (std::thread& thread : threads) {
        thread.join();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

/// The same, with a line on the terminal that says `what` is under way.
template <class Run>
void in_threads(std::size_t count, const DataDirectory& data, const Terminal& terminal, const char* what,
                const Run& run) {
    Progress progress(terminal, what);
    in_threads(count, data, run, [&](double share) { progress.update(share); });
    progress.finish();
}

}  // namespace orrery::validation
