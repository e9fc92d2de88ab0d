// SimAI workload files: a head with the plan, then a row a layer with twelve fields.
//
// A layer's forward computation is followed by its collective; the backward pass goes through the layers in reverse with
// input gradient, its collective, weight gradient, and a collective that overlaps what follows and is waited for at the end.
// Times are ns, sizes bytes. The rows of all micro-batches stand one after another: the head's `ga` only says how many there are.
// A collective of 0 bytes is one that its software overlaps, and is left out. MICRO files are collectives of all ranks.
// Limits: with `pp` above 1 the rows are those of one stage and do not say what it waits for; --one-stage takes it alone.
// Source: AICB, workload_generator/SimAI_training_workload_generator.py, and the examples of SimAI.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/replay/importers/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::replay {

namespace {

struct Transfer {
    bool present = false;
    CollectiveOp op = CollectiveOp::all_reduce;
    double bytes = 0;
    std::string_view suffix;  ///< EP, DP_EP or nothing
};

struct Layer {
    std::string name;
    std::array<double, 3> compute_s{};  ///< forward, input gradient, weight gradient
    std::array<Transfer, 3> transfer;
    double update_s = 0;
};

class AicbReader : TextLines {
  public:
    AicbReader(std::string_view text, const ImportInput& input) : TextLines(text, input.path()), input_(input) {}

    ReplayTrace run() {
        std::vector<std::string_view> words;
        if (!next_words(words) || words.empty() ||
            (words[0].substr(0, 18) != "HYBRID_TRANSFORMER" && words[0] != "MICRO")) {
            fail_at(1, fmt::format("expected a first line that starts with HYBRID_TRANSFORMER or MICRO, the policy of "
                                   "the plan, and found {}",
                                   words.empty() ? "none" : fmt::format("'{}'", printable(words[0], 40))));
            finish();
        }
        read_head(words);
        double count = 0;
        if (!next_words(words) || words.size() != 1 || !parse_number(words[0], count)) {
            fail("the second line is the number of layers");
        }
        while (next_words(words)) {
            if (!words.empty()) {
                read_layer(words);
            }
        }
        if (problems() == 0 && static_cast<double>(layers_.size()) != count) {
            fail(fmt::format("{} layers, but the second line says {:g}: the file is cut off", layers_.size(), count));
        }
        finish();
        check_ranks();
        lower();
        notes_.read("layers", layers_.size());
        return std::move(trace_);
    }
    [[nodiscard]] const ImportNotes& notes() const { return notes_; }

  private:
    bool next_words(std::vector<std::string_view>& words) {
        words.clear();
        std::string_view line;
        if (!next_line(line)) {
            return false;
        }
        for (std::size_t i = 0; i < line.size();) {
            const std::size_t start = std::min(line.find_first_not_of(" \t\r", i), line.size());
            const std::size_t stop = std::min(line.find_first_of(" \t\r", start), line.size());
            if (stop > start) {
                words.push_back(line.substr(start, stop - start));
            }
            i = stop;
        }
        return true;
    }

    void read_head(const std::vector<std::string_view>& words) {
        const std::pair<const char*, double*> fields[] = {
            {"model_parallel_NPU_group:", &tensor_}, {"ep:", &expert_}, {"pp:", &pipeline_}, {"all_gpus:", &gpus_}};
        for (std::size_t i = 1; i + 1 < words.size(); ++i) {
            for (const auto& [name, value] : fields) {
                if (words[i] == name && (!parse_number(words[i + 1], *value) || *value < 1 || *value > 1 << 20 ||
                                         *value != std::floor(*value))) {
                    fail(fmt::format("{} is a whole number from 1, not '{}'", name, words[i + 1]));
                    *value = 1;
                }
            }
        }
        const double ranks = input_.whole_option("ranks");
        if (gpus_ > 0 && ranks > 0 && ranks != gpus_) {
            fail(fmt::format("all_gpus is {:g}, and --ranks {:g}", gpus_, ranks));
        }
        gpus_ = std::max(gpus_, ranks);
        if (pipeline_ > 1 && !input_.has("one-stage")) {
            fail(fmt::format(
                "pp {:g}: the rows are those of one stage and do not say what it waits for; --one-stage takes "
                "it alone, without sends and bubble",
                pipeline_));
        } else if (pipeline_ > 1) {
            if (std::fmod(gpus_, pipeline_) != 0) {
                fail(fmt::format("{:g} GPUs do not divide into {:g} stages", gpus_, pipeline_));
            }
            gpus_ = std::floor(gpus_ / pipeline_);
            notes_.left_out("stages, with the sends between them and the pipeline's bubble",
                            static_cast<std::uint64_t>(pipeline_) - 1);
        }
    }

    // Without `all_gpus` nobody knows over how many ranks gradients are reduced.
    void check_ranks() {
        const bool communicates = std::any_of(layers_.begin(), layers_.end(), [](const Layer& layer) {
            return std::any_of(layer.transfer.begin(), layer.transfer.end(),
                               [](const Transfer& t) { return t.present; });
        });
        if (gpus_ == 0 && communicates) {
            fail_at(1, "the head does not say all_gpus: --ranks N does");
        } else if (std::fmod(gpus_, expert_ * tensor_) != 0) {
            fail_at(1, fmt::format("{:g} GPUs do not divide into tensor {:g} x expert {:g}", gpus_, tensor_, expert_));
        }
        finish();
        gpus_ = std::max(gpus_, 1.0);
    }

    double number(std::string_view word, const char* what) {
        double value = 0;
        double scale = 1;
        if (!word.empty() && (word.back() == 'K' || word.back() == 'M' || word.back() == 'G')) {
            scale = word.back() == 'K' ? 1024.0 : word.back() == 'M' ? 1048576.0 : 1073741824.0;
            word.remove_suffix(1);
        }
        if (!parse_number(word, value) || value < 0 || value > 1e18) {
            fail(fmt::format("{} is a number from 0, not '{}'", what, word));
            return 0;
        }
        return value * scale;
    }

    Transfer transfer(std::string_view kind, std::string_view size) {
        Transfer out;
        if (kind == "NONE") {
            return out;
        }
        const std::pair<const char*, CollectiveOp> kinds[] = {{"ALLREDUCE", CollectiveOp::all_reduce},
                                                              {"ALLGATHER", CollectiveOp::all_gather},
                                                              {"REDUCESCATTER", CollectiveOp::reduce_scatter},
                                                              {"ALLTOALL", CollectiveOp::all_to_all},
                                                              // moves at most what an all-gather does
                                                              {"BROADCAST", CollectiveOp::all_gather}};
        for (const auto& [name, op] : kinds) {
            const std::string_view word(name);
            if (kind.substr(0, word.size()) == word) {
                out.present = true;
                out.op = op;
                out.suffix = kind.size() > word.size() ? kind.substr(word.size() + 1) : std::string_view();
            }
        }
        if (!out.present || (!out.suffix.empty() && out.suffix != "EP" && out.suffix != "DP_EP")) {
            fail(
                fmt::format("'{}' is no collective: NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL or "
                            "BROADCAST, with _EP or _DP_EP",
                            kind));
        }
        out.bytes = number(size, "the size of a collective");
        if (out.present && out.bytes == 0) {
            out.present = false;
            notes_.left_out("collectives of 0 bytes (hidden by their software)");
        }
        return out;
    }

    void read_layer(const std::vector<std::string_view>& words) {
        if (words.size() != 12) {
            fail(fmt::format("{} fields, a layer has 12", words.size()));
            return;
        }
        Layer layer;
        layer.name = words[0];
        for (std::size_t part = 0; part < 3; ++part) {
            layer.compute_s[part] = number(words[2 + 3 * part], "a computation time (ns)") * 1e-9;
            layer.transfer[part] = transfer(words[3 + 3 * part], words[4 + 3 * part]);
        }
        layer.update_s = number(words[11], "the update time (ns)") * 1e-9;
        layers_.push_back(std::move(layer));
    }

    // Tensor-parallel ranks are neighbours; experts spread over the data-parallel ranks with equal tensor rank.
    [[nodiscard]] std::uint32_t group_of(const Transfer& transfer, bool weights) {
        const auto tensor = static_cast<std::uint32_t>(tensor_);
        const auto expert = static_cast<std::uint32_t>(expert_);
        const auto data = static_cast<std::uint32_t>(gpus_) / tensor;
        if (transfer.suffix == "EP") {
            return trace_.group(ReplayGroup{{}, expert, tensor});
        }
        if (transfer.suffix == "DP_EP") {
            return trace_.group(ReplayGroup{{}, data / expert, tensor * expert});
        }
        return trace_.group(weights ? ReplayGroup{{}, data, tensor} : ReplayGroup{{}, tensor, 1});
    }

    void compute(const std::string& name, double seconds) {
        ReplayOp op;
        op.kind = ReplayKind::kernel;
        op.name = trace_.name(name);
        op.lane = trace_.lane("compute");
        op.duration_s = seconds;
        last_ = trace_.add(op, last_ == ReplayOp::kNone ? std::vector<std::uint32_t>() : std::vector{last_});
    }

    std::uint32_t communicate(const std::string& name, const Transfer& transfer, bool weights) {
        ReplayOp op;
        op.kind = ReplayKind::collective;
        op.name = trace_.name(name);
        op.lane = trace_.lane(weights ? "gradients" : "communication");
        op.collective = transfer.op;
        op.bytes = transfer.bytes;
        op.group = group_of(transfer, weights);
        std::vector<std::uint32_t> waits = {last_};
        if (weights && gradient_ != ReplayOp::kNone) {
            waits.push_back(gradient_);
        }
        return trace_.add(op, std::move(waits));
    }

    void lower() {
        trace_.ranks = static_cast<std::uint32_t>(gpus_);
        trace_.meta["source"] = "aicb";
        for (const Layer& layer : layers_) {
            compute(layer.name + " forward", layer.compute_s[0]);
            if (layer.transfer[0].present) {
                last_ = communicate(layer.name + " forward", layer.transfer[0], false);
            }
        }
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
            compute(layer->name + " input gradient", layer->compute_s[1]);
            if (layer->transfer[1].present) {
                last_ = communicate(layer->name + " input gradient", layer->transfer[1], false);
            }
            compute(layer->name + " weight gradient", layer->compute_s[2]);
            if (layer->transfer[2].present) {
                gradient_ = communicate(layer->name + " weight gradient", layer->transfer[2], true);
            }
        }
        double update_s = 0;
        for (const Layer& layer : layers_) {
            update_s += layer.update_s;
        }
        ReplayOp op;
        op.name = trace_.name("update");
        op.lane = trace_.lane("compute");
        op.duration_s = update_s;
        std::vector<std::uint32_t> waits;
        for (const std::uint32_t before : {last_, gradient_}) {
            if (before != ReplayOp::kNone) {
                waits.push_back(before);
            }
        }
        trace_.add(op, std::move(waits));
    }

    const ImportInput& input_;
    double tensor_ = 1, expert_ = 1, pipeline_ = 1;
    double gpus_ = 0;  ///< of the ranks imported; 0: not said
    ImportNotes notes_;
    std::vector<Layer> layers_;
    std::uint32_t last_ = ReplayOp::kNone;
    std::uint32_t gradient_ = ReplayOp::kNone;
    ReplayTrace trace_;
};

Imported import_aicb(const ImportInput& input) {
    const std::string text = input.bytes();
    AicbReader reader(text, input);
    const ReplayTrace trace = reader.run();
    return imported_program(trace, reader.notes());
}

}  // namespace

extern const Importer kAicbImporter = {
    "aicb",
    "workload file of SimAI (AICB)",
    {kRanksOption, {"one-stage", "", "take the rows of a file with pp above 1 as one stage alone"}},
    import_aicb};

}  // namespace orrery::replay
