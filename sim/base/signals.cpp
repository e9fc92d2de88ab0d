#include "sim/base/signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

namespace orrery::base {

namespace {

struct Slot {
    std::atomic<const char*> path{nullptr};
    pid_t owner = 0;  ///< a child process has no part in its parent's files
};
constexpr std::size_t kSlots = 32;

struct Text {
    std::array<char, 2000> bytes{};
    std::size_t size = 0;
    pid_t owner = 0;
};

// The handler reads the text that is current while the next one is written to the other place.
struct AtSignal {
    std::array<Slot, kSlots> slots;
    std::array<Text, 2> texts;
    std::atomic<const Text*> text{nullptr};
    std::mutex mutex;
};

AtSignal& at_signal() {
    static AtSignal all;
    return all;
}

extern "C" void end_process(int signal) {
    const pid_t self = getpid();
    for (Slot& slot : at_signal().slots) {
        const char* path = slot.path.load();
        if (path != nullptr && slot.owner == self) {
            (void)unlink(path);
        }
    }
    if (const Text* text = at_signal().text.load(); signal == SIGINT && text != nullptr && text->owner == self) {
        (void)!write(STDERR_FILENO, text->bytes.data(), text->size);
    }
    struct sigaction otherwise {};
    otherwise.sa_handler = SIG_DFL;
    (void)sigaction(signal, &otherwise, nullptr);
    (void)raise(signal);
}

// At each call: a program that embeds this code may have had handlers of its own for a while.
void watch_signals() {
    (void)at_signal();  // made before a handler asks for it
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        struct sigaction before {};
        if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {  // nohup ignores SIGHUP
            struct sigaction action {};
            action.sa_handler = end_process;
            (void)sigaction(signal, &action, nullptr);
        }
    }
}

}  // namespace

void remove_at_signal(const std::string& path) {
    watch_signals();
    for (Slot& slot : at_signal().slots) {
        const char* none = nullptr;
        if (slot.path.load() == nullptr) {
            slot.owner = getpid();
            if (slot.path.compare_exchange_strong(none, path.c_str())) {
                return;
            }
        }
    }
}

void forget_at_signal(const std::string& path) {
    for (Slot& slot : at_signal().slots) {
        const char* own = path.c_str();
        (void)slot.path.compare_exchange_strong(own, nullptr);
    }
}

void say_at_interrupt(const std::string& text) {
    watch_signals();
    AtSignal& all = at_signal();
    const std::lock_guard lock(all.mutex);
    if (text.empty()) {
        all.text.store(nullptr);
        return;
    }
    Text& next = all.texts[all.text.load() == all.texts.data() ? 1 : 0];
    next.size = std::min(text.size(), next.bytes.size());
    next.owner = getpid();
    std::memcpy(next.bytes.data(), text.data(), next.size);
    all.text.store(&next);
}

}  // namespace orrery::base
