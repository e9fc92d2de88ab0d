#include "workloads/collective/alike.hpp"

#include "sim/base/random.hpp"
#include "workloads/collective/message_path.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace orrery::collective {

namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFU;
// Each round goes over all messages. Regular fabrics need three or four; along rings it goes one message further in each.
constexpr std::uint64_t kFewRounds = 24;
constexpr std::uint64_t kMostVisits = 1U << 23;
constexpr std::size_t kMostCounts = 1U << 24;  // of messages of a class on a link

std::uint64_t bits(double value) {
    return std::bit_cast<std::uint64_t>(value);
}

std::size_t count_distinct(std::vector<std::uint64_t> values) {
    std::sort(values.begin(), values.end());
    return static_cast<std::size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

class Refinement {
  public:
    Refinement(const Fabric& fabric, const Placement& placement, const MessageStream& stream, PathChoice paths)
        : fabric_(fabric), placement_(placement), stream_(stream), paths_(paths) {
        if (stream.before) {
            message_colours_.assign(stream.size, 0);
        }
        colours_.reserve(fabric.resource_count());
        for (std::uint32_t link = 0; link < fabric.resource_count(); ++link) {
            colours_.push_back(mix64(bits(fabric.capacity(ResourceId(link)))));
        }
    }

    /// Tells links apart until no more can be. False where that is not worth it.
    bool refine() {
        std::vector<std::uint64_t> sums(colours_.size());
        std::vector<std::uint64_t> fresh(message_colours_.size());
        std::size_t before = 0;
        const std::uint64_t rounds = std::max(kFewRounds, kMostVisits / std::max<std::uint64_t>(1, stream_.size));
        for (std::uint64_t round = 0; round < rounds; ++round) {
            std::fill(sums.begin(), sums.end(), 0);
            for_each([&](const Sent& sent, std::uint64_t signature) {
                const std::span<const ResourceId> links = sent.route.resources();
                for (std::size_t i = 0; i < links.size(); ++i) {
                    sums[links[i].value()] += mix64(signature ^ port_hash(links[i], sent.route.share(i)));
                }
                if (!fresh.empty()) {
                    fresh[sent.number] = mix64(message_colours_[sent.number] ^ mix64(signature));
                }
            });
            std::swap(message_colours_, fresh);
            std::vector<std::uint64_t> distinct;
            for (std::size_t link = 0; link < sums.size(); ++link) {
                if (sums[link] != 0) {
                    colours_[link] = mix64(colours_[link] ^ mix64(sums[link]));
                    distinct.push_back(colours_[link]);
                }
            }
            const std::size_t used = distinct.size();
            const std::size_t links = count_distinct(std::move(distinct));
            const std::size_t messages = count_distinct(message_colours_);
            if (links + messages == before) {
                return true;
            }
            before = links + messages;
            if (2 * links > used || 4 * messages > stream_.size) {
                return false;
            }
        }
        return false;
    }

    /// Nothing where the classes are too many, or the conditions do not hold.
    std::optional<std::vector<MessageClass>> classes() {
        name_cells();
        if (!find_classes() || !count()) {
            return std::nullopt;
        }
        return std::move(out_);
    }

  private:
    struct Sent {
        std::uint64_t number;
        GpuId from;
        GpuId to;
        Route route;
        double latency = 0;  ///< with slow start
    };
    struct Port {  ///< of a class: what its messages use of a cell with the same share, once or several times
        std::uint32_t cell;
        double share;
        std::uint32_t times;
        friend bool operator==(const Port&, const Port&) = default;
    };
    struct Ports {
        std::vector<Port> ports;
        std::uint32_t first = 0;  ///< number of its first port among those of all classes
    };

    template <class Visit>
    void for_each(const Visit& visit) const {
        stream_.for_each([&](std::uint64_t number, std::uint32_t from, std::uint32_t to) {
            Sent sent{number, placement_.gpu(from), placement_.gpu(to), {}, 0};
            sent.route = fabric_.route(sent.from, sent.to, paths_, hash_of(sent.from, sent.to.value()));
            sent.latency = sent.route.latency + slow_start_of(fabric_, sent.from, sent.to, stream_.bytes);
            visit(sent, signature(sent));
        });
    }

    [[nodiscard]] std::uint64_t port_hash(ResourceId link, double share) const {
        return mix64(colours_[link.value()] ^ bits(share));
    }

    [[nodiscard]] std::uint64_t signature(const Sent& sent) const {
        std::uint64_t links = 0;
        for (std::size_t i = 0; i < sent.route.resources().size(); ++i) {
            links += port_hash(sent.route.resources()[i], sent.route.share(i));
        }
        const std::uint64_t own = mix64(bits(sent.latency) ^ mix64(bits(sent.route.rate_limit)));
        const std::uint64_t waits = stream_.before ? message_colours_[stream_.before(sent.number)] : 0;
        return mix64(mix64(own ^ links) ^ waits);
    }

    void name_cells() {
        std::unordered_map<std::uint64_t, std::uint32_t> cells;
        cell_of_.assign(colours_.size(), kNone);
        for (std::uint32_t link = 0; link < colours_.size(); ++link) {
            const auto [cell, fresh] = cells.try_emplace(colours_[link], static_cast<std::uint32_t>(first_.size()));
            if (fresh) {
                first_.push_back(link);
            }
            cell_of_[link] = cell->second;
        }
    }

    [[nodiscard]] std::vector<Port> ports_of(const Sent& sent) const {
        std::vector<Port> out;
        for (std::size_t i = 0; i < sent.route.resources().size(); ++i) {
            const Port port{cell_of_[sent.route.resources()[i].value()], sent.route.share(i), 1};
            const auto same = std::find_if(out.begin(), out.end(), [&](const Port& one) {
                return one.cell == port.cell && one.share == port.share;
            });
            if (same == out.end()) {
                out.push_back(port);
            } else {
                ++same->times;
            }
        }
        std::sort(out.begin(), out.end(),
                  [](const Port& a, const Port& b) { return a.cell != b.cell ? a.cell < b.cell : a.share < b.share; });
        return out;
    }

    // Every message of a class is as the first of it.
    bool find_classes() {
        ORRERY_ASSERT(first_.size() <= colours_.size());
        bool fine = true;
        const std::uint64_t most = stream_.size / 4;
        std::vector<std::uint32_t> classes(stream_.before ? stream_.size : 0);  // by message
        for_each([&](const Sent& sent, std::uint64_t signature) {
            if (!fine) {
                return;
            }
            const auto [known, fresh] = class_of_.try_emplace(signature, static_cast<std::uint32_t>(out_.size()));
            std::vector<Port> ports = ports_of(sent);
            if (!classes.empty()) {
                classes[sent.number] = known->second;
            }
            if (fresh) {
                fine = out_.size() < most;
                out_.push_back({{}, bound_of(sent.route), sent.latency, 1, 0});
                ports_.push_back({std::move(ports), ports_total_});
                ports_total_ += static_cast<std::uint32_t>(ports_.back().ports.size());
                return;
            }
            MessageClass& same = out_[known->second];
            ++same.count;
            fine = same.bound == bound_of(sent.route) && same.latency == sent.latency &&
                   ports_[known->second].ports == ports;
        });
        std::vector<bool> seen(out_.size());
        for (std::uint64_t number = 0; fine && number < classes.size(); ++number) {
            const std::uint32_t before = classes[stream_.before(number)];
            MessageClass& own = out_[classes[number]];
            fine = !seen[classes[number]] || own.before == before;
            own.before = before;
            seen[classes[number]] = true;
        }
        return fine;
    }

    // Every link of a cell is as the first of it; that one then stands for all.
    bool count() {
        std::vector<std::uint32_t> place(colours_.size(), kNone);  // of the links that are used
        std::uint32_t used = 0;
        for_each([&](const Sent& sent, std::uint64_t) {
            for (const ResourceId link : sent.route.resources()) {
                place[link.value()] = place[link.value()] == kNone ? used++ : place[link.value()];
            }
        });
        if (static_cast<std::size_t>(used) * ports_total_ > kMostCounts) {
            return false;
        }
        std::vector<std::uint32_t> counts(static_cast<std::size_t>(used) * ports_total_, 0);
        const auto of = [&](std::uint32_t link) {
            return counts.begin() + static_cast<std::ptrdiff_t>(place[link]) * ports_total_;
        };
        for_each([&](const Sent& sent, std::uint64_t signature) {
            const Ports& ports = ports_[class_of_.at(signature)];
            for (std::size_t i = 0; i < sent.route.resources().size(); ++i) {
                const std::uint32_t link = sent.route.resources()[i].value();
                const auto port = std::find_if(ports.ports.begin(), ports.ports.end(), [&](const Port& one) {
                    return one.cell == cell_of_[link] && one.share == sent.route.share(i);
                });
                ORRERY_ASSERT(port != ports.ports.end() && place[link] < used);
                ++*(of(link) + ports.first + (port - ports.ports.begin()));
            }
        });
        for (std::uint32_t link = 0; link < colours_.size(); ++link) {
            const std::uint32_t first = first_[cell_of_[link]];
            if (place[link] == kNone && place[first] == kNone) {
                continue;
            }
            if (place[link] == kNone || place[first] == kNone ||
                fabric_.capacity(ResourceId(link)) != fabric_.capacity(ResourceId(first)) ||
                !std::equal(of(link), of(link) + ports_total_, of(first))) {
                return false;
            }
        }
        for (std::size_t c = 0; c < out_.size(); ++c) {
            std::uint32_t number = ports_[c].first;
            std::uint32_t last = kNone;
            for (const Port& port : ports_[c].ports) {
                const std::uint32_t link = first_[port.cell];
                const double weight = *(of(link) + number++) * port.share;
                if (port.cell == last) {
                    out_[c].demands.back().weight += weight;
                } else {
                    out_[c].demands.push_back({ResourceId(link), weight});
                }
                last = port.cell;
            }
        }
        return true;
    }

    const Fabric& fabric_;
    const Placement& placement_;
    const MessageStream& stream_;
    PathChoice paths_;
    std::vector<std::uint64_t> colours_;                         ///< by link
    std::vector<std::uint64_t> message_colours_;                 ///< of messages that wait for others
    std::vector<std::uint32_t> cell_of_;                         ///< by link
    std::vector<std::uint32_t> first_;                           ///< by cell: its first link
    std::unordered_map<std::uint64_t, std::uint32_t> class_of_;  ///< by signature
    std::vector<MessageClass> out_;
    std::vector<Ports> ports_;  ///< by class
    std::uint32_t ports_total_ = 0;
};

}  // namespace

std::optional<std::vector<MessageClass>> alike_messages(const Fabric& fabric, const Placement& placement,
                                                        const MessageStream& stream, PathChoice paths) {
    Refinement refinement(fabric, placement, stream, paths);
    return refinement.refine() ? refinement.classes() : std::nullopt;
}

}  // namespace orrery::collective
