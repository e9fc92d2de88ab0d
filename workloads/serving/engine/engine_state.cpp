#include "workloads/serving/engine/engine_state.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

EngineState::EngineState(const EngineLimits& limits) : limits_(limits) {
    empty_caches();
}

void EngineState::empty_caches() {
    if (limits_.prefix_cache) {
        cache_.emplace(std::vector{limits_.host_cache, limits_.nvme_cache}, limits_.prefix_eviction);
        tell_watchers();
    }
    if (limits_.adapter_slots > 0) {
        adapters_.emplace(limits_.adapter_slots, limits_.adapter_eviction);
    }
}

void EngineState::tell_watchers() {
    if (cache_ && !watchers_.empty()) {
        cache_->watch([this](std::uint64_t key, bool here) {
            for (const CacheWatcher& watcher : watchers_) {
                watcher(here ? CacheChange::stored : CacheChange::evicted, key);
            }
        });
    }
}

void EngineState::watch_cache(CacheWatcher watcher) {
    watchers_.push_back(std::move(watcher));
    tell_watchers();
}

void EngineState::share_blocks_with(EngineState& other) {
    ORRERY_ASSERT(limits_.blocks == other.limits_.blocks && *used_blocks_ == 0 && *other.used_blocks_ == 0);
    used_blocks_ = other.used_blocks_;
}

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
    sequence.turn = request.turn;
    sequence.adapter = adapters_ ? request.adapter : 0;
    if (cache_) {
        sequence.content = request.content;
    }
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
    sequences_[index].named.clear();
    sequences_[index].copied = 0;
    sequences_[index].stage = Stage::arriving;
    sequences_[index].keeps_adapter = false;
    sequences_[index].foreign = false;
    sequences_[index].newcomer = false;
    return index;
}

std::vector<std::uint32_t> EngineState::hold_newcomers() {
    std::vector<std::uint32_t> out;
    while (!waiting.empty() && sequences_[waiting.back()].newcomer) {
        out.push_back(waiting.back());
        waiting.pop_back();
    }
    std::reverse(out.begin(), out.end());
    return out;
}

void EngineState::let_in(const std::vector<std::uint32_t>& newcomers) {
    for (const std::uint32_t index : newcomers) {
        sequences_[index].newcomer = false;
        if (sequences_[index].blocks > 0) {
            wait_behind_holders(index);  // the plan may have put back sequences that hold nothing: they cannot go first
        } else {
            waiting.push_back(index);
            ++enqueued_;
        }
    }
}

std::uint32_t EngineState::take_over(EngineState& from, std::uint32_t source) {
    ORRERY_ASSERT(used_blocks_ == from.used_blocks_);
    const std::uint32_t index = adopt(from.sequences_[source]);
    sequences_[index].blocks = from.sequences_[source].blocks;
    from.sequences_[source].blocks = 0;
    from.finish(source);
    return index;
}

AdapterSlots::Answer EngineState::pin_adapter(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    const AdapterSlots::Answer answer = adapters_->pin(sequence.adapter);
    sequence.keeps_adapter = answer != AdapterSlots::Answer::full;
    return answer;
}

void EngineState::set_aside(std::uint32_t index) {
    ORRERY_ASSERT(waiting.back() == index);
    waiting.pop_back();
    sequences_[index].stage = Stage::arriving;
    ++aside_;
}

void EngineState::join(std::uint32_t index) {
    sequences_[index].stage = Stage::waiting;
    sequences_[index].newcomer = true;
    waiting.push_back(index);
    ++enqueued_;
    --aside_;
}

void EngineState::drop_aside(std::uint32_t index) {
    --aside_;
    finish(index);
}

void EngineState::mark_foreign(std::uint32_t index) {
    sequences_[index].foreign = true;
    ++foreign_;
}

void EngineState::arrived(std::uint32_t index) {
    sequences_[index].stage = Stage::waiting;
    name_blocks(index);
    wait_behind_holders(index);
}

std::uint32_t EngineState::claim_prefix(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    if (cache_ && sequence.blocks == 0 && sequence.cached == 0) {
        std::uint64_t taken = 0;
        for (std::uint64_t j = 0; j < findable(sequence); ++j) {
            const std::uint64_t key = sequence.content.key(j, limits_.block);
            const std::uint32_t block = key == 0 ? TierCache::kNone : cache_->find(key);
            if (block == TierCache::kNone || cache_->tier(block) != kOnDevice) {
                break;
            }
            taken += cache_->claim(block) ? 1 : 0;
            sequence.named.push_back(block);
        }
        take(taken);
        sequence.blocks = static_cast<std::uint32_t>(sequence.named.size());
        sequence.cached = sequence.blocks * limits_.block;
        sequence.claims = sequence.blocks > 0;
    }
    return sequence.left_to_prefill();
}

void EngineState::forget_prefix(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    if (sequence.claims) {
        release(sequence);
        sequence.cached = 0;
    }
}

std::uint32_t EngineState::cached_prefix(const PromptContent& content, std::uint32_t prompt) const {
    std::uint64_t found = 0;
    for (; cache_ && found < (prompt - 1) / limits_.block; ++found) {
        const std::uint64_t key = content.key(found, limits_.block);
        if (key == 0 || cache_->find(key) == TierCache::kNone) {
            break;
        }
    }
    return static_cast<std::uint32_t>(found * limits_.block);
}

void EngineState::name_blocks(std::uint32_t index) {
    if (!cache_) {
        return;
    }
    Sequence& sequence = sequences_[index];
    while ((sequence.named.size() + 1) * limits_.block <= sequence.cached) {
        const std::uint64_t key = sequence.content.key(sequence.named.size(), limits_.block);
        sequence.named.push_back(key == 0 ? TierCache::kNone : cache_->publish(key));
    }
}

EngineState::Fetch EngineState::begin_fetch(std::uint32_t index, std::uint64_t room, std::uint32_t elsewhere) {
    Sequence& sequence = sequences_[index];
    Fetch fetch;
    if (!cache_ || limits_.host_cache + limits_.nvme_cache + elsewhere == 0) {
        return fetch;
    }
    std::vector<std::uint32_t> found;
    for (std::uint64_t j = 0; j < findable(sequence); ++j) {
        const std::uint64_t key = sequence.content.key(j, limits_.block);
        const std::uint32_t block = key == 0 ? TierCache::kNone : cache_->find(key);
        if (block == TierCache::kNone) {
            break;
        }
        found.push_back(block);
        fetch.host += cache_->tier(block) == kInHostMemory ? limits_.block_bytes : 0;
        fetch.nvme += cache_->tier(block) == kOnNvme ? limits_.block_bytes : 0;
    }
    fetch.elsewhere = elsewhere * limits_.block_bytes;
    const std::uint32_t wanted = blocks_for(room);
    if (fetch.all() <= 0 || wanted > free_blocks()) {
        return {};
    }
    std::uint64_t taken = 0;
    std::uint64_t here = 0;
    for (const std::uint32_t block : found) {
        const std::size_t tier = cache_->tier(block);
        const bool on_device = tier == kOnDevice;
        sequence.brought.at(0) += tier == kInHostMemory ? 1 : 0;
        sequence.brought.at(1) += tier == kOnNvme ? 1 : 0;
        taken += on_device && cache_->claim(block) ? 1 : 0;
        here += on_device ? 1 : 0;
        sequence.named.push_back(on_device ? block : TierCache::kNone);
    }
    sequence.brought.at(2) += elsewhere;
    sequence.named.resize(found.size() + elsewhere, TierCache::kNone);
    take(taken + wanted - here);
    sequence.blocks = wanted;
    sequence.stage = Stage::arriving;
    const std::size_t gone = std::erase(waiting, index);
    ORRERY_ASSERT(gone == 1);
    return fetch;
}

void EngineState::end_fetch(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    for (std::size_t j = 0; j < sequence.named.size(); ++j) {
        if (sequence.named[j] == TierCache::kNone) {
            sequence.named[j] = cache_->publish(sequence.content.key(j, limits_.block));
        }
    }
    sequence.cached = static_cast<std::uint32_t>(sequence.named.size()) * limits_.block;
    arrived(index);
}

void EngineState::take(std::uint64_t blocks) {
    *used_blocks_ += blocks;
    ORRERY_ASSERT(*used_blocks_ <= limits_.blocks);
    if (cache_) {
        cache_->trim(limits_.blocks - *used_blocks_);
    }
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
        forget_prefix(index);
        return false;
    }
    sequence.blocks = wanted;
    take(more);
    return true;
}

bool EngineState::schedule(std::uint32_t index, std::uint32_t tokens, Batch& batch, std::uint64_t spare) {
    const Sequence& sequence = sequences_[index];
    const std::uint32_t context = sequence.cached + tokens;
    const std::uint32_t drafted = drafts(sequence);
    std::uint64_t room = std::uint64_t{context} + drafted;
    if (limits_.ahead > 0 && context == sequence.needed()) [[unlikely]] {
        room += beyond(sequence);
    }
    if (!reserve(index, room, spare)) {
        return false;
    }
    batch.drafted += drafted;
    if (sequence.adapter > 0) [[unlikely]] {
        batch.use_adapter(sequence.adapter, tokens + drafted);
    }
    if (limits_.prefix_reads == PrefixReads::once && sequence.decoding() && !sequence.named.empty()) [[unlikely]] {
        share_prefix(index, batch);
    }
    batch.items.push_back(BatchItem{index, tokens, context});
    return true;
}

// Of two sequences that begin with the same block: a block is named by all tokens up to its end, so that those in common come first.
static std::uint32_t common_blocks(const Sequence& a, const Sequence& b, std::uint32_t most) {
    std::uint32_t same = 1;
    std::uint32_t differs = std::min(most, static_cast<std::uint32_t>(std::min(a.named.size(), b.named.size()))) + 1;
    while (differs - same > 1) {
        const std::uint32_t middle = same + (differs - same) / 2;
        const std::uint32_t block = a.named[middle - 1];
        (block != TierCache::kNone && block == b.named[middle - 1] ? same : differs) = middle;
    }
    return same;
}

void EngineState::share_prefix(std::uint32_t index, Batch& batch) const {
    const Sequence& sequence = sequences_[index];
    const std::uint32_t first = sequence.named.front();
    if (first == TierCache::kNone) {
        return;
    }
    const auto found = std::find_if(batch.prefixes.begin(), batch.prefixes.end(),
                                    [&](const SharedPrefix& one) { return one.first == first; });
    if (found == batch.prefixes.end()) {
        batch.prefixes.push_back({first, index, static_cast<std::uint32_t>(sequence.named.size())});
        return;
    }
    found->blocks = common_blocks(sequences_[found->leader], sequence, found->blocks);
    ++found->sequences;
}

void EngineState::admit_front() {
    const std::uint32_t index = waiting.front();
    waiting.pop_front();
    start_running(index);
}

void EngineState::admit_arrived() {
    // Who holds blocks waits before everybody else.
    while (!waiting.empty() && has_place() && sequences_[waiting.front()].blocks > 0 &&
           sequences_[waiting.front()].decoding()) {
        admit_front();
    }
}

void EngineState::start_running(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    if (cache_ && sequence.generated == 0 && sequence.admitted == 0) {
        prompt_tokens_ += sequence.prompt;
        prefix_tokens_ += sequence.cached;
        for (std::size_t i = 0; i < brought_tokens_.size(); ++i) {
            brought_tokens_.at(i) += std::uint64_t{sequence.brought.at(i)} * limits_.block;
        }
    }
    sequence.stage = Stage::running;
    sequence.claims = false;
    sequence.admitted = ++admissions_;
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
    std::uint64_t freed = sequence.blocks;
    // The end of a prompt is the first to be forgotten: what comes before it is of use to more.
    for (std::size_t j = sequence.named.size(); j-- > 0;) {
        if (sequence.named[j] != TierCache::kNone && !cache_->drop(sequence.named[j])) {
            --freed;
        }
    }
    ORRERY_ASSERT(*used_blocks_ >= freed);
    *used_blocks_ -= freed;
    sequence.blocks = 0;
    sequence.claims = false;
    sequence.named.clear();
}

void EngineState::recompute_later(std::size_t place) {
    const std::uint32_t index = running[place];
    Sequence& sequence = sequences_[index];
    release(sequence);
    drop_copy(sequence);
    sequence.cached = 0;
    sequence.stage = Stage::waiting;
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(place));
    wait_behind_holders(index);
    ++preemptions;
}

bool EngineState::swap_out(std::size_t place, Batch& batch) {
    const std::uint32_t index = running[place];
    Sequence& sequence = sequences_[index];
    const std::uint32_t blocks = sequence.blocks;
    const std::uint32_t fresh = blocks - sequence.copied;
    if (!make_host_room(fresh, index)) {
        return false;
    }
    release(sequence);
    sequence.blocks = blocks;
    used_host_blocks_ += fresh;
    reused_blocks_ += sequence.copied;
    batch.swap_out += fresh * limits_.block_bytes;
    batch.copies_out += copies_of(fresh);
    // A block that is not full yet changes when the sequence goes on.
    sequence.copied = limits_.keeps_copies ? sequence.cached / limits_.block : 0;
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
    back_from_host(sequence);
    batch.swap_in += sequence.blocks * limits_.block_bytes;
    batch.copies_in += copies_of(sequence.blocks);
    start_running(swapped.front());
    swapped.pop_front();
    return true;
}

bool EngineState::swap_in_behind(std::uint64_t spare) {
    const std::uint32_t index = swapped.front();
    Sequence& sequence = sequences_[index];
    if (sequence.blocks + spare > free_blocks()) {
        return false;
    }
    back_from_host(sequence);
    sequence.stage = Stage::arriving;
    swapped.pop_front();
    returning_.push_back({index, sequence.blocks * limits_.block_bytes, copies_of(sequence.blocks)});
    return true;
}

void EngineState::back_from_host(Sequence& sequence) {
    used_host_blocks_ -= sequence.blocks - sequence.copied;
    take(sequence.blocks);
}

void EngineState::drop_copy(Sequence& sequence) {
    used_host_blocks_ -= sequence.copied;
    sequence.copied = 0;
}

// Copies of what runs make room for what does not: the newest first, but not that of `keep`.
bool EngineState::make_host_room(std::uint64_t blocks, std::uint32_t keep) {
    for (std::size_t i = running.size(); i-- > 0 && used_host_blocks_ + blocks > limits_.host_blocks;) {
        if (running[i] != keep) {
            drop_copy(sequences_[running[i]]);
        }
    }
    return used_host_blocks_ + blocks <= limits_.host_blocks;
}

void EngineState::withdraw(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    ORRERY_ASSERT(!sequence.in_flight);
    switch (sequence.stage) {
        case Stage::waiting:
            std::erase(waiting, index);
            break;
        case Stage::running:
            std::erase(running, index);
            break;
        case Stage::swapped:
            std::erase(swapped, index);
            used_host_blocks_ -= sequence.blocks;
            sequence.blocks = 0;
            sequence.copied = 0;
            break;
        default:
            break;
    }
    finish(index);
}

std::uint32_t EngineState::readmit(const Sequence& sequence) {
    const std::uint32_t index = adopt(sequence);
    Sequence& here = sequences_[index];
    here.cached = 0;
    here.brought = {};
    here.admitted = 0;
    here.in_flight = false;
    here.claims = false;
    here.level = 0;
    here.service = 0;
    here.stage = Stage::waiting;
    here.newcomer = true;
    waiting.push_back(index);
    ++enqueued_;
    return index;
}

std::vector<std::uint32_t> EngineState::all() const {
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
        if (sequences_[i].stage != Stage::finished) {
            indices.push_back(i);
        }
    }
    std::sort(indices.begin(), indices.end(),
              [&](std::uint32_t a, std::uint32_t b) { return sequences_[a].id < sequences_[b].id; });
    return indices;
}

void EngineState::reset() {
    sequences_.clear();
    free_.clear();
    waiting.clear();
    running.clear();
    swapped.clear();
    without_room.clear();
    *used_blocks_ = 0;
    used_host_blocks_ = 0;
    returning_.clear();
    in_flight_ = 0;
    aside_ = 0;
    foreign_ = 0;
    empty_caches();
    for (const CacheWatcher& watcher : watchers_) {
        watcher(CacheChange::cleared, 0);
    }
}

void EngineState::finish(std::uint32_t index) {
    Sequence& sequence = sequences_[index];
    release(sequence);
    drop_copy(sequence);
    sequence.stage = Stage::finished;
    if (sequence.keeps_adapter) {
        adapters_->unpin(sequence.adapter);
        sequence.keeps_adapter = false;
    }
    foreign_ -= sequence.foreign ? 1 : 0;
    sequence.foreign = false;
    free_.push_back(index);
}

}  // namespace orrery::serving
