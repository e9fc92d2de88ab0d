#include "sim/device/storage_drive.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

void describe(Fields& fields, DriveSpec& drive) {
    fields.integer({"drives", "drives of the device that hold keys and values (0: none)", false, 0, 1000},
                   drive.drives);
    fields.integer({"channels", "channels of a drive", false, 1, 1024}, drive.channels);
    fields.integer({"dies", "dies of a channel", false, 1, 1024}, drive.dies);
    fields.integer({"key_orders", "orders in which keys are kept, each of them whole", false, 1, 8}, drive.key_orders);
    fields.number({"selected", "share of the pages of keys and values that attention reads", false, 1e-4, 1},
                  drive.selected);
    fields.sourced({"capacity", "capacity of a drive", true, 1, 1e18}, Dimension::bytes, drive.capacity);
    fields.sourced({"page", "bytes that are read and written together", true, 1, 1e7}, Dimension::bytes, drive.page);
    fields.sourced({"page_read", "time in which a die reads a page (tR)", true, 1e-9, 1}, Dimension::time,
                   drive.page_read);
    fields.sourced({"page_write", "time in which a die writes a page (tPROG)", true, 1e-9, 1}, Dimension::time,
                   drive.page_write);
    fields.sourced({"channel_rate", "rate of a channel's bus", true, 1, 1e12}, Dimension::rate, drive.channel_rate);
    fields.sourced({"filter", "rate of a channel's filter, which drops the part of a page that is not wanted (0: none)",
                    false, 0, 1e12},
                   Dimension::rate, drive.filter);
    fields.sourced({"compute", "rate of a drive's multiplying units (0: none, the device attends)", false, 0, 1e16},
                   Dimension::flops, drive.compute);
    fields.sourced({"link", "rate of a drive's link to the device, in each direction", true, 1, 1e13}, Dimension::rate,
                   drive.link);
    fields.sourced({"link_latency", "latency of a transfer over that link", false, 0, 1}, Dimension::time,
                   drive.link_latency);
}

double DriveSpec::flash_rate(double page_time) const {
    return static_cast<double>(channels) *
           std::min(channel_rate.value, static_cast<double>(dies) * page.value / page_time);
}

namespace {

// Heads of keys on the fullest drive.
double key_heads(const DriveSpec& drive, const DriveAttention& work) {
    return std::ceil(work.heads / work.group / static_cast<double>(drive.drives));
}

double pages(const DriveSpec& drive, const DriveAttention& work) {
    return std::ceil(work.keys * work.head_dim * work.element / drive.page.value);
}

}  // namespace

double pages_read(const DriveSpec& drive, const DriveAttention& work) {
    return 2 * key_heads(drive, work) * std::ceil(drive.selected * pages(drive, work)) * drive.page.value;
}

double stored(const DriveSpec& drive, const DriveAttention& work) {
    return (1 + static_cast<double>(drive.key_orders)) * key_heads(drive, work) * pages(drive, work) * drive.page.value;
}

double attention_in_drive(const DriveSpec& drive, const DriveAttention& work) {
    const double read = pages_read(drive, work);
    const double vectors = key_heads(drive, work) * work.head_dim * work.element;  // of a token
    const double sent = (work.group + 2) * vectors;
    ORRERY_ASSERT(drive.drives > 0 && drive.read_rate() > 0);
    const double flash = drive.page_read.value + read / drive.read_rate();
    const double filter =
        drive.filter.value > 0 ? read / (static_cast<double>(drive.channels) * drive.filter.value) : 0;
    // Two products of a multiplication and an addition, for each query head that shares the keys.
    const double products = 2 * work.group * read / work.element / drive.compute.value;
    return 2 * drive.link_latency.value + (sent + work.group * vectors) / drive.link.value +
           std::max({flash, filter, products});
}

double pages_over_link(const DriveSpec& drive, const DriveAttention& work) {
    const double read = pages_read(drive, work);
    return drive.link_latency.value + drive.page_read.value +
           std::max(read / drive.read_rate(), read / drive.link.value);
}

double written(const DriveSpec& drive, const DriveAttention& work, double tokens) {
    const double vectors = key_heads(drive, work) * work.head_dim * work.element * tokens;
    return drive.link_latency.value +
           std::max(2 * vectors / drive.link.value,
                    (1 + static_cast<double>(drive.key_orders)) * vectors / drive.write_rate());
}

}  // namespace orrery::device
