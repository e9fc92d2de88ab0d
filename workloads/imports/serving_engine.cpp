#include "workloads/imports/serving_command.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

namespace orrery::imports {

namespace {

std::string small_letters(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

void set_ranks(const ServingChoices& c, const std::string& before, ScenarioKeys& keys) {
    const auto more = [](std::int64_t value) { return value > 1 ? std::to_string(value) : std::string(); };
    keys.set(before + "replicas", std::to_string(c.ranks.replicas));
    keys.set(before + "tensor", std::to_string(c.ranks.tensor));
    keys.set(before + "pipeline", more(c.ranks.pipeline));
    keys.set(before + "groups", more(c.ranks.groups));
    keys.set(before + "expert", more(c.ranks.expert));
    keys.set(before + "scheduler.kind", c.scheduler);
    const auto all = [&](std::int64_t each) {
        return each > 0 ? std::to_string(std::min<std::int64_t>(each * c.ranks.groups, 1 << 20)) : std::string();
    };
    keys.set(before + "scheduler.token_budget", all(c.token_budget));
    keys.set(before + "scheduler.max_sequences", all(c.max_sequences));
}

std::int64_t redundant_experts(GivenFlags& flags) {
    const std::int64_t given = flags.whole("redundant_experts", 1 << 20, true).value_or(0);
    double number = 0;
    return parse_number(flags.part("expert_balance", "num_redundant_experts"), number) && number >= 0 && number < 1e6
               ? static_cast<std::int64_t>(number)
               : given;
}

// The precision that a method of quantisation gives weights without one; empty for methods that name none.
std::string precision_of_method(const std::string& how) {
    const auto is = [&](const char* part) { return how.find(part) != std::string::npos; };
    return is("w4a8") || is("w4afp8")              ? "int4"
           : is("fp4")                             ? "fp4"
           : is("fp8") || how == "modelopt"        ? "fp8"
           : is("int8") || is("8bit") || is("8wo") ? "int8"
           : is("awq") || is("gptq") || is("bitsandbytes") || is("int4") || is("4bit") || is("wna16") || is("qoq") ||
                   is("auto-round") || is("marlin")
               ? "int4"
               : "";
}

// Of keys and values: what the flags say, and else what the checkpoint does where the engine takes that.
// `usual`: what the engine has for this model by itself, where it differs.
void set_cache_precision(GivenFlags& flags, const ServedModel& model, bool stored, const std::string& usual,
                         ScenarioKeys& keys, ImportNotes& notes) {
    const std::string cache = small_letters(flags.text("kv_precision"));
    const auto cache_is = [&](const char* part) { return cache.find(part) != std::string::npos; };
    const std::string& own = model.checkpoint.cache;
    const bool silent = cache.empty() || cache == "auto";
    const bool automatic = silent && usual.empty() && !own.empty();
    if (automatic) {
        notes.assumed(stored ? fmt::format("keys and values in {}, as the checkpoint says (engine.kv.precision)", own)
                             : fmt::format("keys and values in 16 bits: later versions of the engine take {}, as the "
                                           "checkpoint says (engine.kv.precision)",
                                           own));
    }
    keys.set("engine.kv.precision", automatic                               ? (stored ? own : "")
                                    : cache_is("fp4")                       ? "fp4"
                                    : cache_is("fp8")                       ? "fp8"
                                    : cache_is("int8")                      ? "int8"
                                    : cache == "float16" || cache == "half" ? "fp16"
                                    : silent                                ? usual
                                                                            : "");
}

// What flags say goes before the checkpoint, unless it is the checkpoint's own format.
void set_precision(GivenFlags& flags, const ServedModel& model, ScenarioKeys& keys, ImportNotes& notes) {
    const std::string how = small_letters(flags.text("quantization"));
    const std::string type = small_letters(flags.text("dtype"));
    const NamedCheckpoint& stored = model.checkpoint;
    const std::string method = precision_of_method(how);
    const auto family = [](const std::string& precision) {
        return precision.substr(0, 3) == "int" ? "int" : precision;
    };
    const bool own = stored.quantised() && (how == "modelopt" || family(method) == family(stored.weights) ||
                                            family(method) == family(stored.experts));
    std::string weights;
    std::string experts;
    if (!method.empty() && !own) {
        const bool eight = how.find("w4afp8") != std::string::npos;  // dense products in fp8
        const bool alone = model.experts && (method == "fp4" || how == "experts_int8" || eight);  // of experts
        weights = !alone ? method : eight ? "fp8" : "bf16";
        experts = alone ? method : "";
    } else if (!how.empty() && method.empty() && !stored.quantised() && how != "none" && how != "auto") {
        notes.left_out(
            fmt::format("the precision of --quantization {}: the name of the checkpoint says none "
                        "(engine.weights)",
                        printable(how, 60)));
    } else if (how.empty() && !stored.quantised() && (type == "float32" || type == "float")) {
        weights = "fp32";
        keys.set("engine.kv.precision", "fp32");
    } else if (how.empty() && !stored.quantised() && (type == "half" || type == "float16")) {
        weights = "fp16";
        keys.set("engine.kv.precision", "fp16");
    }
    const bool described = !model.description.empty();
    keys.set("engine.weights", weights.empty() && described ? model.checkpoint.weights : weights);
    keys.set("engine.experts", weights.empty() && described && model.experts ? model.checkpoint.experts : experts);
    keys.set("engine.scaling", weights.empty() && described && model.experts ? model.checkpoint.scaling : "");
}

// As many layers of the served model as have the weights of the model that drafts; 0 where that one is not known.
std::int64_t draft_layers(const std::string& draft, const ServedModel& model, const DataDirectory& data) {
    const std::optional<NamedCheckpoint> found = draft.empty() ? std::nullopt : find_checkpoint(draft, data);
    if (!found || model.layer <= 0) {
        return 0;
    }
    ModelSpec spec;
    std::vector<Diagnostic> errors;
    read_fields(*data.preset(kModelPresets, found->preset), data, errors,
                [&](Fields& fields) { orrery::describe(fields, spec); });
    const double weights = layer_parameters(spec) * static_cast<double>(spec.layers);
    return std::max<std::int64_t>(1, std::llround(weights / model.layer));
}

// What servers for prefill say otherwise than those for decode, of what a scenario says once.
void note_other_settings(GivenFlags& prefill, GivenFlags& decode, ImportNotes& notes) {
    const std::set<std::string> own = {"tensor",
                                       "pipeline",
                                       "data",
                                       "expert",
                                       "all_experts",
                                       "token_budget",
                                       "sequences",
                                       "chunk",
                                       "phase",
                                       "disaggregation",
                                       "model",
                                       "mixed",
                                       "attention_data",
                                       "prefill_worker",
                                       "decode_worker",
                                       "file",
                                       "redundant_experts",
                                       "expert_balance",
                                       "served_name"};
    for (const GivenFlag& flag : prefill.flags()) {
        const FlagRow* row = flag.row;
        if (row == nullptr || row->effect != FlagEffect::key || own.contains(row->key) || !flag.part.empty()) {
            continue;
        }
        const bool same = std::any_of(decode.flags().begin(), decode.flags().end(), [&](const GivenFlag& other) {
            return other.row != nullptr && other.row->key == row->key && other.value == flag.value;
        });
        if (!same) {
            notes.left_out(
                fmt::format("{}{} of the server for prefill: a scenario says it once, as the server for "
                            "decode does",
                            flag.written, flag.value.empty() ? "" : " " + printable(flag.value, 40)));
        }
    }
}

}  // namespace

double layer_parameters(const ModelSpec& model) {
    ModelSpec whole = model;
    complete(whole);
    const double tables = whole.embedding_parameters() * (whole.tied_embeddings ? 1 : 2);
    return (active_parameters(whole) - tables) / static_cast<double>(std::max<std::int64_t>(1, whole.layers));
}

void set_engine(const std::vector<GivenFlags*>& servers, const ServedModel& model,
                const std::vector<ServingChoices>& choices, const std::string& chosen_software,
                const DataDirectory& data, ScenarioKeys& keys, ImportNotes& notes) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const std::string before =
            choices.size() == 1 ? std::string("engine.") : fmt::format("engine.{}.", choices[i].phase);
        set_ranks(choices[i], before, keys);
        const std::int64_t copies = redundant_experts(*servers[i]);
        keys.set(before + "redundant_experts", copies > 0 && choices[i].ranks.expert > 1 ? std::to_string(copies) : "");
    }
    const ServingChoices& c = choices.back();
    GivenFlags& flags = *servers.back();
    if (servers.size() == 2) {
        note_other_settings(*servers.front(), flags, notes);
    }
    if (c.ranks.groups > 1 && c.ranks.expert > 0) {
        const std::string how = small_letters(flags.text("dispatch"));
        keys.set("engine.dispatch", how.empty() || how.find("gather") != std::string::npos || how == "naive" ||
                                            how == "none" || how == "auto"
                                        ? ""
                                    : how.find("high") != std::string::npos || how == "deepep" ? "hierarchical"
                                                                                               : "all-to-all");
    }
    set_precision(flags, model, keys, notes);
    set_cache_precision(flags, model, c.stored_cache, c.kv_precision, keys, notes);
    keys.set("engine.kv.memory", fmt::format("{:g}", std::round(c.memory * 1000) / 1000));
    keys.set("engine.kv.of_free", c.of_free ? "true" : "");
    if (c.host_cache > 0 && !c.prefix_cache) {
        notes.left_out("a cache in host memory: without a cache of prefixes nothing is found there");
    }
    constexpr double kGibibyte = 1024.0 * 1024 * 1024;
    keys.set("engine.kv.prefix", !c.prefix_cache     ? ""
                                 : c.host_cache <= 0 ? "{}"
                                                     : fmt::format("{{host: {:g} GiB}}", c.host_cache / kGibibyte));
    if (c.draft_tokens > 0) {
        keys.set("engine.speculation.tokens", std::to_string(c.draft_tokens));
        const std::int64_t layers = c.own_drafts ? 1 : draft_layers(c.draft_model, model, data);
        keys.set("engine.speculation.layers", layers > 0 ? std::to_string(layers) : "");
        notes.assumed(fmt::format("80 % of draft tokens accepted, and drafts {} (engine.speculation)",
                                  c.own_drafts ? "of one layer like the model's own"
                                  : layers > 0
                                      ? fmt::format("by {} as by {} layers of the model, which have as many weights",
                                                    printable(c.draft_model, 60), layers)
                                      : "that take no time"));
    }
    for (const auto& [key, value] : flags.plain_keys()) {
        if (key.rfind("engine.lora.", 0) != 0) {
            keys.set(key, value);
        }
    }
    if (flags.on("lora")) {
        keys.set("engine.lora.rank", std::to_string(flags.whole("engine.lora.rank").value_or(16)));
        keys.set("engine.lora.slots", std::to_string(flags.whole("engine.lora.slots").value_or(1)));
    }
    const std::string software = chosen_software.empty() ? c.software : chosen_software;
    const bool changed = c.eager || c.decode_graphs_alone || c.serial_host || c.graph_sequences > 0;
    keys.set(changed ? "engine.software.preset" : "engine.software", software);
    keys.set("engine.software.overlap", c.serial_host ? "false" : "");
    keys.set("engine.software.compiled", c.eager ? "false" : "");
    keys.set("engine.software.graph_sequences", c.eager                 ? "0"
                                                : c.graph_sequences > 0 ? std::to_string(c.graph_sequences)
                                                                        : "");
    keys.set("engine.software.graph_tokens", c.eager || c.decode_graphs_alone ? "0" : "");
    if (chosen_software.empty()) {
        notes.assumed(
            fmt::format("host costs of {} (engine.software; --software NAME; orrery list engines)", software));
    }
}

}  // namespace orrery::imports
