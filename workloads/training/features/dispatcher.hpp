#pragma once
// The `dispatcher` section of a training plan: the library that exchanges tokens with experts, and what it costs beside the bytes.
//
// Claims: of a library that leaves counts of tokens on the device the host waits less than of one that asks for them (`wait`, in place of
// the software's expert_wait; less with graphs of layers, none with a padded capacity, as there). A library whose messages go through a
// proxy on the host starts each exchange late (`start`, once per dispatch and once per combine, forward and backward). Where the proxy
// posts a message for each token and node, these bound it beside the bytes; a library may reach a share of the network's rate.
// Scope: how bytes travel is `dispatch`; the library does not change it.
// Sources: of each constant in dispatcher.cpp.
// Validated by tests/workloads/experts_test.cpp (closed forms) and `orrery validate training` (validation/training/recent).

#include "workloads/training/plan/feature.hpp"

#include <cstdint>

namespace orrery::training {

enum class DispatchLibrary : std::uint8_t { nccl, deepep, hybridep, proxy, uccl, nvshmem, gin };

struct DispatcherPlan final : FeatureOf<DispatcherPlan> {
    DispatchLibrary library = DispatchLibrary::nccl;
    double own_wait = 0, own_start = 0;  ///< s; 0: the library's

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    /// Seconds that the device waits for the host in each layer of a forward pass; `asked`: where it asks for counts of tokens;
    /// `beside_graphs`: where all but exchanges and experts is replayed as graphs.
    [[nodiscard]] double wait(double asked, bool beside_graphs) const;
    /// Seconds before the first byte of an exchange is under way.
    [[nodiscard]] double start() const;
    /// The host waits inside a forward pass's dispatch and queues nothing behind it, so that it hides behind no other micro-batch.
    [[nodiscard]] bool blocks() const;
    /// Seconds of an exchange whose bytes take `bytes` s, in so many messages of a rank to other nodes.
    [[nodiscard]] double seconds(double bytes, double messages) const;
};

}  // namespace orrery::training
