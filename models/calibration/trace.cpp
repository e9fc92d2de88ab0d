#include "models/calibration/trace.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace orrery::models {

namespace {

constexpr std::size_t kLongestLine = 4096;
constexpr std::size_t kMostRows = 20'000'000;
constexpr const char* kVersionLine = "# orrery-trace: 1";

struct TextColumn {
    const char* name;
    std::string TraceRow::*member;
};
struct NumberColumn {
    const char* name;
    double TraceRow::*member;
    double empty;  ///< what an empty cell stands for
};

constexpr std::array<TextColumn, 12> kTextColumns = {{{"dtype", &TraceRow::dtype},
                                                      {"kv_dtype", &TraceRow::kv_dtype},
                                                      {"layout", &TraceRow::layout},
                                                      {"library", &TraceRow::library},
                                                      {"kernel", &TraceRow::kernel},
                                                      {"algorithm", &TraceRow::algorithm},
                                                      {"mode", &TraceRow::mode},
                                                      {"cache", &TraceRow::cache},
                                                      {"beside", &TraceRow::beside},
                                                      {"split", &TraceRow::split},
                                                      {"point", &TraceRow::point},
                                                      {"throttle", &TraceRow::throttle}}};
constexpr std::array<NumberColumn, 15> kNumberColumns = {{{"median_ns", &TraceRow::median_ns, 0},
                                                          {"min_ns", &TraceRow::min_ns, 0},
                                                          {"p10_ns", &TraceRow::p10_ns, 0},
                                                          {"p90_ns", &TraceRow::p90_ns, 0},
                                                          {"mean_ns", &TraceRow::mean_ns, 0},
                                                          {"kernels", &TraceRow::kernels, 1},
                                                          {"reps", &TraceRow::reps, 0},
                                                          {"flops", &TraceRow::flops, 0},
                                                          {"bytes_read", &TraceRow::bytes_read, 0},
                                                          {"bytes_written", &TraceRow::bytes_written, 0},
                                                          {"sm_clock_mhz", &TraceRow::sm_clock_mhz, 0},
                                                          {"memory_clock_mhz", &TraceRow::memory_clock_mhz, 0},
                                                          {"power_w", &TraceRow::power_w, 0},
                                                          {"temperature_c", &TraceRow::temperature_c, 0},
                                                          {"held_s", &TraceRow::held_s, 0}}};

// Columns whose text is one of a few words; empty is always allowed.
const std::vector<std::string>& words_of(std::string_view column) {
    static const std::vector<std::string> kAny;
    static const std::vector<std::string> kLayouts = {"nt", "nn", "tn", "tt"};
    static const std::vector<std::string> kModes = {"graph", "stream", "eager", "sync"};
    static const std::vector<std::string> kCaches = {"cold", "warm"};
    static const std::vector<std::string> kSplits = {"calibration", "holdout", "repeat"};
    return column == "layout"  ? kLayouts
           : column == "mode"  ? kModes
           : column == "cache" ? kCaches
           : column == "split" ? kSplits
                               : kAny;
}

std::vector<std::string> column_names() {
    std::vector<std::string> names = {"op", "phase", "shape", "note"};
    for (const TextColumn& column : kTextColumns) {
        names.emplace_back(column.name);
    }
    for (const NumberColumn& column : kNumberColumns) {
        names.emplace_back(column.name);
    }
    return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
    const std::string near = nearest_name(word, names);
    return near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near);
}

std::string_view trim(std::string_view text) {
    while (!text.empty() && text.front() == ' ') {
        text.remove_prefix(1);
    }
    while (!text.empty() && text.back() == ' ') {
        text.remove_suffix(1);
    }
    return text;
}

bool is_dtype(std::string_view text) {
    const auto known = [](std::string_view one) {
        const auto& names = trace_dtypes();
        return std::find(names.begin(), names.end(), one) != names.end();
    };
    const std::size_t colon = text.find(':');
    return colon == std::string_view::npos ? known(text)
                                           : known(text.substr(0, colon)) && known(text.substr(colon + 1));
}

// Reads one text into a trace; collects what is wrong with it.
class Parser : TextLines {
  public:
    Parser(std::string_view text, const std::string& name) : TextLines(text, name) {
        if (text.find('\0') != std::string_view::npos) {
            fail_at(1, "holds a NUL byte: this is not a text file");
        }
    }

    Trace run() {
        for (std::string_view line; next_line(line);) {
            read_line(line);
        }
        check_head();
        finish();
        return std::move(trace_);
    }

  private:
    void read_line(std::string_view line) {
        if (this->line() == 1 && line != kVersionLine) {
            fail(fmt::format("a trace starts with the line '{}'", kVersionLine));
        }
        if (line.size() > kLongestLine) {
            fail(fmt::format("a line of {} bytes; the longest allowed is {}", line.size(), kLongestLine));
        } else if (line.empty()) {
        } else if (line.front() == '#') {
            read_meta(line.substr(1));
        } else if (columns_.empty()) {
            read_header(line);
        } else if (trace_.rows.size() >= kMostRows) {
            fail(fmt::format("more than {} rows", kMostRows));
            finish();
        } else {
            read_row(line);
        }
    }

    void read_meta(std::string_view line) {
        const std::size_t colon = line.find(':');
        if (this->line() == 1 || colon == std::string_view::npos) {
            return;
        }
        const std::string key(trim(line.substr(0, colon)));
        const bool plain = !key.empty() && key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == key.npos;
        if (plain && !trace_.meta.emplace(key, std::string(trim(line.substr(colon + 1)))).second) {
            fail(fmt::format("'{}' is given twice", key));
        }
    }

    void read_header(std::string_view line) {
        const std::vector<std::string> known = column_names();
        for (const std::string_view part : split(line, ',')) {
            const std::string column(trim(part));
            if (std::find(known.begin(), known.end(), column) == known.end()) {
                fail(fmt::format("unknown column '{}'{}", column, did_you_mean(column, known)));
            }
            if (std::find(columns_.begin(), columns_.end(), column) != columns_.end()) {
                fail(fmt::format("column '{}' is given twice", column));
            }
            columns_.push_back(column);
        }
        for (const char* required : {"op", "dtype", "shape", "median_ns"}) {
            if (std::find(columns_.begin(), columns_.end(), required) == columns_.end()) {
                fail(fmt::format("the header lacks the column '{}'", required));
            }
        }
        usable_ = problems() == 0;
    }

    void read_row(std::string_view line) {
        if (!usable_) {
            return;
        }
        const std::vector<std::string_view> cells = split(line, ',');
        if (cells.size() != columns_.size()) {
            fail(fmt::format("{} cells, but the header names {} columns", cells.size(), columns_.size()));
            return;
        }
        TraceRow row;
        row.line = this->line();
        const std::size_t before = problems();
        for (std::size_t i = 0; i < cells.size(); ++i) {
            read_cell(columns_[i], trim(cells[i]), row);
        }
        check_row(row);
        if (problems() == before) {
            trace_.rows.push_back(std::move(row));
        }
    }

    void read_cell(const std::string& column, std::string_view cell, TraceRow& row) {
        if (column == "op") {
            row.op = cell;
        } else if (column == "note") {
            row.note = cell;
        } else if (column == "phase") {
            const auto& names = trace_phase_names();
            const auto found = std::find(names.begin(), names.end(), cell);
            if (!cell.empty() && found == names.end()) {
                fail(fmt::format("unknown phase '{}'{}", cell, did_you_mean(cell, names)));
            } else if (!cell.empty()) {
                row.phase = static_cast<TracePhase>(found - names.begin());
            }
        } else if (column == "shape") {
            read_shape(cell, row);
        } else if (!read_text(column, cell, row)) {
            read_number(column, cell, row);
        }
    }

    bool read_text(const std::string& column, std::string_view cell, TraceRow& row) {
        for (const TextColumn& text : kTextColumns) {
            if (column == text.name) {
                const std::vector<std::string>& words = words_of(column);
                if (!cell.empty() && !words.empty() && std::find(words.begin(), words.end(), cell) == words.end()) {
                    fail(fmt::format("{} is one of {}, not '{}'", column, fmt::join(words, ", "), cell));
                }
                row.*text.member = cell;
                return true;
            }
        }
        return false;
    }

    void read_number(const std::string& column, std::string_view cell, TraceRow& row) {
        for (const NumberColumn& number : kNumberColumns) {
            if (column != number.name) {
                continue;
            }
            double value = number.empty;
            if (!cell.empty() && (!parse_number(cell, value) || !(value >= 0) || value > 1e30)) {
                fail(fmt::format("{} is a number from 0 to 1e30, not '{}'", column, cell));
                value = number.empty;
            }
            row.*number.member = value;
        }
    }

    void read_shape(std::string_view cell, TraceRow& row) {
        for (const std::string_view part : split(cell, ' ')) {
            if (part.empty()) {
                continue;
            }
            const std::size_t equals = part.find('=');
            double value = 0;
            if (equals == std::string_view::npos || !parse_number(part.substr(equals + 1), value) || !(value >= 0) ||
                value > 1e18) {
                fail(fmt::format("a dimension is name=number with a number from 0 to 1e18, not '{}'", part));
                continue;
            }
            std::string name(part.substr(0, equals));
            const bool twice = std::any_of(row.shape.begin(), row.shape.end(),
                                           [&](const auto& dimension) { return dimension.first == name; });
            if (twice) {
                fail(fmt::format("dimension '{}' is given twice", name));
            }
            row.shape.emplace_back(std::move(name), value);
        }
    }

    void check_row(const TraceRow& row) {
        const TraceOperation* operation = find_trace_operation(row.op);
        if (operation == nullptr) {
            std::vector<std::string> names;
            for (const TraceOperation& one : trace_operations()) {
                names.emplace_back(one.name);
            }
            const std::string near = did_you_mean(row.op, names);
            fail(fmt::format("unknown operation '{}'{}", row.op,
                             near.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : near));
            return;
        }
        for (const std::string& dimension : operation->required) {
            if (!(row.dim(dimension.c_str()) > 0)) {
                fail(fmt::format("{} needs a positive '{}' in its shape", row.op, dimension));
            }
        }
        for (const auto& [dimension, value] : row.shape) {
            if (std::find(operation->required.begin(), operation->required.end(), dimension) ==
                    operation->required.end() &&
                std::find(operation->optional.begin(), operation->optional.end(), dimension) ==
                    operation->optional.end()) {
                fail(fmt::format("{} has no dimension '{}'", row.op, dimension));
            }
        }
        for (const std::string& dtype : {row.dtype, row.kv_dtype}) {
            if (!dtype.empty() && !is_dtype(dtype)) {
                fail(fmt::format("unknown dtype '{}'; known: {}", dtype, fmt::join(trace_dtypes(), ", ")));
            }
        }
        if (!(row.median_ns > 0)) {
            fail("median_ns must be above 0");
        }
        if (row.p10_ns > 0 && row.p90_ns > 0 && row.p10_ns > row.p90_ns) {
            fail("p10_ns is above p90_ns");
        }
    }

    void check_head() {
        for (const char* key : {"device", "source", "date"}) {
            const auto found = trace_.meta.find(key);
            if (found == trace_.meta.end() || found->second.empty()) {
                fail(fmt::format("the head lacks '# {}: ...'", key));
            }
        }
        if (columns_.empty()) {
            fail("holds no header line with the names of its columns");
        } else if (trace_.rows.empty() && problems() == 0) {
            fail("holds no rows");
        }
    }

    Trace trace_;
    std::vector<std::string> columns_;
    bool usable_ = false;  ///< the header was fine, so that rows can be read
};

}  // namespace

const std::vector<TraceOperation>& trace_operations() {
    static const std::vector<std::string> kWide = {"tokens", "hidden"};
    static const std::vector<std::string> kRanks = {"ranks", "bytes"};
    static const std::vector<TraceOperation> kOperations = {
        {"gemm",
         "C[m,n] = A[m,k] B[k,n], batch times; split_accumulator 1: 8-bit products whose sums are promoted along the "
         "way; "
         "accumulate: added to C in 32 bits (1), in 16 (16)",
         {"m", "n", "k"},
         {"batch", "split_accumulator", "accumulate"}},
        {"grouped_gemm",
         "one product for each expert: rows[tokens * topk] x [k,n] of its expert",
         {"tokens", "experts", "topk", "n", "k"},
         {"skew"}},
        {"moe",
         "fused experts: route, permute, both products, combine",
         {"tokens", "experts", "topk", "hidden", "ffn"},
         {"tensor", "expert_parallel", "skew", "gated", "in_turn"}},
        {"moe_route", "gate, top-k, permutation and back", {"tokens", "experts", "topk", "hidden"}, {}},
        {"quantize", "activations to the dtype, with scales", kWide, {}},
        {"attention_prefill",
         "softmax(Q K^T) V over `queries` new tokens of `batch` sequences that see `keys` tokens each",
         {"batch", "queries", "keys", "heads", "kv_heads", "head_dim"},
         {"value_dim", "causal", "window"}},
        {"attention_training",
         "softmax(Q K^T) V of training, keys contiguous; backward: the gradients of all three",
         {"batch", "queries", "keys", "heads", "kv_heads", "head_dim"},
         {"causal", "window"}},
        {"attention_decode",
         "one query token a sequence over `keys` cached tokens",
         {"batch", "keys", "heads", "kv_heads", "head_dim"},
         {"value_dim", "window", "block", "shared"}},
        {"mla_prefill",
         "multi-head latent attention of a prompt, latent already expanded",
         {"batch", "queries", "keys", "heads"},
         {"latent", "rotary", "causal"}},
        {"mla_decode",
         "multi-head latent attention over the latent cache",
         {"batch", "keys", "heads"},
         {"latent", "rotary"}},
        {"mla_sparse",
         "latent attention of a prompt in the compressed space, to `chosen` keys of each query",
         {"batch", "queries", "keys", "heads", "chosen"},
         {"latent", "rotary"}},
        {"index_scores",
         "scores of light heads of each query against one key of each token before it",
         {"batch", "queries", "keys", "heads"},
         {"dim"}},
        {"top_choice", "places of the `chosen` largest of `keys` scores", {"rows", "keys", "chosen"}, {}},
        {"delta_scan",
         "linear attention by the delta rule over the tokens of a prompt; channels 1: decays of channels (Kimi)",
         {"batch", "queries", "key_heads", "heads"},
         {"key_dim", "value_dim", "channels"}},
        {"delta_update",
         "the same for one token a sequence",
         {"batch", "key_heads", "heads"},
         {"key_dim", "value_dim", "channels"}},
        {"convolution", "causal convolution over the last four tokens", kWide, {}},
        {"convolution_update", "the same for one token of each sequence; tokens counts them", kWide, {}},
        {"rms_norm", "root-mean-square norm", kWide, {}},
        {"layer_norm", "layer norm", kWide, {}},
        {"add", "residual addition", kWide, {}},
        {"add_norm", "residual addition and norm in one kernel", kWide, {}},
        {"dropout_add", "dropout and residual addition", kWide, {}},
        {"dropout", "with its mask kept", kWide, {}},
        {"gelu", "activation", kWide, {}},
        {"silu_mul", "gated activation; hidden counts the output", kWide, {}},
        {"rotary", "rotary embedding of queries and keys; hidden = (heads + kv heads) * head_dim", kWide, {}},
        {"softmax", "over `hidden` columns", kWide, {}},
        {"embedding", "gather of rows", kWide, {"vocabulary"}},
        {"cross_entropy", "loss (backward: with its gradient)", {"tokens", "vocabulary"}, {}},
        {"sampling", "next tokens from logits", {"tokens", "vocabulary"}, {}},
        {"adamw", "optimizer step on all parameters", {"params"}, {}},
        {"grad_norm", "norm and clipping of gradients", {"params"}, {}},
        {"copy", "device memory, read once and written once; `bytes` are those of the source", {"bytes"}, {}},
        {"fill", "device memory, written once", {"bytes"}, {}},
        {"read", "device memory, read once", {"bytes"}, {}},
        {"triad", "a = b + s c; `bytes` are those of one array", {"bytes"}, {}},
        {"h2d", "pinned host memory to device", {"bytes"}, {}},
        {"d2h", "device to pinned host memory", {"bytes"}, {}},
        {"both_ways", "h2d and d2h at once; `bytes` are those of one way", {"bytes"}, {}},
        {"pointer_chase", "`loads` loads of one thread, each waiting for the one before", {"bytes", "loads"}, {}},
        {"l2_read", "bytes in the L2 cache, read `loads` times", {"bytes", "loads"}, {}},
        {"shared_read", "bytes of each multiprocessor's shared memory, read `loads` times", {"bytes", "loads"}, {}},
        {"p2p", "device to device over the link between them", {"bytes"}, {}},
        {"launch", "one empty kernel of `count`; mode says how launched", {"count"}, {}},
        {"idle", "nothing runs; for power", {"count"}, {}},
        {"layer",
         "a transformer layer, end to end",
         {"batch", "queries", "hidden", "ffn", "heads", "kv_heads", "head_dim"},
         {"keys", "experts", "topk", "gated"}},
        {"step",
         "a whole pass or training step, end to end; sequences in prefill give queries > 1",
         {"batch", "queries", "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocabulary"},
         {"keys", "decode_batch", "decode_keys", "experts", "topk", "gated", "training"}},
        {"all_reduce", "bytes of a rank's buffer", kRanks, {"nodes"}},
        {"all_gather", "bytes of a rank's result", kRanks, {"nodes"}},
        {"reduce_scatter", "bytes of a rank's input", kRanks, {"nodes"}},
        {"all_to_all", "bytes of a rank's input", kRanks, {"nodes"}},
        {"broadcast", "bytes of the buffer", kRanks, {"nodes"}},
        {"send_recv", "bytes of the message", kRanks, {"nodes"}},
    };
    return kOperations;
}

const TraceOperation* find_trace_operation(const std::string& name) {
    for (const TraceOperation& operation : trace_operations()) {
        if (name == operation.name) {
            return &operation;
        }
    }
    return nullptr;
}

const std::vector<std::string>& trace_dtypes() {
    static const std::vector<std::string> kNames = {"fp32", "tf32", "fp16", "bf16",   "fp8",   "fp8-block",
                                                    "int8", "fp4",  "int4", "fp4-nv", "fp4-mx"};
    return kNames;
}

const std::vector<std::string>& trace_phase_names() {
    static const std::vector<std::string> kNames = {"forward", "backward", "data_gradient", "weight_gradient"};
    return kNames;
}

double TraceRow::dim(const char* name, double otherwise) const {
    for (const auto& [dimension, value] : shape) {
        if (dimension == name) {
            return value;
        }
    }
    return otherwise;
}

Trace parse_trace(const std::string& text, const std::string& name) {
    return Parser(text, name).run();
}

Trace read_trace(const std::string& path) {
    return parse_trace(read_input(path), path);
}

}  // namespace orrery::models
