#include "sim/record/output_file.hpp"

#include "sim/base/error.hpp"
#include "sim/record/summary.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace orrery::inline record {

namespace {

namespace fs = std::filesystem;

// Paths that a signal removes. A handler may neither lock nor allocate: it finds them in fixed places.
struct Slot {
    std::atomic<const char*> path{nullptr};
    pid_t owner = 0;  ///< a child process has no part in its parent's files
};
constexpr std::size_t kSlots = 32;
std::array<Slot, kSlots>& slots() {
    static std::array<Slot, kSlots> all;
    return all;
}

extern "C" void remove_parts(int signal) {
    const pid_t self = getpid();
    for (Slot& slot : slots()) {
        const char* path = slot.path.load();
        if (path != nullptr && slot.owner == self) {
            (void)unlink(path);
        }
    }
    // As the signal would have ended the process: who waits for it sees which one it was.
    struct sigaction otherwise {};
    otherwise.sa_handler = SIG_DFL;
    (void)sigaction(signal, &otherwise, nullptr);
    (void)raise(signal);
}

void watch_signals() {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        struct sigaction before {};
        if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {  // nohup ignores SIGHUP
            struct sigaction action {};
            action.sa_handler = remove_parts;
            (void)sigaction(signal, &action, nullptr);
        }
    }
}

void note_part(const std::string& path) {
    watch_signals();
    for (Slot& slot : slots()) {
        const char* none = nullptr;
        if (slot.path.load() == nullptr) {
            slot.owner = getpid();
            if (slot.path.compare_exchange_strong(none, path.c_str())) {
                return;
            }
        }
    }
}

void forget_part(const std::string& path) {
    for (Slot& slot : slots()) {
        const char* own = path.c_str();
        (void)slot.path.compare_exchange_strong(own, nullptr);
    }
}

// The file that a path leads to, which need not exist.
std::string behind_links(const std::string& path) {
    constexpr int kMostLinks = 40;  // as Linux follows
    fs::path at = path;
    std::error_code failed;
    for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(at, failed)); ++i) {
        const fs::path next = fs::read_symlink(at, failed);
        at = next.is_absolute() ? next : at.parent_path() / next;
    }
    return at.string();
}

// Returns 0, or errno.
int write_all(int file, const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t n = write(file, text.data() + at, text.size() - at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? errno : EIO;
        }
        at += static_cast<std::size_t>(n);
    }
    return 0;
}

[[noreturn]] void cannot_write(const std::string& path, int code) {
    throw ConfigError({Diagnostic{path, 0, 0, fmt::format("cannot be written: {}", std::strerror(code))}});
}

}  // namespace

PartFile::PartFile(const std::string& target, const std::vector<std::string>& companions)
    : asked_(target), target_(behind_links(target)) {
    const fs::path folder = fs::path(target_).parent_path();
    all_.reserve(companions.size() + 1);  // the slots of signals point into it
    for (int i = 0; file_ < 0; ++i) {
        path_ = (folder / fmt::format(".orrery-{}-{}.part", getpid(), i)).string();
        file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file_ < 0 && errno != EEXIST) {
            fail();
        }
    }
    struct stat before {};
    if (stat(target_.c_str(), &before) == 0) {
        (void)fchmod(file_, before.st_mode & 07777U);
    }
    all_.push_back(path_);
    for (const std::string& end : companions) {
        all_.push_back(path_ + end);
    }
    for (const std::string& path : all_) {
        note_part(path);
    }
}

PartFile::~PartFile() {
    remove_all();
}

void PartFile::fail() const {
    cannot_write(asked_, errno);
}

void PartFile::remove_all() {
    if (file_ >= 0) {
        (void)close(file_);
        file_ = -1;
    }
    for (const std::string& path : all_) {
        if (!kept_ || path != path_) {
            (void)unlink(path.c_str());
        }
        forget_part(path);
    }
}

void PartFile::write(const std::string& text) {
    if (const int code = write_all(file_, text); code != 0) {
        cannot_write(asked_, code);
    }
}

void PartFile::keep() {
    if (fsync(file_) != 0 || rename(path_.c_str(), target_.c_str()) != 0) {
        fail();
    }
    kept_ = true;
    // The name, too, is on the disk. A file system that cannot do this has what it has.
    const std::string folder = fs::path(target_).parent_path().string();
    if (const int opened = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        opened >= 0) {
        (void)fsync(opened);
        (void)close(opened);
    }
}

void write_file(const std::string& path, const std::string& text) {
    if (path == "-") {
        if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) {
            throw ConfigError({Diagnostic{"standard output", 0, 0, "cannot be written"}});
        }
        return;
    }
    // A device or a pipe is written to, never replaced.
    std::error_code unknown;
    const fs::file_status status = fs::status(path, unknown);
    if (fs::exists(status) && !fs::is_regular_file(status)) {
        const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
        const int code = file < 0 ? errno : write_all(file, text);
        if ((file >= 0 && close(file) != 0) || code != 0) {
            cannot_write(path, code != 0 ? code : errno);
        }
        return;
    }
    PartFile part(path);
    part.write(text);
    part.keep();
}

}  // namespace orrery::inline record
