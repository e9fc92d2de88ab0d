#include "workloads/serving/schedulers/policies.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace orrery::serving {

namespace {

enum class GroupOrder { arrival, decode_heavy };

/// Requests that share a prefix one after another, for batches that are known beforehand; otherwise as ChunkedPrefill. A group is
/// what begins with the same block of the cache; in it, requests that share more stand beside each other, as leaves of a prefix
/// tree. Groups of which a member runs go on first, as their prefix is here; the others by the arrival of their first request, or
/// by prompt over output of all their members, what they share counted once (Zheng et al., "BatchLLM", arXiv:2412.03594: groups
/// with the larger ratio of decoding first, so that their decodes fill the iterations of later prompts).
/// Limits: groups are those of the first block, so that a prefix which all requests share makes one group of all; lengths of
/// outputs are known, where the publication estimates them.
class PrefixGroups final : public Scheduler {
  public:
    struct Parameters {
        GroupOrder order = GroupOrder::decode_heavy;
        void describe(Fields& fields) {
            fields.enumeration(
                {"order", "groups by their first request, or those with the most output for their prompts first"},
                {"arrival", "decode-heavy"}, order);
        }
    };
    explicit PrefixGroups(const Parameters& own) : order_(own.order) {}
    [[nodiscard]] SchedulerNeeds needs() const override { return {.prefix_cache = true}; }

    void plan(EngineState& state, Batch& batch) override {
        if (sorted_ != state.enqueued()) {
            sort(state);
            sorted_ = state.enqueued();
        }
        inner_.plan(state, batch);
    }

  private:
    struct Group {
        bool begun = false;     ///< a member of it runs
        double prompts = 0;     ///< tokens of all members, shared ones once
        double outputs = 0;     ///< tokens of all members
        std::uint64_t id = 0;   ///< of its first request
        std::uint64_t key = 0;  ///< of its first block; 0: a request on its own
    };
    void sort(EngineState& state) const;

    GroupOrder order_;
    std::uint64_t sorted_ = 0;  ///< arrivals in the queue as of the last sorting
    ChunkedPrefill inner_;
};

// Full blocks that a prompt can find in the cache: all but that of its last token.
std::uint64_t blocks_of(const Sequence& sequence, std::uint64_t block) {
    return (sequence.prompt - 1) / block;
}

std::uint64_t key_of(const Sequence& sequence, std::uint64_t index, std::uint64_t block) {
    return index < blocks_of(sequence, block) ? sequence.content.key(index, block) : 0;
}

// Of two sequences of one group.
std::uint64_t common_blocks(const Sequence& x, const Sequence& y, std::uint64_t block) {
    std::uint64_t common = 0;
    for (std::uint64_t key = key_of(x, 0, block); key != 0 && key == key_of(y, common, block);) {
        ++common;
        key = key_of(x, common, block);
    }
    return common;
}

void PrefixGroups::sort(EngineState& state) const {
    const std::uint64_t block = state.limits().block;
    std::set<std::uint64_t> begun;
    for (const std::uint32_t index : state.all()) {
        if (state.sequence(index).stage == Stage::running) {
            begun.insert(key_of(state.sequence(index), 0, block));
        }
    }
    // Who holds blocks already (a cache from another replica) must be able to go on, and stays before all others.
    const auto first = std::stable_partition(state.waiting.begin(), state.waiting.end(),
                                             [&](std::uint32_t index) { return state.sequence(index).blocks > 0; });
    std::sort(first, state.waiting.end(), [&](std::uint32_t a, std::uint32_t b) {
        const Sequence& x = state.sequence(a);
        const Sequence& y = state.sequence(b);
        const std::uint64_t common = common_blocks(x, y, block);
        return std::tuple(key_of(x, common, block), x.id) < std::tuple(key_of(y, common, block), y.id);
    });
    std::map<std::uint64_t, Group> groups;  // by the first request as it stands now
    std::vector<std::pair<std::uint64_t, std::uint32_t>> members;
    const Sequence* before = nullptr;
    Group group;
    std::uint64_t named = 0;
    for (auto place = first; place != state.waiting.end(); ++place) {
        const Sequence& sequence = state.sequence(*place);
        const std::uint64_t key = key_of(sequence, 0, block);
        const std::uint64_t common = before != nullptr ? common_blocks(*before, sequence, block) : 0;
        if (common == 0) {
            named = sequence.id;
            group = Group{key != 0 && begun.count(key) > 0, 0, 0, sequence.id, key};
        }
        group.prompts += static_cast<double>(sequence.prompt - common * block);
        group.outputs += sequence.output;
        group.id = std::min(group.id, sequence.id);
        groups[named] = group;
        members.emplace_back(named, *place);
        before = &sequence;
    }
    const auto profile = [&](const Group& one) {
        return order_ == GroupOrder::decode_heavy ? one.prompts / one.outputs : 0;
    };
    std::stable_sort(members.begin(), members.end(), [&](const auto& a, const auto& b) {
        const Group& x = groups.at(a.first);
        const Group& y = groups.at(b.first);
        return std::tuple(!x.begun, profile(x), x.id) < std::tuple(!y.begun, profile(y), y.id);
    });
    auto place = first;
    for (const auto& [name, index] : members) {
        *place++ = index;
    }
}

}  // namespace

extern const PolicyRow<Scheduler> kPrefixGroups = policy_row<Scheduler, PrefixGroups>(
    "prefix-groups", "chunked-prefill with requests that share a prefix grouped together (BatchLLM)");

}  // namespace orrery::serving
