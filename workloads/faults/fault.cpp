#include "workloads/faults/fault.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace orrery::faults {

const std::vector<std::string>& component_names() {
    static const std::vector<std::string> kNames = {"gpu",  "hbm",     "nic",      "link",   "switch",
                                                    "host", "storage", "software", "replica"};
    return kNames;
}

namespace {

struct KindOfFault {
    const char* name;
    KindTraits traits;
    std::vector<Place::What> places;  ///< that it can happen to
};

// In the order of FaultKind, up to those of packet runs.
const std::vector<KindOfFault>& fault_kinds() {
    using enum Place::What;
    static const std::vector<KindOfFault> kKinds = {
        {"fail-stop", {false, false, false}, {gpu, nic, node, job, replica}},
        {"link-down", {false, true, false}, {nic, leaf_spine}},
        {"link-flap", {false, true, true}, {nic, leaf_spine}},
        {"degraded", {true, true, false}, {nic, leaf_spine, storage}},
        {"slow", {true, true, false}, {gpu, node, replica}},
        {"hang", {false, false, false}, {gpu, node, job, replica}},
        {"corruption", {false, false, false}, {gpu, node}},
        {"outage", {false, true, true}, {storage}},
        {"switch-loss", {false, true, false}, {leaf, spine}},
        {"power-cap", {true, true, false}, {node, leaf, job}},
        {"preemption", {false, true, false}, {node}}};
    return kKinds;
}

}  // namespace

const std::vector<std::string>& fault_kind_names() {
    static const std::vector<std::string> kNames = [] {
        std::vector<std::string> names;
        for (const KindOfFault& one : fault_kinds()) {
            names.emplace_back(one.name);
        }
        return names;
    }();
    return kNames;
}

KindTraits traits_of(FaultKind kind) {
    return fault_kinds().at(static_cast<std::size_t>(kind)).traits;
}

std::vector<FaultKind> kinds_of(Component component) {
    switch (component) {
        case Component::gpu:
        case Component::hbm:
            return {FaultKind::fail_stop, FaultKind::slow, FaultKind::hang, FaultKind::corruption};
        case Component::nic:
            return {FaultKind::fail_stop, FaultKind::degraded, FaultKind::link_down, FaultKind::link_flap};
        case Component::link:
            return {FaultKind::link_down, FaultKind::link_flap, FaultKind::degraded};
        case Component::switches:
            return {FaultKind::switch_loss};
        case Component::host:
            return {FaultKind::fail_stop,  FaultKind::slow,      FaultKind::hang,
                    FaultKind::corruption, FaultKind::power_cap, FaultKind::preemption};
        case Component::storage:
            return {FaultKind::outage, FaultKind::degraded};
        case Component::replica:
            return {FaultKind::fail_stop, FaultKind::hang, FaultKind::slow};
        case Component::software:
            break;
    }
    return {FaultKind::fail_stop, FaultKind::hang};
}

std::uint32_t JobShape::count(Component component) const {
    switch (component) {
        case Component::gpu:
        case Component::hbm:
            return nodes * gpus_per_node;
        case Component::nic:
        case Component::link:
            return nodes * nics_per_node;
        case Component::switches:
            return leaves + spines;
        case Component::host:
            return nodes;
        case Component::replica:
            return replicas;
        case Component::storage:
        case Component::software:
            break;
    }
    return 1;
}

namespace {

struct Named {
    const char* word;
    Place::What what;
};
constexpr Named kNumbered[] = {{"gpu", Place::What::gpu},     {"nic", Place::What::nic},
                               {"node", Place::What::node},   {"leaf", Place::What::leaf},
                               {"spine", Place::What::spine}, {"replica", Place::What::replica}};

std::uint32_t most(Place::What what, const JobShape& shape) {
    switch (what) {
        case Place::What::gpu:
            return shape.nodes * shape.gpus_per_node;
        case Place::What::nic:
            return shape.nodes * shape.nics_per_node;
        case Place::What::node:
            return shape.nodes;
        case Place::What::leaf:
            return shape.leaves;
        case Place::What::spine:
            return shape.spines;
        case Place::What::replica:
            return shape.replicas;
        default:
            return 1;
    }
}

// A word and a number; false when it is something else.
bool parse_numbered(const std::string& text, Place::What& what, std::uint32_t& index) {
    const auto digit = std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    const std::string word(text.begin(), digit);
    const auto row =
        std::find_if(std::begin(kNumbered), std::end(kNumbered), [&](const Named& one) { return word == one.word; });
    if (row == std::end(kNumbered) || digit == text.end()) {
        return false;
    }
    what = row->what;
    const char* end = text.data() + text.size();
    const auto [stopped, failed] = std::from_chars(text.data() + (digit - text.begin()), end, index);
    return failed == std::errc() && stopped == end;
}

// The place nearest to a word, with the numbers that it has.
std::string guess(const std::string& text, const JobShape& shape) {
    const auto is_digit = [&](std::size_t i) { return std::isdigit(static_cast<unsigned char>(text[i])) != 0; };
    std::vector<std::string> numbers;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (is_digit(i) && (i == 0 || !is_digit(i - 1))) {
            numbers.emplace_back();
        }
        if (is_digit(i)) {
            numbers.back() += text[i];
        }
    }
    numbers.resize(std::max<std::size_t>(2, numbers.size()), "0");
    std::vector<std::string> places = {"storage", "job"};
    for (const Named& one : kNumbered) {
        if (most(one.what, shape) > 0) {
            places.push_back(one.word + numbers[0]);
        }
    }
    if (shape.leaves > 0) {
        places.push_back(fmt::format("leaf{}-spine{}", numbers[0], numbers[1]));
    }
    const std::string nearest = nearest_name(text, places);
    return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

bool there(Place::What what, std::uint32_t index, const JobShape& shape, const std::string& text,
           std::string& problem) {
    const std::uint32_t count = most(what, shape);
    if (index < count) {
        return true;
    }
    const char* word = "";
    for (const Named& one : kNumbered) {
        word = one.what == what ? one.word : word;
    }
    const char* none = what == Place::What::replica ? "a training job has no replicas of a service"
                       : shape.replicas > 0 ? "faults of a service are of replicas, nodes, GPUs, NICs and storage"
                                            : "the fabric is no tree of leaves and spines";
    problem = count == 0 ? fmt::format("'{}': {}", text, none)
                         : fmt::format("'{}' does not exist: the {} has {}0 to {}{}", text,
                                       shape.replicas > 0 ? "service" : "job", word, word, count - 1);
    return false;
}

}  // namespace

bool parse_place(const std::string& text, const JobShape& shape, Place& place, std::string& problem) {
    if (text == "storage" || text == "job") {
        place = {text == "storage" ? Place::What::storage : Place::What::job, 0, 0};
        return true;
    }
    const std::size_t dash = text.find('-');
    const std::string first = text.substr(0, dash);
    if (!parse_numbered(first, place.what, place.index)) {
        problem = fmt::format("'{}' is no place: one of gpu0, nic0, node0, {}, storage, job{}", text,
                              shape.replicas > 0 ? "replica0" : "leaf0, spine0, leaf0-spine0", guess(text, shape));
        return false;
    }
    place.upper = 0;
    if (!there(place.what, place.index, shape, first, problem)) {
        return false;
    }
    if (dash == std::string::npos) {
        return true;
    }
    Place::What upper = Place::What::job;
    const std::string second = text.substr(dash + 1);
    if (place.what != Place::What::leaf || !parse_numbered(second, upper, place.upper) || upper != Place::What::spine) {
        problem = fmt::format("'{}' is no link: leaf0-spine0 is, and nic0 for the link of a NIC to its leaf", text);
        return false;
    }
    place.what = Place::What::leaf_spine;
    return there(Place::What::spine, place.upper, shape, second, problem);
}

bool suits(FaultKind kind, const Place& place) {
    const std::vector<Place::What>& places = fault_kinds().at(static_cast<std::size_t>(kind)).places;
    return std::find(places.begin(), places.end(), place.what) != places.end();
}

Place place_of(Component component, std::uint32_t index, const JobShape& shape) {
    switch (component) {
        case Component::gpu:
        case Component::hbm:
            return {Place::What::gpu, index, 0};
        case Component::nic:
        case Component::link:
            return {Place::What::nic, index, 0};
        case Component::switches:
            return index < shape.leaves ? Place{Place::What::leaf, index, 0}
                                        : Place{Place::What::spine, index - shape.leaves, 0};
        case Component::host:
            return {Place::What::node, index, 0};
        case Component::storage:
            return {Place::What::storage, 0, 0};
        case Component::replica:
            return {Place::What::replica, index, 0};
        case Component::software:
            break;
    }
    return {Place::What::job, 0, 0};
}

}  // namespace orrery::faults
