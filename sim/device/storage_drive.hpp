#pragma once
// Drives that hold keys and values of a served model, and attend to them themselves or are read by the device.
//
// Claims: a drive has channels of dies; a channel moves its pages at the rate of its bus, or at that of its dies (a page per die and
// page time) where that is slower. Keys of a head, and values, lie in pages of their own, so that whole pages are read. Attention of
// one new token reads the given share of the pages. In the drive, what the flash reads passes a filter per channel and a multiplying unit,
// which work beside it: the slowest decides; queries, the new keys and values, and the outputs cross the link. Without a
// multiplying unit all pages cross the link to the device. Heads are dealt to the drives in turn.
// Prompts write their keys and values, layer by layer behind the computation; keys may be kept in several orders.
// Scope: models/unit_model.hpp prices attention with it.
// Limits: softmax and the choice of pages take no time; pages are spread evenly over channels and dies; no garbage collection.
// Sources: Pan et al., "InstInfer", arXiv:2409.04992 (channels, pages by head, filter and units); JEDEC JESD230 for the terms.
// Validated by tests/sim/device/storage_drive_test.cpp.

#include "sim/config/fields.hpp"

namespace orrery::device {

struct DriveSpec {
    std::int64_t drives = 0;  ///< 0: none
    std::int64_t channels = 8, dies = 4;
    std::int64_t key_orders = 1;   ///< in which keys are kept, each of them whole
    double selected = 1;           ///< share of the pages that attention reads
    Sourced<double> capacity;      ///< B of a drive
    Sourced<double> page;          ///< B
    Sourced<double> page_read;     ///< s until a die has read a page,
    Sourced<double> page_write;    ///< or written one
    Sourced<double> channel_rate;  ///< B/s
    Sourced<double> filter;        ///< B/s of a channel; 0: none
    Sourced<double> compute;       ///< FLOP/s of a drive; 0: none, and the device attends
    Sourced<double> link;          ///< B/s of a drive's link, a direction
    Sourced<double> link_latency;  ///< s

    [[nodiscard]] bool present() const { return drives > 0; }
    [[nodiscard]] bool attends() const { return compute.value > 0; }
    /// B/s of a drive's flash.
    [[nodiscard]] double read_rate() const { return flash_rate(page_read.value); }
    [[nodiscard]] double write_rate() const { return flash_rate(page_write.value); }

  private:
    [[nodiscard]] double flash_rate(double page_time) const;
};

/// `heads`: of queries, of which `group` share keys; `element`: B of a number.
struct DriveAttention {
    double heads, group, keys, head_dim, element;
};
/// B of pages that attention reads of the drive with the most heads.
[[nodiscard]] double pages_read(const DriveSpec& drive, const DriveAttention& work);
/// s of attention of one new token in the drives.
[[nodiscard]] double attention_in_drive(const DriveSpec& drive, const DriveAttention& work);
/// s until the pages that it reads are with the device.
[[nodiscard]] double pages_over_link(const DriveSpec& drive, const DriveAttention& work);
/// s in which keys and values of so many new tokens are written.
[[nodiscard]] double written(const DriveSpec& drive, const DriveAttention& work, double tokens);
/// B of keys and values of a layer on the fullest drive.
[[nodiscard]] double stored(const DriveSpec& drive, const DriveAttention& work);

void describe(Fields& fields, DriveSpec& drive);

}  // namespace orrery::device
