#include "workloads/serving/sequence.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery {

bool EngineState::accepts(const Request& request) const {
    const std::uint64_t tokens = std::uint64_t{request.prompt} + request.output;
    return blocks_for(tokens) <= limits_.blocks && (limits_.max_context == 0 || tokens <= limits_.max_context);
}

std::uint32_t EngineState::add(const Request& request, std::uint64_t id) {
    ORRERY_ASSERT(accepts(request));
    const std::uint32_t index = place();
    Sequence& sequence = sequences_[index];
    sequence = Sequence();
    sequence.id = id;
    sequence.arrival = request.arrival;
    sequence.prompt = request.prompt;
    sequence.output = request.output;
    sequence.session = request.session;
    waiting.push_back(index);
    ++enqueued_;
    return index;
}

std::uint32_t EngineState::place() {
    if (free_.empty()) {
        sequences_.emplace_back();
        return static_cast<std::uint32_t>(sequences_.size() - 1);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
}

std::uint32_t EngineState::adopt(const Sequence& sequence) {
    const std::uint32_t index = place();
    sequences_[index] = sequence;
    sequences_[index].blocks = 0;
    sequences_[index].stage = Stage::arriving;
    return index;
}

void EngineState::arrived(std::uint32_t index) {
    sequences_[index].stage = Stage::waiting;
    wait_behind_holders(index);
}

void EngineState::wait_behind_holders(std::uint32_t index) {
    auto place = waiting.begin();
    while (place != waiting.end() && sequences_[*place].blocks > 0) {
        ++place;
    }
    waiting.insert(place, index);
    ++enqueued_;
}

bool EngineState::reserve(std::uint32_t index, std::uint64_t tokens, std::uint64_t spare) {
    Sequence& sequence = sequences_[index];
    const std::uint32_t wanted = blocks_for(tokens);
    if (wanted <= sequence.blocks) {
        return true;
    }
    const std::uint32_t more = wanted - sequence.blocks;
    if (more + spare > free_blocks()) {
        return false;
    }
    sequence.blocks = wanted;
    used_blocks_ += more;
    return true;
}

bool EngineState::schedule(std::uint32_t index, std::uint32_t tokens, Batch& batch, std::uint64_t spare) {
    const std::uint32_t context = sequences_[index].cached + tokens;
    if (!reserve(index, context, spare)) {
        return false;
    }
    batch.items.push_back(BatchItem{index, tokens, context});
    return true;
}

void EngineState::admit_front() {
    const std::uint32_t index = waiting.front();
    waiting.pop_front();
    start_running(index);
}

void EngineState::start_running(std::uint32_t index) {
    sequences_[index].stage = Stage::running;
    sequences_[index].admitted = ++admissions_;
    running.push_back(index);
}

void EngineState::depart(const Batch& batch) {
    for (const BatchItem& item : batch.items) {
        sequences_[item.sequence].in_flight = true;
    }
    in_flight_ += std::erase_if(running, [&](std::uint32_t index) { return sequences_[index].in_flight; });
}

void EngineState::land(const Batch& batch) {
    const auto middle = static_cast<std::ptrdiff_t>(running.size());
    for (const BatchItem& item : batch.items) {
        sequences_[item.sequence].in_flight = false;
        running.push_back(item.sequence);
    }
    const auto earlier = [&](std::uint32_t a, std::uint32_t b) {
        return sequences_[a].admitted < sequences_[b].admitted;
    };
    std::sort(running.begin() + middle, running.end(), earlier);
    std::inplace_merge(running.begin(), running.begin() + middle, running.end(), earlier);
    in_flight_ -= batch.items.size();
}

void EngineState::release(Sequence& sequence) {
    ORRERY_ASSERT(used_blocks_ >= sequence.blocks);
    used_blocks_ -= sequence.blocks;
    sequence.blocks = 0;
}

void EngineState::recompute_later(std::size_t place) {
    const std::uint32_t index = running[place];
    Sequence& sequence = sequences_[index];
    release(sequence);
    sequence.cached = 0;
    sequence.stage = Stage::waiting;
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(place));
    wait_behind_holders(index);
    ++preemptions;
}

bool EngineState::swap_out(std::size_t place, Batch& batch) {
    const std::uint32_t index = running[place];
    Sequence& sequence = sequences_[index];
    if (used_host_blocks_ + sequence.blocks > limits_.host_blocks) {
        return false;
    }
    used_host_blocks_ += sequence.blocks;
    used_blocks_ -= sequence.blocks;
    batch.swap_bytes += sequence.blocks * limits_.block_bytes;
    sequence.stage = Stage::swapped;
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(place));
    swapped.push_back(index);
    ++preemptions;
    return true;
}

bool EngineState::swap_in(std::uint64_t spare, Batch& batch) {
    Sequence& sequence = sequences_[swapped.front()];
    if (sequence.blocks + spare > free_blocks()) {
        return false;
    }
    used_host_blocks_ -= sequence.blocks;
    used_blocks_ += sequence.blocks;
    batch.swap_bytes += sequence.blocks * limits_.block_bytes;
    start_running(swapped.front());
    swapped.pop_front();
    return true;
}

void EngineState::finish(std::uint32_t index) {
    release(sequences_[index]);
    sequences_[index].stage = Stage::finished;
    free_.push_back(index);
}

}  // namespace orrery
