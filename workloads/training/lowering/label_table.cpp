#include "workloads/training/lowering/label_table.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

std::uint64_t hash_of(const TaskLabel& of) {
    const auto both = [](std::int32_t low, std::uint32_t high) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(low)) | (std::uint64_t{high} << 32);
    };
    const std::uint64_t flags = std::uint64_t{of.pass} + 2U * of.embedding + 4U * of.head + 8U * of.boundary +
                                16U * of.projector + 32U * static_cast<std::uint64_t>(of.work) +
                                (std::uint64_t{of.encoder} << 32);
    constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;
    std::uint64_t hash = both(of.micro_batch, static_cast<std::uint32_t>(of.chunk)) * kMix;
    hash = (hash ^ (hash >> 32) ^ both(of.layer, of.layers)) * kMix;
    hash = (hash ^ (hash >> 32) ^ flags) * kMix;
    return hash ^ (hash >> 32);
}

}  // namespace

std::size_t LabelTable::place_of(const TaskLabel& label, const std::vector<TaskLabel>& labels) const {
    const std::size_t mask = numbers_.size() - 1;
    std::size_t place = hash_of(label) & mask;
    while (numbers_[place] != kFree && !(labels[numbers_[place]] == label)) {
        place = (place + 1) & mask;
    }
    return place;
}

std::uint32_t LabelTable::number_of(const TaskLabel& label, std::vector<TaskLabel>& labels) {
    if (2 * (labels.size() + 1) > numbers_.size()) {
        numbers_.assign(std::max<std::size_t>(64, 2 * numbers_.size()), kFree);
        for (std::uint32_t i = 0; i < labels.size(); ++i) {
            numbers_[place_of(labels[i], labels)] = i;
        }
    }
    ORRERY_ASSERT(labels.size() < numbers_.size());
    std::uint32_t& number = numbers_[place_of(label, labels)];
    if (number == kFree) {
        number = static_cast<std::uint32_t>(labels.size());
        labels.push_back(label);
    }
    return number;
}

}  // namespace orrery::training
