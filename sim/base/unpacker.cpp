#include "sim/base/unpacker.hpp"

#include "sim/base/error.hpp"

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace orrery::base {

namespace {

class GzipUnpacker final : public Unpacker {
  public:
    GzipUnpacker() {
        constexpr int kGzip = 15 + 16;  // the largest window, and gzip's head and checksum
        if (inflateInit2(&stream_, kGzip) != Z_OK) {
            throw InternalError("no memory for the gzip decoder");
        }
    }
    GzipUnpacker(const GzipUnpacker&) = delete;
    GzipUnpacker& operator=(const GzipUnpacker&) = delete;
    ~GzipUnpacker() override { inflateEnd(&stream_); }

    std::size_t unpack(std::string_view& in, char* out, std::size_t size, bool) override {
        if (complete_ && !in.empty()) {
            // A file of several members is their contents one after another; zeros are the padding of tapes.
            if (in.front() == '\0') {
                in = {};
                return 0;
            }
            inflateReset(&stream_);
            complete_ = false;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
        stream_.avail_in = static_cast<uInt>(in.size());
        stream_.next_out = reinterpret_cast<Bytef*>(out);
        stream_.avail_out = static_cast<uInt>(size);
        const int status = complete_ ? Z_BUF_ERROR : inflate(&stream_, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
            throw std::runtime_error(stream_.msg == nullptr ? "no reason given" : stream_.msg);
        }
        complete_ = complete_ || status == Z_STREAM_END;
        in.remove_prefix(in.size() - stream_.avail_in);
        return size - stream_.avail_out;
    }
    bool complete() const override { return complete_; }

  private:
    z_stream stream_{};
    bool complete_ = false;
};

class XzUnpacker final : public Unpacker {
  public:
    XzUnpacker() {
        constexpr std::uint64_t kMemory = std::uint64_t{256} << 20U;
        if (lzma_stream_decoder(&stream_, kMemory, LZMA_CONCATENATED) != LZMA_OK) {
            throw InternalError("no memory for the xz decoder");
        }
    }
    XzUnpacker(const XzUnpacker&) = delete;
    XzUnpacker& operator=(const XzUnpacker&) = delete;
    ~XzUnpacker() override { lzma_end(&stream_); }

    std::size_t unpack(std::string_view& in, char* out, std::size_t size, bool last) override {
        stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
        stream_.avail_in = in.size();
        stream_.next_out = reinterpret_cast<std::uint8_t*>(out);
        stream_.avail_out = size;
        const lzma_ret status = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
        if (status == LZMA_MEMLIMIT_ERROR) {
            throw std::runtime_error("it needs more than 256 MiB of memory to be unpacked");
        }
        if (status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR) {
            throw std::runtime_error("its checks do not hold");
        }
        complete_ = status == LZMA_STREAM_END;
        in.remove_prefix(in.size() - stream_.avail_in);
        return size - stream_.avail_out;
    }
    bool complete() const override { return complete_; }

  private:
    lzma_stream stream_ = LZMA_STREAM_INIT;
    bool complete_ = false;
};

class ZstdUnpacker final : public Unpacker {
  public:
    ZstdUnpacker() : stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
        if (!stream_) {
            throw InternalError("no memory for the zstd decoder");
        }
    }

    std::size_t unpack(std::string_view& in, char* out, std::size_t size, bool) override {
        ZSTD_inBuffer source{in.data(), in.size(), 0};
        ZSTD_outBuffer target{out, size, 0};
        const std::size_t status = ZSTD_decompressStream(stream_.get(), &target, &source);
        if (ZSTD_isError(status) != 0) {
            throw std::runtime_error(ZSTD_getErrorName(status));
        }
        // Frames follow one another; at the end of one, an empty call asks for the head of the next.
        complete_ = status == 0 || (complete_ && source.pos == 0 && target.pos == 0);
        in.remove_prefix(source.pos);
        return target.pos;
    }
    bool complete() const override { return complete_; }

  private:
    std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
    bool complete_ = false;
};

struct Packing {
    const char* name;
    const char* extension;
    std::string_view head;
    std::unique_ptr<Unpacker> (*make)();
};

template <typename T>
std::unique_ptr<Unpacker> make() {
    return std::make_unique<T>();
}

constexpr std::array<Packing, 3> kPackings = {{
    {"gzip", ".gz", "\x1f\x8b", make<GzipUnpacker>},
    {"xz", ".xz",
     std::string_view("\xFD"
                      "7zXZ\0",
                      6),
     make<XzUnpacker>},
    {"zstd", ".zst", "\x28\xB5\x2F\xFD", make<ZstdUnpacker>},
}};

}  // namespace

std::string packing_of(std::string_view head) {
    const auto found = std::find_if(kPackings.begin(), kPackings.end(),
                                    [&](const Packing& packing) { return head.starts_with(packing.head); });
    return found == kPackings.end() ? "" : found->name;
}

std::string packing_by_name(std::string_view path) {
    const auto found = std::find_if(kPackings.begin(), kPackings.end(),
                                    [&](const Packing& packing) { return path.ends_with(packing.extension); });
    return found == kPackings.end() ? "" : found->name;
}

std::unique_ptr<Unpacker> make_unpacker(const std::string& name) {
    const auto found =
        std::find_if(kPackings.begin(), kPackings.end(), [&](const Packing& packing) { return name == packing.name; });
    ORRERY_ASSERT(found != kPackings.end());
    return found->make();
}

}  // namespace orrery::base
