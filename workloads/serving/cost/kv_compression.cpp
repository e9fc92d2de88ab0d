#include "workloads/serving/cost/kv_compression.hpp"

namespace orrery::serving {

void describe(Fields& fields, KvCompressionSpec& spec) {
    fields.number({"key_bits", "bits of each key", false, 1, 8}, spec.key_bits);
    fields.number({"value_bits", "bits of each value", false, 1, 8}, spec.value_bits);
    fields.integer({"group", "values that share a scale and a zero point", false, 1, 1 << 16}, spec.group);
    fields.quantity({"sparse", "share of values that is kept uncompressed, with its position", false, 0, 1},
                    Dimension::fraction, spec.sparse);
    fields.integer({"rank", "rank of the low-rank factors that repair each head; 0: none", false, 0, 1024}, spec.rank);
    fields.when(spec.rank > 0, "low-rank factors (rank above 0)", [&](Fields& same) {
        same.integer({"iterations", "iterations of the power method that finds the factors", false, 1, 1000},
                     spec.iterations);
    });
    fields.integer({"recent", "most recent tokens of a sequence that stay in 16 bits, until this number is reached",
                    false, 0, 1 << 20},
                   spec.recent);
    fields.enumeration(
        {"rebuild", "place where values become 16 bits again: in attention's kernel, or in memory before it"},
        {"in-kernel", "before"}, spec.rebuild);
}

double kv_bytes(const KvCompressionSpec& spec, Precision precision, double width, double head_dim) {
    if (!spec.given) {
        return 2 * width * bytes_of(precision);
    }
    constexpr double kScales = 2 * 2;  // B of a group
    constexpr double kWhole = 2 + 4;   // B of a value and its place
    const double each = kScales / static_cast<double>(spec.group) + kWhole * spec.sparse +
                        2 * static_cast<double>(spec.rank) / head_dim;
    return width * ((spec.key_bits + spec.value_bits) / 8 + 2 * each);
}

double kv_buffer_tokens(const KvCompressionSpec& spec) {
    return spec.given ? static_cast<double>(spec.recent + spec.rank) : 0;
}

}  // namespace orrery::serving
