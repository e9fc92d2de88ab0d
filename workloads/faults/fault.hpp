#pragma once
// What a `faults` section can name: components, kinds of faults and places of a job or service.

#include "sim/config/fields.hpp"
#include "sim/network/fault.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::faults {

/// What a fault process counts: MTBF is of one of these.
enum class Component { gpu, hbm, nic, link, switches, host, storage, software, replica };
[[nodiscard]] const std::vector<std::string>& component_names();

/// Those that a `faults` section may name.
[[nodiscard]] const std::vector<std::string>& fault_kind_names();

/// What the fields of a fault mean for its kind.
struct KindTraits {
    bool factor;    ///< takes a share of the speed or rate that is left
    bool lasts;     ///< may end by itself
    bool must_end;  ///< is nothing without an end
};
[[nodiscard]] KindTraits traits_of(FaultKind kind);
/// What a component can suffer.
[[nodiscard]] std::vector<FaultKind> kinds_of(Component component);

/// The job as faults see it: its nodes, and the switches that they are on.
struct JobShape {
    std::uint32_t nodes = 1;
    std::uint32_t gpus_per_node = 8;
    std::uint32_t nics_per_node = 8;
    std::uint32_t nodes_per_leaf = 16;
    std::uint32_t leaves = 0;  ///< 0: the fabric is no tree, and its switches cannot be named
    std::uint32_t spines = 0;
    std::uint32_t rails = 1;     ///< leaves that a node's NICs spread over
    std::uint32_t replicas = 0;  ///< of a service; a training job has none

    /// How many there are of a component.
    [[nodiscard]] std::uint32_t count(Component component) const;
};

/// Parses "gpu12", "node3", "nic7", "leaf3", "spine1", "leaf3-spine1", "storage", "job", "replica0". False, with the reason in `problem`, for
/// anything else and for what the job does not have.
[[nodiscard]] bool parse_place(const std::string& text, const JobShape& shape, Place& place, std::string& problem);
/// The same for a kind of fault: a link cannot hang.
[[nodiscard]] bool suits(FaultKind kind, const Place& place);
/// The place of component number `index`, as fault processes count them.
[[nodiscard]] Place place_of(Component component, std::uint32_t index, const JobShape& shape);

}  // namespace orrery::faults
