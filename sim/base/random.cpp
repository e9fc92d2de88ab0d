#include "sim/base/random.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"

#include <bit>
#include <cmath>
#include <utility>

namespace orrery::base {

std::uint64_t hash64(std::string_view text) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    }
    return hash;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view name) : state_{} {
    std::uint64_t x = seed ^ hash64(name);
    for (std::uint64_t& word : state_) {
        word = mix64(x);
        x += 0x9E3779B97F4A7C15ULL;
    }
}

std::uint64_t RandomStream::next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
}

double RandomStream::uniform() {
    return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

std::uint64_t RandomStream::below(std::uint64_t bound) {
    ORRERY_ASSERT(bound > 0);
    const std::uint64_t threshold = (0 - bound) % bound;  // rejects the incomplete last block
    for (;;) {
        const std::uint64_t x = next();
        if (x >= threshold) {
            return x % bound;
        }
    }
}

double RandomStream::exponential(double mean) {
    return -mean * log_pinned(1.0 - uniform());
}

double RandomStream::normal() {
    for (;;) {
        const double u = 2 * uniform() - 1;
        const double v = 2 * uniform() - 1;
        const double s = u * u + v * v;
        if (s > 0 && s < 1) {
            return u * std::sqrt(-2 * log_pinned(s) / s);
        }
    }
}

void RandomStream::shuffle(std::vector<std::uint32_t>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
        std::swap(items[i - 1], items[below(i)]);
    }
}

}  // namespace orrery::base
