#include "sim/record/output_file.hpp"

#include "sim/base/error.hpp"
#include "sim/base/signals.hpp"
#include "sim/record/summary.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace orrery::record {

namespace {

namespace fs = std::filesystem;

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
    throw ConfigError({Diagnostic{path, 0, 0, fmt::format("cannot be written: {}", std::strerror(code)),
                                  ErrorCode::unwritable_file}});
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
        remove_at_signal(path);
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
        forget_at_signal(path);
    }
}

void PartFile::write(const std::string& text) {
    if (const int code = write_all(file_, text); code != 0) {
        cannot_write(asked_, code);
    }
}

void PartFile::keep() {
    ORRERY_ASSERT(file_ >= 0 && !kept_);
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
            throw ConfigError({Diagnostic{"standard output", 0, 0, "cannot be written", ErrorCode::unwritable_file}});
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

}  // namespace orrery::record
