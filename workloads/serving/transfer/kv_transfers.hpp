#pragma once
// KvTransfers: sequences that go from the replica that computed their prompt to one that decodes them.
//
// The target is chosen and makes room first; then the keys and values go over the fabric, whole after the prompt or layer
// by layer while it computes. The source keeps its blocks until all has arrived. On the same devices nothing is sent.

#include "sim/network/slots.hpp"
#include "workloads/serving/fleet/routes.hpp"
#include "workloads/serving/front_end/request_places.hpp"

#include <array>
#include <map>

namespace orrery::serving {

class KvTransfers final : public FleetPart {
  public:
    /// All arguments outlive this.
    KvTransfers(const ServiceSpec& spec, Fleet& fleet, Routes& decoders, RequestPlaces& places, ServiceResult& result)
        : FleetPart(spec, fleet, result), decoders_(decoders), places_(places) {}

    /// Prompts that end with this batch of a prefill replica start on their way, where the cache goes layer by layer.
    void batch_starts(std::uint32_t replica, const Batch& batch);
    /// A prompt is done on `from`: the rest of its cache goes on its way as soon as there is room for it.
    void prompt_done(std::uint32_t from, std::uint32_t sequence);
    /// Whether a sequence should rather stay where its prompt was computed, as the decode replicas are full.
    [[nodiscard]] bool decoders_are_full() const;
    /// Sequences that have left a replica gave blocks back: the KV transfers that wait longest get them.
    void make_room(std::uint32_t replica);
    /// A part of a cache is there: 1 is the rest of one that went layer by layer, else 0.
    void on_done(std::uint64_t part_and_id, Dispatcher& dispatcher) override;
    /// A replica fails: gives back what others hold for its KV transfers. Sequences that were on their way to it, prompt done,
    /// are freed at their source and returned.
    [[nodiscard]] std::vector<Sequence> fail(std::uint32_t replica);
    /// Whether a sequence's cache is on its way already.
    [[nodiscard]] bool under_way(std::uint32_t replica, std::uint32_t sequence) const {
        return by_source_.count({replica, sequence}) > 0;
    }

  private:
    struct KvTransfer {
        std::uint32_t from = 0, to = 0;        ///< replicas
        std::uint32_t source = 0, target = 0;  ///< sequences there
        std::uint32_t transfers = 0;           ///< under way
        bool prompt_done = false;
        bool has_room = false;
        bool sent_whole = false;         ///< nothing went before the prompt was done
        bool lost = false;               ///< a replica failed; waits for its transfers to end
        SimTime ready;                   ///< when the prompt was done
        std::array<SimTime, 2> started;  ///< by part
        std::array<double, 2> bytes{};
        std::uint32_t parts = 0;  ///< that were sent
    };

    std::uint32_t open(std::uint32_t from, std::uint32_t source, std::uint32_t cached);
    void send(std::uint32_t id, double share, double wait = 0);
    void send_rest(std::uint32_t id);
    /// A sequence's cache is on `to`; the source is freed already.
    void arrived(std::uint32_t to, std::uint32_t sequence);
    /// For a timeline: a part has arrived.
    void record(const KvTransfer& kv_transfer, std::uint32_t part);
    /// On the same devices the cache stays where it is, and the other replica goes on.
    void pass_on(std::uint32_t from, std::uint32_t source);

    Routes& decoders_;
    RequestPlaces& places_;
    Slots<KvTransfer> kv_transfers_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> by_source_;  ///< by replica and sequence
};

}  // namespace orrery::serving
