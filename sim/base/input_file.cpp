#include "sim/base/input_file.hpp"

#include "sim/base/error.hpp"
#include "sim/base/unpacker.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <set>
#include <streambuf>
#include <string_view>

namespace orrery::base {

namespace {

// Paths and not inodes, which a new file may get when a file that was read is replaced.
struct FilesRead {
    std::mutex mutex;
    std::set<std::string> paths;
    bool standard_input = false;
};

// What a process has read is a fact about the process: outputs are checked against all of it.
FilesRead& files_read() {
    static FilesRead files;
    return files;
}

}  // namespace

static constexpr std::size_t kPiece = std::size_t{1} << 18U;  ///< B read at once

void require_input_file(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    const char* problem = nullptr;
    if (status.type() == fs::file_type::not_found) {
        problem = "cannot be read: no such file";
    } else if (status.type() == fs::file_type::none) {
        problem = "cannot be read: no permission, or a link that leads nowhere";
    } else if (fs::is_directory(status)) {
        problem = "cannot be read: this is a folder, not a file";
    } else if (!fs::is_regular_file(status)) {
        problem =
            "cannot be read: a pipe or a device and not a file; where a scenario or sweep is asked for, '-' reads "
            "standard input";
    } else if (access(path.c_str(), R_OK) != 0) {
        problem = "cannot be read: no permission";
    }
    if (problem != nullptr) {
        throw ConfigError({Diagnostic{path, 0, 0, problem, ErrorCode::unreadable_file}});
    }
    FilesRead& files = files_read();
    const std::lock_guard<std::mutex> lock(files.mutex);
    files.paths.insert(fs::absolute(path, failed).string());
}

std::string read_standard_input() {
    FilesRead& files = files_read();
    const std::lock_guard<std::mutex> lock(files.mutex);
    // Whoever asks again gets the same: it can be read once.
    static const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
    files.standard_input = true;
    return text;
}

bool was_read(const std::string& path) {
    struct stat asked {};
    if (stat(path.c_str(), &asked) != 0) {
        return false;
    }
    const auto same = [&](const struct stat& other) {
        return other.st_dev == asked.st_dev && other.st_ino == asked.st_ino;
    };
    FilesRead& files = files_read();
    const std::lock_guard<std::mutex> lock(files.mutex);
    struct stat input {};
    if (files.standard_input && fstat(STDIN_FILENO, &input) == 0 && same(input)) {
        return true;
    }
    return std::any_of(files.paths.begin(), files.paths.end(), [&](const std::string& known) {
        struct stat found {};
        return stat(known.c_str(), &found) == 0 && same(found);
    });
}

// Bytes of the file and text made of them.
class InputFile::Buffer final : public std::streambuf {
  public:
    explicit Buffer(const std::string& path) : path_(path) {
        require_input_file(path);
        std::error_code failed;
        size_ = std::filesystem::file_size(path, failed);
        file_.open(path, std::ios::binary);
        if (failed || !file_) {
            fail("cannot be read");
        }
        fill();
        const std::string packing = packing_of(in_);
        const std::string promised = packing_by_name(path);
        if (!promised.empty() && packing != promised) {
            fail(fmt::format("is not packed as its name says: it is no {} file", promised));
        }
        if (!packing.empty()) {
            packing_ = packing;
            unpacker_ = make_unpacker(packing);
            text_.resize(kPiece);
        }
    }

    [[nodiscard]] std::uintmax_t size() const { return size_; }
    [[nodiscard]] bool packed() const { return unpacker_ != nullptr; }
    [[nodiscard]] double share_read() const {
        const auto left = unpacker_ ? in_.size() : static_cast<std::size_t>(egptr() - gptr()) + in_.size();
        ORRERY_ASSERT(left <= taken_);
        return size_ == 0 ? 1 : static_cast<double>(taken_ - left) / static_cast<double>(size_);
    }

  protected:
    int_type underflow() override {
        const std::size_t got = unpacker_ ? unpack() : take();
        made_ += got;
        return got == 0 ? traits_type::eof() : traits_type::to_int_type(*gptr());
    }

  private:
    [[noreturn]] void fail(const std::string& problem) const {
        throw ConfigError({Diagnostic{path_, 0, 0, problem, ErrorCode::unreadable_file}});
    }

    // The next bytes of the file into in_, which is empty.
    void fill() {
        // No larger than the file, which is mostly small: what is read is cleared first.
        const auto piece = static_cast<std::size_t>(std::min<std::uintmax_t>(size_ + 1, kPiece));
        bytes_.resize(piece);
        file_.read(bytes_.data(), static_cast<std::streamsize>(piece));
        if (file_.bad()) {
            fail("cannot be read");
        }
        const auto got = static_cast<std::size_t>(file_.gcount());
        taken_ += got;
        last_ = got < piece;
        in_ = std::string_view(bytes_.data(), got);
    }

    std::size_t take() {
        if (in_.empty() && !last_) {
            fill();
        }
        const std::size_t got = in_.size();
        setg(bytes_.data(), bytes_.data(), bytes_.data() + got);
        in_ = {};
        return got;
    }

    std::size_t unpack() {
        while (true) {
            if (in_.empty() && !last_) {
                fill();
            }
            const std::size_t before = in_.size();
            std::size_t got = 0;
            try {
                got = unpacker_->unpack(in_, text_.data(), text_.size(), last_);
            } catch (const std::runtime_error& error) {
                fail(fmt::format("{} is damaged after {} bytes of text: {}", packing_, made_, error.what()));
            }
            ORRERY_ASSERT(got <= text_.size() && in_.size() <= before);
            if (got > 0) {
                setg(text_.data(), text_.data(), text_.data() + got);
                return got;
            }
            if (in_.empty() && last_ && before == 0) {
                if (!unpacker_->complete()) {
                    fail(fmt::format("{} is cut off: {} bytes could be unpacked", packing_, made_));
                }
                return 0;
            }
            if (before > 0 && in_.size() == before) {
                fail(fmt::format("{} is damaged after {} bytes of text: it does not go on", packing_, made_));
            }
        }
    }

    std::string path_;
    std::ifstream file_;
    std::uintmax_t size_ = 0;
    std::uintmax_t taken_ = 0;  ///< B read of the file
    std::uintmax_t made_ = 0;   ///< B of text given
    std::string bytes_;
    std::string_view in_;  ///< what of bytes_ has not been used
    bool last_ = false;    ///< nothing of the file follows bytes_
    std::string packing_;
    std::unique_ptr<Unpacker> unpacker_;
    std::string text_;
};

InputFile::InputFile(const std::string& path) : std::istream(nullptr), buffer_(std::make_unique<Buffer>(path)) {
    rdbuf(buffer_.get());
    exceptions(std::ios::badbit);  // or errors of the buffer would be swallowed
}

InputFile::~InputFile() = default;

bool InputFile::packed() const {
    return buffer_->packed();
}

std::uintmax_t InputFile::size() const {
    return buffer_->size();
}

double InputFile::share_read() const {
    return buffer_->share_read();
}

static std::string start_of(InputFile& file, std::size_t most) {
    std::string text;
    std::uintmax_t size = kPiece;
    if (!file.packed()) {
        size = std::min<std::uintmax_t>(file.size(), most);
        text.reserve(size);
    }
    std::string piece(std::min<std::uintmax_t>(size + 1, kPiece), '\0');
    while (file && text.size() < most) {
        file.read(piece.data(), static_cast<std::streamsize>(std::min(piece.size(), most - text.size())));
        text.append(piece, 0, static_cast<std::size_t>(file.gcount()));
    }
    return text;
}

std::string bytes_of_input(const std::string& path) {
    require_input_file(path);
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string start_of_input(const std::string& path, std::size_t most) {
    InputFile file(path);
    return start_of(file, most);
}

std::string read_input(const std::string& path, std::size_t most) {
    InputFile file(path);
    // What is plainly too large is not read.
    std::string text = !file.packed() && file.size() > most ? std::string() : start_of(file, most + 1);
    if (text.size() > most || (!file.packed() && file.size() > most)) {
        throw ConfigError({Diagnostic{path, 0, 0,
                                      most >> 30U > 0 ? fmt::format("is larger than {} GiB", most >> 30U)
                                                      : fmt::format("is larger than {} MiB", most >> 20U),
                                      ErrorCode::unreadable_file}});
    }
    return text;
}

std::string tail_of_input(const std::string& path, std::size_t most) {
    InputFile file(path);
    if (!file.packed()) {
        std::ifstream plain(path, std::ios::binary);
        plain.seekg(static_cast<std::streamoff>(file.size() - std::min<std::uintmax_t>(file.size(), most)));
        return std::string(std::istreambuf_iterator<char>(plain), std::istreambuf_iterator<char>());
    }
    std::string tail;
    std::string piece(kPiece, '\0');
    while (file) {
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        tail.append(piece, 0, static_cast<std::size_t>(file.gcount()));
        tail.erase(0, tail.size() - std::min(tail.size(), most));
    }
    return tail;
}

std::string unpacked_name(const std::string& path) {
    return packing_by_name(path).empty() ? path : path.substr(0, path.rfind('.'));
}

}  // namespace orrery::base
