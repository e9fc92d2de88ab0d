#include "models/calibration/profiles.hpp"

#include "sim/base/input_file.hpp"
#include "sim/device/operation.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

namespace orrery::models {

namespace {

using Shape = std::vector<std::pair<std::string, double>>;

void add(Trace& trace, TableReader& table, const char* op, const std::string& dtype, Shape shape, double microseconds,
         const std::string& library = {}) {
    TraceRow row;
    row.line = table.line();
    row.op = op;
    row.dtype = dtype;
    row.shape = std::move(shape);
    row.library = library;
    row.median_ns = microseconds * 1e3;
    if (!table.good()) {
        return;  // reported where it was read
    }
    if (!(row.median_ns > 0)) {
        table.fail("a time must be above 0");
        return;
    }
    trace.rows.push_back(std::move(row));
}

std::string dtype_of(std::string_view name) {
    const std::pair<std::string_view, const char*> names[] = {
        {"bfloat16", "bf16"},       {"float16", "fp16"},           {"half", "fp16"},         {"fp8", "fp8"},
        {"fp8_block", "fp8-block"}, {"nvfp4", "fp4-nv"},           {"int8_wo", "bf16:int8"}, {"int4_wo", "bf16:int4"},
        {"int8", "int8"},           {"w4a16_mxfp4", "bf16:fp4-mx"}};
    for (const auto& [theirs, ours] : names) {
        if (name == theirs) {
            return ours;
        }
    }
    return {};
}

// "repository@commit, NCCL 2.29.2": nccl-2.29.2.
std::string library_of(std::string_view source) {
    const std::string_view known = source.substr(std::min(source.size(), source.find(", ") + 2));
    const std::pair<std::string_view, const char*> names[] = {
        {"NCCL ", "nccl-"}, {"vLLM ", "vllm-"}, {"SGLang ", "sglang-"}, {"TensorRT-LLM ", "trtllm-"}};
    for (const auto& [theirs, ours] : names) {
        if (known.substr(0, theirs.size()) == theirs) {
            return ours + std::string(known.substr(theirs.size()));
        }
    }
    return {};
}

// Whether a word is among those separated by blanks.
bool listed(const char* words, const std::string& word) {
    return (std::string(" ") + words + " ").find(" " + word + " ") != std::string::npos;
}

bool wanted(const PublicProfile& profile, const std::string& dtype) {
    return *profile.only == 0 || listed(profile.only, dtype);
}

void read_gemm(const PublicProfile& profile, TableReader& table, Trace& trace) {
    const bool powered = table.has("power");
    while (table.next()) {
        const std::string dtype = dtype_of(table.text("gemm_dtype"));
        if (dtype.empty() || !wanted(profile, dtype)) {
            continue;  // a format that this program does not model, or that the file got wrong
        }
        add(trace, table, "gemm", dtype,
            {{"m", table.number("m", 1)}, {"n", table.number("n", 1)}, {"k", table.number("k", 1)}},
            1000 * table.number("latency"), std::string(table.text("kernel_source")));
        if (!trace.rows.empty() && trace.rows.back().line == table.line()) {
            TraceRow& row = trace.rows.back();
            row.layout = "nt";
            // Activations come in 16 bits and are quantised first, in a kernel of its own that is timed along.
            row.kernels = dtype.rfind("fp8", 0) == 0 || dtype.rfind("fp4", 0) == 0 ? 2 : 1;
            if (powered) {
                row.power_w = table.number("power");
                row.held_s = 1;
            }
        }
    }
}

void read_context_attention(const PublicProfile&, TableReader& table, Trace& trace) {
    const bool windows = table.has("window_size");
    while (table.next()) {
        const double queries = table.number("isl", 1);
        const double past = table.number("step");
        const double window = windows ? table.number("window_size") : 0;
        if (table.text("attn_dtype") != "bfloat16" || queries < 2) {
            continue;
        }
        add(trace, table, "attention_prefill", "bf16",
            {{"batch", table.number("batch_size", 1)},
             {"queries", queries},
             {"keys", queries + past},
             {"heads", table.number("num_heads", 1)},
             {"kv_heads", table.number("num_key_value_heads", 1)},
             {"head_dim", table.number("head_dim", 1)},
             {"causal", 1},
             {"window", window}},
            1000 * table.number("latency"), std::string(table.text("kernel_source")));
        if (!trace.rows.empty() && trace.rows.back().line == table.line() && table.text("kv_cache_dtype") == "fp8") {
            trace.rows.back().kv_dtype = "fp8";
        }
    }
}

void read_generation_attention(const PublicProfile&, TableReader& table, Trace& trace) {
    const bool windows = table.has("window_size");
    while (table.next()) {
        const double window = windows ? table.number("window_size") : 0;
        if (table.text("attn_dtype") != "bfloat16") {
            continue;
        }
        // `step` counts the tokens in the cache; the new one attends to itself as well.
        add(trace, table, "attention_decode", "bf16",
            {{"batch", table.number("batch_size", 1)},
             {"keys", table.number("step") + table.number("isl")},
             {"heads", table.number("num_heads", 1)},
             {"kv_heads", table.number("num_key_value_heads", 1)},
             {"head_dim", table.number("head_dim", 1)},
             {"window", window}},
            1000 * table.number("latency"), std::string(table.text("kernel_source")));
        if (!trace.rows.empty() && trace.rows.back().line == table.line() && table.text("kv_cache_dtype") == "fp8") {
            trace.rows.back().kv_dtype = "fp8";
        }
    }
}

void read_mla(const PublicProfile& profile, TableReader& table, Trace& trace) {
    while (table.next()) {
        const bool narrow = table.text("kv_cache_dtype") == "fp8";
        const bool decode = table.text("op_name") == "mla_generation";
        const double past = table.number("step");
        const double queries = table.number("isl", 1);
        Shape shape = {{"batch", table.number("batch_size", 1)}};
        if (!decode) {
            shape.emplace_back("queries", queries);
        }
        shape.emplace_back("keys", queries + past);
        shape.emplace_back("heads", table.number("num_heads", 1));
        if (table.text("mla_dtype") != "bfloat16" || (!decode && queries < 2) ||
            !wanted(profile, narrow ? "bf16:kv8" : "bf16")) {
            continue;
        }
        add(trace, table, decode ? "mla_decode" : "mla_prefill", "bf16", std::move(shape),
            1000 * table.number("latency"), std::string(table.text("kernel_source")));
        if (!trace.rows.empty() && trace.rows.back().line == table.line() && narrow) {
            trace.rows.back().kv_dtype = "fp8";
        }
    }
}

// One row a kernel: the convolution, or the delta rule. Prompts of one token run kernels of their own, which no engine calls; `verify`
// rows are of drafts, and `_qkv3` is three convolutions, eager ones of vLLM among them. Decodes that hold convolution and norm too are left.
void read_delta(const PublicProfile&, TableReader& table, Trace& trace) {
    while (table.next()) {
        const std::string_view kernel = table.text("kernel_source");
        const bool prompt = table.text("phase") == "context";
        const bool channels = table.text("op_name") == "kda";
        const double batch = table.number("batch_size", 1);
        const double queries = table.number("seq_len", 1);
        const double key_heads = table.number("num_k_heads", 1);
        const double heads = table.number("num_v_heads", 1);
        const double key = table.number("head_k_dim", 1);
        const double value = table.number("head_v_dim", 1);
        const double us = 1000 * table.number("latency");
        const auto has = [&](std::string_view part) { return kernel.find(part) != std::string_view::npos; };
        if ((prompt && queries < 2) || (!prompt && table.text("phase") != "generation") || has("_qkv3") ||
            has("kda_decode") || has("kda_fused_decode")) {
            continue;
        }
        const std::string library(kernel);
        if (has("conv1d")) {
            add(trace, table, prompt ? "convolution" : "convolution_update", "bf16",
                {{"tokens", batch * (prompt ? queries : 1)}, {"hidden", 2 * key_heads * key + heads * value}}, us,
                library);
            continue;
        }
        Shape shape = {{"batch", batch}};
        if (prompt) {
            shape.emplace_back("queries", queries);
        }
        for (const auto& [name, size] :
             {std::pair("key_heads", key_heads), std::pair("heads", heads), std::pair("key_dim", key),
              std::pair("value_dim", value), std::pair("channels", channels ? 1.0 : 0.0)}) {
            shape.emplace_back(name, size);
        }
        add(trace, table, prompt ? "delta_scan" : "delta_update", "bf16", std::move(shape), us, library);
    }
}

// Kernels of an indexer and of attention to what it chose, of the sizes of GLM-5 (32 heads in the indexer) and DeepSeek-V4 (64, a key for
// every four tokens). Rows of equal scores (`flat`) take the choice 2.4 times as long in the median, and no trained indexer has such.
void read_sparse(const PublicProfile&, TableReader& table, Trace& trace) {
    constexpr double kChosen = 2048;
    const bool modes = table.has("score_mode");
    while (table.next()) {
        const std::string_view op = table.text("op_name");
        const double batch = table.number("batch_size", 1);
        const double queries = table.number("isl", 1);
        const double keys = table.number("step") + queries;
        const double us = 1000 * table.number("latency");
        const std::string library(table.text("kernel_source"));
        const bool paged = op.find("paged_mqa_logits") != std::string_view::npos;
        if (paged == (queries > 1) && op.find("logits") != std::string_view::npos) {
            continue;  // prompts of the one, decodes of the other
        }
        if (paged) {
            constexpr double kCompressed = 4;
            add(trace, table, "index_scores", "fp8",
                {{"batch", batch},
                 {"queries", 1},
                 {"keys", std::max(1.0, std::floor(keys / kCompressed))},
                 {"heads", 64}},
                us, library);
        } else if (op.find("mqa_logits") != std::string_view::npos) {
            add(trace, table, "index_scores", "fp8",
                {{"batch", batch}, {"queries", queries}, {"keys", keys}, {"heads", 32}}, us, library);
        } else if (op.find("topk") != std::string_view::npos) {
            if (modes && table.text("score_mode") == "flat") {
                continue;
            }
            const TopChoice choice = choice_of(batch, queries, keys, kChosen);
            add(trace, table, "top_choice", "fp32", {{"rows", choice.rows}, {"keys", choice.keys}, {"chosen", kChosen}},
                us, library);
        } else if (op.find("dsa_attn") != std::string_view::npos && queries > 1 && keys > kChosen) {
            add(trace, table, "mla_sparse", "bf16",
                {{"batch", batch},
                 {"queries", queries},
                 {"keys", keys},
                 {"heads", table.number("num_heads", 1)},
                 {"chosen", kChosen}},
                us, library);
        }
    }
}

void read_moe(const PublicProfile& profile, TableReader& table, Trace& trace) {
    while (table.next()) {
        const double hidden = table.number("hidden_size", 1);
        const double ffn = table.number("inter_size", 1);
        const bool gated = !listed(profile.ungated, fmt::format("{:.0f}x{:.0f}", hidden, ffn));
        const std::string dtype = dtype_of(table.text("moe_dtype"));
        const double tensor = table.number("moe_tp_size", 1);
        const double parallel = table.number("moe_ep_size", 1);
        // SGLang's rows of a part of the experts computed the choices of other parts as well; skewed rows of a part are
        // those of the busiest one.
        const std::string_view distribution = table.text("distribution");
        const bool skewed = distribution == "power_law_1.2";
        const bool shards = parallel > 1 && (skewed || table.text("kernel_source").substr(0, 6) == "sglang");
        const double count = table.number("num_experts", 1);
        const bool misrouted = listed(profile.misrouted, fmt::format("{:.0f}x{:.0f}x{:.0f}", hidden, ffn, count));
        if (dtype.empty() || !wanted(profile, dtype) || (distribution != "balanced" && !skewed) || shards ||
            misrouted) {
            continue;
        }
        Shape shape = {{"tokens", table.number("num_tokens", 1)},
                       {"experts", count},
                       {"topk", table.number("topk", 1)},
                       {"hidden", hidden},
                       {"ffn", ffn},
                       {"tensor", tensor},
                       {"expert_parallel", parallel},
                       {"gated", gated ? 1.0 : 0.0},
                       {skewed ? "skew" : "in_turn", skewed ? 1.2 : 1.0}};
        add(trace, table, "moe", dtype, std::move(shape), 1000 * table.number("latency"),
            std::string(table.text("kernel_source")));
    }
}

// Vidur's layers: medians in ms, whole microseconds; one product or streaming kernel a column.
void read_vidur_mlp(const PublicProfile&, TableReader& table, Trace& trace) {
    while (table.next()) {
        const double t = table.number("num_tokens", 1);
        const double tensor = table.number("num_tensor_parallel_workers", 1);
        const double h = table.number("n_embd", 1);
        const double heads = table.number("n_head", 1);
        const double kv = std::max(table.number("n_kv_head", 1), tensor);
        const double d = h / heads;
        const double ffn = table.number("n_expanded_embd", 1) / tensor;
        const bool gated = table.text("use_gated_mlp") == "True";
        const auto time = [&](const char* name) {
            return 1000 * table.number(fmt::format("time_stats.{}.median", name));
        };
        const auto product = [&](const char* name, double n, double k) {
            const double us = time(name);
            if (us >= 1) {  // shorter ones round to nothing
                add(trace, table, "gemm", "fp16", {{"m", t}, {"n", n}, {"k", k}}, us);
            }
        };
        product("attn_pre_proj", (h + 2 * kv * d) / tensor, h);
        product("attn_post_proj", h, h / tensor);
        product("mlp_up_proj", ffn * (gated ? 2 : 1), h);
        product("mlp_down_proj", h, ffn);
        const auto streaming = [&](const char* name, const char* op, double width) {
            const double us = time(name);
            if (us >= 5) {
                add(trace, table, op, "fp16", {{"tokens", t}, {"hidden", width}}, us);
            }
        };
        streaming("input_layernorm", "rms_norm", h);
        streaming("add", "add", h);
        streaming("attn_rope", "rotary", (h + kv * d) / tensor);
        streaming("mlp_act", gated ? "silu_mul" : "gelu", ffn);
    }
}

void read_vidur_attention(const PublicProfile&, TableReader& table, Trace& trace) {
    while (table.next()) {
        const double tensor = table.number("num_tensor_parallel_workers", 1);
        const double heads = table.number("n_q_head", 1);
        const double kv = table.number("n_kv_head", 1);
        const double d = table.number("n_embd", 1) / heads;
        const double batch = table.number("batch_size", 1);
        const double past = table.number("kv_cache_size");
        const double chunk = table.number("prefill_chunk_size");
        if (table.text("is_prefill") == "True") {
            if (chunk < 2) {
                continue;
            }
            add(trace, table, "attention_prefill", "fp16",
                {{"batch", 1},
                 {"queries", chunk},
                 {"keys", chunk + past},
                 {"heads", heads / tensor},
                 {"kv_heads", std::max(1.0, kv / tensor)},
                 {"head_dim", d},
                 {"causal", 1}},
                1000 * table.number("time_stats.attn_prefill.median"));
        } else {
            add(trace, table, "attention_decode", "fp16",
                {{"batch", batch},
                 {"keys", past + 1},
                 {"heads", heads / tensor},
                 {"kv_heads", std::max(1.0, kv / tensor)},
                 {"head_dim", d}},
                1000 * table.number("time_stats.attn_decode.median"));
        }
    }
}

// LLMServingSim's layers: one row a layer and number of tokens. `v0` in ns by input length, newer in us.
void read_layers(const PublicProfile& p, TableReader& table, Trace& trace) {
    const bool old = table.has("latency(ns)");
    const char* name_column = old ? "layer_name" : "layer";
    const char* size_column = old ? "input" : table.has("sequences") ? "sequences" : "tokens";
    const double q = p.heads * p.head_dim / p.tensor;
    const double kv = p.kv_heads * p.head_dim / p.tensor;
    const double ffn = p.ffn / p.tensor;
    while (table.next()) {
        const std::string_view name = table.text(name_column);
        const double t = table.number(size_column, 1);
        const double us = old ? 1e-3 * table.number("latency(ns)") : table.number("time_us");
        const auto product = [&](double n, double k) {
            add(trace, table, "gemm", "bf16", {{"m", t}, {"n", n}, {"k", k}}, us);
        };
        const auto streaming = [&](const char* op, double width) {
            add(trace, table, op, "bf16", {{"tokens", t}, {"hidden", width}}, us);
        };
        if (name == "qkv_proj") {
            product(q + 2 * kv, p.hidden);
        } else if (name == "q_proj") {
            product(q, p.hidden);
        } else if (name == "k_proj" || name == "v_proj") {
            product(kv, p.hidden);
        } else if (name == "o_proj") {
            product(p.hidden, q);
        } else if (name == "gate_up_proj") {
            product(2 * ffn, p.hidden);
        } else if (name == "gate_proj" || name == "up_proj") {
            product(ffn, p.hidden);
        } else if (name == "down_proj") {
            product(p.hidden, ffn);
        } else if (name == "lm_head") {
            product(p.vocabulary / p.tensor, p.hidden);
        } else if (name == "act_fn" && !old) {
            streaming("silu_mul", ffn);
        } else if (name == "layernorm" && !old) {
            streaming("add_norm", p.hidden);
        } else if (name == "rotary_emb") {
            streaming("rotary", q + kv);
        } else if (name == "embedding" && !old) {
            streaming("embedding", p.hidden);
        } else {
            (void)table.good();
        }
    }
}

// LLMServingSim's attention: either a pure prefill chunk or a pure decode batch is one operation; mixed rows are left out.
void read_layer_attention(const PublicProfile& p, TableReader& table, Trace& trace) {
    const double heads = p.heads / p.tensor;
    const double kv = std::max(1.0, p.kv_heads / p.tensor);
    while (table.next()) {
        const double chunk = table.number("prefill_chunk");
        const double past = table.number("kv_prefill");
        const double decodes = table.number("n_decode");
        const double keys = table.number("kv_decode");
        const double us = table.number("time_us");
        if (chunk >= 2 && decodes == 0) {
            add(trace, table, "attention_prefill", "bf16",
                {{"batch", 1},
                 {"queries", chunk},
                 {"keys", chunk + past},
                 {"heads", heads},
                 {"kv_heads", kv},
                 {"head_dim", p.head_dim},
                 {"causal", 1}},
                us);
        } else if (chunk == 0 && decodes >= 1) {
            add(trace, table, "attention_decode", "bf16",
                {{"batch", decodes}, {"keys", keys + 1}, {"heads", heads}, {"kv_heads", kv}, {"head_dim", p.head_dim}},
                us);
        } else {
            (void)table.good();
        }
    }
}

void read_apex_gemm(const PublicProfile&, TableReader& table, Trace& trace) {
    while (table.next()) {
        const double us = table.number("time(us)");
        const Shape shape = {{"m", table.number("m", 1)}, {"n", table.number("n", 1)}, {"k", table.number("k", 1)}};
        // Whole microseconds: below 50 us rounding alone is 1 %.
        if (us >= 50) {
            add(trace, table, "gemm", "fp16", shape, us);
        } else {
            (void)table.good();
        }
    }
}

// Rows of 8 bits repeat those of 16 at the same bytes; custom all-reduces are read as CUDA graphs launch them.
void read_collectives(const PublicProfile& profile, TableReader& table, Trace& trace) {
    const bool custom = table.has("allreduce_dtype");
    const std::string library = library_of(profile.source);
    while (table.next()) {
        const std::string_view source = table.text("kernel_source");
        const std::string_view dtype = table.text(custom ? "allreduce_dtype" : "nccl_dtype");
        const std::string_view name = table.text("op_name");
        const double bytes = 2 * table.number("message_size", 1);
        const double ranks = table.number("num_gpus", 2);
        const double microseconds = 1000 * table.number("latency");
        if ((dtype != "half" && dtype != "bfloat16") || source.find("_eager") != std::string_view::npos) {
            (void)table.good();
            continue;
        }
        const std::string op = name == "alltoall" ? "all_to_all" : std::string(name);
        if (find_trace_operation(op) == nullptr) {
            table.fail(fmt::format("no collective is called '{}'", op));
            continue;
        }
        add(trace, table, op.c_str(), dtype_of(dtype), {{"bytes", bytes}, {"ranks", ranks}}, microseconds, library);
    }
}

// Lines of "m, n, k, 0.1900ms, 101.7Tflops" without a header.
void read_llmcompass(const PublicProfile&, std::string_view text, const std::string& name, Trace& trace) {
    std::string csv = "m,n,k,ms,tflops\n";
    for (const char c : text) {
        if (c != ' ') {
            csv += c;
        }
    }
    for (const std::string_view unit : {"ms", "Tflops"}) {
        for (std::size_t at = csv.find(unit, 16); at != std::string::npos; at = csv.find(unit, at)) {
            csv.erase(at, unit.size());
        }
    }
    TableReader table(csv, name);
    while (table.next()) {
        add(trace, table, "gemm", "fp16",
            {{"m", table.number("m", 1)}, {"n", table.number("n", 1)}, {"k", table.number("k", 1)}},
            1000 * table.number("ms"));
    }
    table.finish();
}

struct ProfileReader {
    ProfileFormat format;
    void (*read)(const PublicProfile&, TableReader&, Trace&);
};

const std::vector<ProfileReader>& readers() {
    static const std::vector<ProfileReader> kReaders = {
        {{"aic-gemm", "aiconfigurator gemm_perf: ms, CUDA graph"}, read_gemm},
        {{"aic-context", "aiconfigurator context_attention_perf: causal prompts, ms"}, read_context_attention},
        {{"aic-generation", "aiconfigurator generation_attention_perf: decode steps, ms"}, read_generation_attention},
        {{"aic-mla", "aiconfigurator context_mla_perf and generation_mla_perf, ms"}, read_mla},
        {{"aic-delta", "aiconfigurator gdn_perf and kda_perf: convolutions and the delta rule, ms"}, read_delta},
        {{"aic-sparse", "aiconfigurator glm5_* and dsv4_paged_mqa_logits: an indexer and sparse attention, ms"},
         read_sparse},
        {{"aic-moe", "aiconfigurator moe_perf: fused experts, even distribution only, ms"}, read_moe},
        {{"vidur-mlp", "Vidur mlp: products and streaming kernels of a layer, ms in whole us"}, read_vidur_mlp},
        {{"vidur-attention", "Vidur attention: prompts and decode steps, ms in whole us"}, read_vidur_attention},
        {{"layers", "LLMServingSim layers, dense and per_sequence"}, read_layers},
        {{"layer-attention", "LLMServingSim attention of pure prompts and pure decode batches, us"},
         read_layer_attention},
        {{"apex-gemm", "Apex+ cuBLAS products in half precision, whole us"}, read_apex_gemm},
        {{"aic-collectives", "aiconfigurator nccl_perf and custom_allreduce_perf: elements of 16 bits, ms"},
         read_collectives},
        {{"llmcompass-gemm", "LLMCompass matmul, ms"}, nullptr},
    };
    return kReaders;
}

}  // namespace

const std::vector<ProfileFormat>& profile_formats() {
    static const std::vector<ProfileFormat> kFormats = [] {
        std::vector<ProfileFormat> out;
        for (const ProfileReader& reader : readers()) {
            out.push_back(reader.format);
        }
        return out;
    }();
    return kFormats;
}

Trace parse_profile(const PublicProfile& profile, const std::string& text, const std::string& name) {
    Trace trace;
    trace.meta = {
        {"device", profile.device}, {"source", profile.source}, {"date", "unknown"}, {"licence", profile.licence}};
    for (const ProfileReader& reader : readers()) {
        if (std::string_view(reader.format.name) != profile.format) {
            continue;
        }
        if (reader.read == nullptr) {
            read_llmcompass(profile, text, name, trace);
        } else {
            TableReader table(text, name);
            reader.read(profile, table, trace);
            table.finish();
        }
    }
    if (trace.rows.empty()) {
        throw ConfigError(
            {Diagnostic{name, 0, 0, "holds no row that this program can use", ErrorCode::malformed_trace}});
    }
    return trace;
}

Trace read_profile(const PublicProfile& profile, const std::string& directory) {
    const std::string path = directory + "/" + profile.path;
    return parse_profile(profile, read_input(path), path);
}

}  // namespace orrery::models
