#include "tools/plan/deployment.hpp"

#include "sim/base/error.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "workloads/model/model_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::plan {

namespace {

// What is asked of one server: its words, and what they cannot say.
struct Server {
    Role role = Role::mixed;
    std::int64_t replicas = 1;  ///< that no word says
    std::vector<std::string> words;
};

// One file in the making.
class Writer {
  public:
    Writer(const Scenario& scenario, std::string model, std::string node, const DataDirectory& data)
        : scenario_(scenario),
          serving_(scenario.as<ServingKind>()),
          engine_(serving_.engine),
          model_(std::move(model)),
          node_(std::move(node)) {
        const std::optional<NamedCheckpoint> checkpoint = find_checkpoint(model_, data);
        stored_ = checkpoint && !checkpoint->weights.empty() ? checkpoint->weights : "bf16";
    }

    DeploymentFile vllm() {
        DeploymentFile out = begin("vllm-serve.sh", "vllm-args");
        for (const auto& [role, phase] : engine_.phases()) {
            const bool ranks = serving_.model.experts.count == 0;  // replicas of a dense model are a flag
            Server server{role, ranks ? 1 : phase->replicas, {"vllm", "serve", model_}};
            add_vllm(*phase, out, server.words);
            if (ranks && phase->replicas > 1) {
                add(server.words, "--data-parallel-size", phase->replicas);
            }
            add_phase(role, server.words);
            append(server, out);
        }
        return out;
    }

    DeploymentFile sglang() {
        DeploymentFile out = begin("sglang-serve.sh", "sglang-args");
        for (const auto& [role, phase] : engine_.phases()) {
            Server server{role, 1, {"python3", "-m", "sglang.launch_server", "--model-path", model_}};
            add(server.words, "--tp-size", phase->stage_ranks());
            more(server.words, "--pp-size", phase->pipeline);
            more(server.words, "--ep-size", phase->expert);
            if (phase->groups > 1) {
                add(server.words, "--dp-size", phase->groups);
                server.words.emplace_back("--enable-dp-attention");
                server.replicas = phase->replicas;
            } else {
                more(server.words, "--dp-size", phase->replicas);
            }
            add_precision("--quantization", "fp8_e4m3", out, server.words);
            const std::int64_t budget = phase->scheduler.token_budget / phase->groups;
            if (scheduler(*phase) == "chunked-prefill") {
                server.words.emplace_back("--enable-mixed-chunk");
                add(server.words, "--chunked-prefill-size", budget);
            } else {
                add(server.words, "--max-prefill-tokens", budget);
                note_scheduler(*phase, {"vllm-v0"}, out);
            }
            add(server.words, "--max-running-requests", phase->scheduler.max_sequences);
            add(server.words, "--mem-fraction-static", engine_.memory_fraction);
            more(server.words, "--context-length", engine_.max_context);
            if (!engine_.prefix_cache) {
                server.words.emplace_back("--disable-radix-cache");
            }
            if (role != Role::mixed) {
                add(server.words, "--disaggregation-mode", role == Role::prefill ? "prefill" : "decode");
            }
            append(server, out);
        }
        return out;
    }

    DeploymentFile tensorrt() {
        DeploymentFile out = begin("trtllm-serve.sh", "trtllm-args");
        std::string options = fmt::format("kv_cache_config: {{enable_block_reuse: {}{}}}\n", engine_.prefix_cache,
                                          engine_.cache == Precision::fp8 ? ", dtype: fp8" : "");
        ORRERY_ASSERT(!engine_.phases().empty());
        const PhaseSpec& any = *engine_.phases().back().second;
        options += scheduler(any) == "chunked-prefill" ? "enable_chunked_prefill: true\n" : "";
        note_scheduler(any, {"chunked-prefill", "in-flight"}, out);
        const bool spread = any.groups > 1;
        options += spread ? "enable_attention_dp: true\n" : "";
        std::vector<std::string> quantised;
        add_precision("", "fp8", out, quantised);
        const bool fp4 = !quantised.empty() && engine_.weights == Precision::fp4;
        options += quantised.empty() ? "" : fmt::format("quant_config: {{quant_algo: {}}}\n", fp4 ? "NVFP4" : "FP8");
        out.text += "cat > trtllm.yaml <<'EOF'\n" + options + "EOF\n";
        std::string phases;
        std::int64_t port = 8001;
        for (const auto& [role, phase] : engine_.phases()) {
            Server server{role, phase->replicas, {"trtllm-serve", model_}};
            add(server.words, "--tp_size", phase->stage_ranks());
            more(server.words, "--pp_size", phase->pipeline);
            more(server.words, "--ep_size", phase->expert);
            add(server.words, "--max_num_tokens", phase->scheduler.token_budget / phase->groups);
            add(server.words, "--max_batch_size", phase->scheduler.max_sequences / phase->groups);
            add(server.words, "--kv_cache_free_gpu_memory_fraction", engine_.memory_fraction);
            more(server.words, "--max_seq_len", engine_.max_context);
            server.words.insert(server.words.end(), {"--extra_llm_api_options", "trtllm.yaml"});
            if (role != Role::mixed) {
                add(server.words, "--port", port);
                phases += role == Role::prefill ? "context_servers:\n  urls:\n" : "generation_servers:\n  urls:\n";
                for (std::int64_t i = 0; i < phase->replicas; ++i) {
                    phases += fmt::format("  - \"{}-{}:{}\"\n", role == Role::prefill ? "prefill" : "decode", i, port);
                }
                ++port;
                server.replicas = 1;
            }
            append(server, out);
        }
        if (!phases.empty()) {
            out.text += "\ncat > phases.yaml <<'EOF'\n" + phases + "EOF\ntrtllm-serve disaggregated -c phases.yaml\n";
        }
        return out;
    }

    DeploymentFile dynamo() {
        DeploymentFile out = begin("dynamo.yaml", "vllm-args");
        out.text +=
            "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata:\n  name: recommended\nspec:\n"
            "  services:\n    Frontend:\n      componentType: frontend\n      replicas: 1\n      extraPodSpec:\n"
            "        mainContainer:\n          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:latest\n"
            "          command: [python3, -m, dynamo.frontend]\n";
        for (const auto& [role, phase] : engine_.phases()) {
            std::vector<std::string> words = {"--model", model_};
            add_vllm(*phase, out, words);
            if (role == Role::prefill) {
                words.emplace_back("--is-prefill-worker");
            }
            out.text += fmt::format(
                "    {}:\n      componentType: worker\n      replicas: {}\n      resources: {{limits: {{gpu: "
                "\"{}\"}}}}\n"
                "      extraPodSpec:\n        mainContainer:\n"
                "          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:latest\n"
                "          command: [python3, -m, dynamo.vllm]\n          args:\n{}",
                role == Role::mixed     ? "Worker"
                : role == Role::prefill ? "Prefill"
                                        : "Decode",
                phase->replicas, phase->ranks(), list(words, "          "));
        }
        return out;
    }

    DeploymentFile llm_d() {
        DeploymentFile out = begin("llm-d.yaml", "vllm-args");
        bool first = true;
        for (const auto& [role, phase] : engine_.phases()) {
            std::vector<std::string> words = {"--model", model_};
            add_vllm(*phase, out, words);
            add_phase(role, words);
            const std::string name = role == Role::mixed ? "both" : role == Role::prefill ? "prefill" : "decode";
            out.text += fmt::format(
                "{}apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: recommended-{}\nspec:\n  replicas: {}\n"
                "  selector: {{matchLabels: {{llm-d.ai/role: {}}}}}\n  template:\n"
                "    metadata: {{labels: {{llm-d.ai/role: {}}}}}\n    spec:\n      containers:\n      - name: vllm\n"
                "        image: vllm/vllm-openai:v0.19.0\n        resources: {{limits: {{nvidia.com/gpu: \"{}\"}}}}\n"
                "        args:\n{}",
                first ? "" : "---\n", name, phase->replicas, name, name, phase->ranks(), list(words, "        "));
            first = false;
        }
        return out;
    }

  private:
    [[nodiscard]] DeploymentFile begin(const std::string& name, const std::string& importer) const {
        DeploymentFile out;
        out.name = name;
        out.importer = importer;
        out.text = fmt::format("{}\n# To read it back: orrery import {} {}{}\n", deployment_mark(name), importer, name,
                               node_.empty() ? "" : " --node " + node_);
        const auto lacks = [&](bool has, const char* what) {
            if (has) {
                out.left_out.emplace_back(what);
            }
        };
        const bool several = engine_.any_phase([](const PhaseSpec& phase) { return phase.replicas > 1; });
        if (several && engine_.router.name() != "round-robin") {
            out.left_out.push_back(fmt::format("the router {}: the engine's own", engine_.router.name()));
        }
        lacks(engine_.speculates, "speculation");
        lacks(engine_.names(), "adapters and models beside this one");
        lacks(engine_.prefix_host > 0 || engine_.prefix_nvme > 0 || engine_.shared.given,
              "tiers of the cache below the devices");
        lacks(engine_.host_memory > 0, "host memory for swapped blocks");
        lacks(engine_.compression.given, "compression of the cache");
        return out;
    }

    static std::string scheduler(const PhaseSpec& phase) { return phase.scheduler.policy.name(); }

    static void note_scheduler(const PhaseSpec& phase, const std::vector<std::string>& known, DeploymentFile& out) {
        if (std::find(known.begin(), known.end(), scheduler(phase)) == known.end()) {
            out.left_out.push_back(fmt::format("the scheduler {}: the engine's own", scheduler(phase)));
        }
    }

    template <class Value>
    static void add(std::vector<std::string>& words, const char* flag, const Value& value) {
        words.emplace_back(flag);
        words.push_back(fmt::format("{}", value));
    }

    // Flags whose default is 1, or 0 for what is not limited.
    static void more(std::vector<std::string>& words, const char* flag, std::int64_t value) {
        if (value > 1) {
            add(words, flag, value);
        }
    }

    // Weights that are not as the checkpoint has them, and an 8-bit cache. `flag` empty: only whether there is one.
    void add_precision(const char* flag, const char* cache, DeploymentFile& out,
                       std::vector<std::string>& words) const {
        const std::string name = precision_names()[static_cast<std::size_t>(engine_.weights)];
        const bool fp4 = engine_.weights == Precision::fp4 && serving_.model.experts.count == 0;
        if (name != stored_) {
            if (engine_.weights == Precision::fp8 || fp4) {
                words.emplace_back(flag);
                words.emplace_back(fp4 ? "modelopt_fp4" : "fp8");
            } else {
                out.left_out.push_back(fmt::format("weights in {}: name a checkpoint of them", name));
            }
        }
        if (engine_.cache == Precision::fp8 && flag[0] != '\0') {
            words.emplace_back("--kv-cache-dtype");
            words.emplace_back(cache);
        } else if (bytes_of(engine_.cache) < 2 && engine_.cache != Precision::fp8) {
            out.left_out.emplace_back("the precision of the cache");
        }
    }

    void add_vllm(const PhaseSpec& phase, DeploymentFile& out, std::vector<std::string>& words) const {
        add(words, "--tensor-parallel-size", phase.tensor);
        more(words, "--pipeline-parallel-size", phase.pipeline);
        more(words, "--data-parallel-size", phase.groups);
        if (phase.expert > 1) {
            words.emplace_back("--enable-expert-parallel");
        }
        add_precision("--quantization", "fp8", out, words);
        note_scheduler(phase, {"chunked-prefill", "vllm-v0"}, out);
        if (scheduler(phase) == "vllm-v0") {
            words.emplace_back("--no-enable-chunked-prefill");
        }
        add(words, "--max-num-batched-tokens", phase.scheduler.token_budget / phase.groups);
        add(words, "--max-num-seqs", std::max<std::int64_t>(1, phase.scheduler.max_sequences / phase.groups));
        add(words, "--gpu-memory-utilization", engine_.memory_fraction);
        more(words, "--max-model-len", longest(phase));
        words.emplace_back(engine_.prefix_cache ? "--enable-prefix-caching" : "--no-enable-prefix-caching");
    }

    // vLLM starts only where the cache has room for a sequence of the whole context, which is the model's unless told.
    [[nodiscard]] std::int64_t longest(const PhaseSpec& phase) const {
        if (engine_.max_context > 0) {
            return engine_.max_context;
        }
        const EngineLimits limits = limits_of(engine_, phase, serving_.model, scenario_.cluster.node.gpu);
        constexpr double kSure = 0.8;  // versions size their caches differently
        const auto room = static_cast<std::int64_t>(kSure * static_cast<double>(limits.blocks * limits.block));
        return room >= serving_.model.sequence ? 0 : std::max<std::int64_t>(1024, room / 1024 * 1024);
    }

    static void add_phase(Role role, std::vector<std::string>& words) {
        if (role != Role::mixed) {
            words.emplace_back("--kv-transfer-config");
            words.push_back(fmt::format("{{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"{}\"}}",
                                        role == Role::prefill ? "kv_producer" : "kv_consumer"));
        }
    }

    // A command on lines of its own; servers of two phases run beside each other.
    void append(const Server& server, DeploymentFile& out) const {
        if (server.replicas > 1) {
            out.left_out.push_back(
                fmt::format("{} replicas: start the command as often, behind a router", server.replicas));
            out.text += fmt::format("# {} of these, behind a router:\n", server.replicas);
        }
        std::size_t width = 0;
        for (const std::string& word : server.words) {
            const bool plain = word.find_first_of(" \"{}") == std::string::npos;
            const std::string quoted = plain ? word : "'" + word + "'";
            constexpr std::size_t kWidth = 100;
            const bool breaks = width > 0 && width + quoted.size() > kWidth && word[0] == '-';
            out.text += width == 0 ? "" : breaks ? " \\\n  " : " ";
            width = (breaks ? 0 : width) + quoted.size() + 1;
            out.text += quoted;
        }
        out.text += server.role == Role::mixed ? "\n" : " &\n";
    }

    static std::string list(const std::vector<std::string>& words, const std::string& indent) {
        std::string out;
        for (const std::string& word : words) {
            const bool plain = word.find_first_of(" \"{}") == std::string::npos;
            out += plain ? fmt::format("{}- \"{}\"\n", indent, word) : fmt::format("{}- '{}'\n", indent, word);
        }
        return out;
    }

    const Scenario& scenario_;
    const ServingKind& serving_;
    const EngineSpec& engine_;
    std::string model_, node_, stored_;
};

}  // namespace

std::string published_name(const std::string& model, const DataDirectory& data) {
    if (model.find('/') != std::string::npos) {
        return model;
    }
    for (const ModelSource& source : model_sources(data)) {
        const std::optional<NamedCheckpoint> found = find_checkpoint(source.source, data);
        if (source.preset == model && found && found->preset == model) {
            return source.source;
        }
    }
    return model;
}

std::vector<std::string> deployment_names() {
    return {"vllm-serve.sh", "sglang-serve.sh", "trtllm-serve.sh", "dynamo.yaml", "llm-d.yaml"};
}

std::string deployment_mark(const std::string& name) {
    return "# orrery-deployment-1 " + name;
}

std::vector<DeploymentFile> deployment_files(const Scenario& scenario, const std::string& model,
                                             const std::string& node, const DataDirectory& data) {
    Writer writer(scenario, published_name(model, data), node, data);
    std::vector<DeploymentFile> out = {writer.vllm(), writer.sglang(), writer.tensorrt(), writer.dynamo(),
                                       writer.llm_d()};
    for (DeploymentFile& file : out) {  // both phases leave out the same
        std::sort(file.left_out.begin(), file.left_out.end());
        file.left_out.erase(std::unique(file.left_out.begin(), file.left_out.end()), file.left_out.end());
    }
    return out;
}

}  // namespace orrery::plan
