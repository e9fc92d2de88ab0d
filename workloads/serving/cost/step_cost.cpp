#include "workloads/serving/cost/step_cost.hpp"

#include "sim/base/error.hpp"
#include "sim/device/device.hpp"
#include "sim/device/separate_units.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/serving/cost/streamed_weights.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

namespace orrery::serving {

namespace {

// Logits are read in 16 bits, written in 32 and read again by the reduction that picks a token.
constexpr double kSamplingBytes = 10;
constexpr StepWork kNotPriced{-1, 0, 0, 0};
// Rows for which a tuned library tries kernels: to this many times those of the product, and never beyond those of a large prompt,
// whose kernels fill the device whatever is chosen.
constexpr double kRowsTried = 4;
constexpr double kMostRowsTried = 8192;

bool weights_alone(Precision precision, const Quantisation& quantisation) {
    return precision == Precision::int4 || (precision == Precision::fp4 && !quantisation.fp4_units);
}

StepClass class_of(LayerRole role) {
    switch (role) {
        case LayerRole::input:
        case LayerRole::output:
        case LayerRole::router:
            return StepClass::product;
        case LayerRole::core:
            return StepClass::experts;
        case LayerRole::sum:
            return StepClass::collective;
        default:
            return StepClass::small;
    }
}

// Decoding attention leaves the units and the memory's interface free.
bool attends_beside(const ServingModel& m, double tensor) {
    const auto* units = dynamic_cast<const SeparateUnits*>(&m.device);
    if (units == nullptr || m.model.latent.kv_rank > 0) {
        return false;
    }
    Attention attention;
    attention.batch_heads = static_cast<double>(m.model.heads) / tensor;
    attention.head_dim = static_cast<double>(m.model.head_dim);
    attention.cache = m.quantisation.cache;
    return units->runs_beside(attention);
}

// Layers of the first kind that mixes tokens, and of the second (attention_form.hpp), or those that only have a window.
double first_layers(const ModelSpec& model) {
    return static_cast<double>(model.hybrid() ? model.layers_with(model::LayerPart::attention)
                                              : model.layers - model.windowed_layers());
}
double second_layers(const ModelSpec& model) {
    return static_cast<double>(model.hybrid() ? model::other_layers(model) : model.windowed_layers());
}

}  // namespace

StepWork AffineStep::work(const Batch& batch) {
    double tokens = batch.padded + batch.drafted;
    double context = 0;
    for (const BatchItem& item : batch.items) {
        tokens += item.tokens;
        context += item.tokens == 1 ? item.context : 0;
    }
    const double seconds = fixed_ + token_ * tokens + context_ * context;
    return {seconds, seconds, 0, 0, 0};
}

double cache_bytes_per_token(const ModelSpec& model, Precision cache, const KvCompressionSpec& compression) {
    if (compression.given) {
        return kv_bytes(compression, cache, model.kv_width(), static_cast<double>(model.head_dim)) *
               static_cast<double>(model.layers - model.linear_layers());
    }
    double bytes = 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const LayerKind kind = model.kind_of(layer);
        bytes += kind.part == model::LayerPart::feed_forward
                     ? 0
                     : model::attention_form(model, kind).cached_bytes(model, kind, cache);
    }
    return bytes;
}

double cache_ranks(const ModelSpec& model, std::int64_t tensor) {
    // Every rank needs the whole latent vector; fewer key heads than ranks are repeated.
    return model.latent.kv_rank > 0 ? 1 : static_cast<double>(std::min(tensor, model.kv_heads));
}

double weight_bytes_per_rank(const ModelSpec& model, const Quantisation& quantisation, std::int64_t tensor,
                             std::int64_t groups, std::int64_t stage, std::int64_t stages) {
    const auto t = static_cast<double>(tensor);
    const auto ranks = static_cast<double>(tensor * groups);
    const double share =
        static_cast<double>(stage_layers(model.layers, stage, stages)) / static_cast<double>(model.layers);
    const auto routed = static_cast<double>(model.expert_layers());
    const double dense = static_cast<double>(model.layers) - routed;
    const double beside = model.hybrid() ? model.hybrid_parameters() - routed * model.routed_parameters()
                                         : dense * model.layer_parameters() +
                                               routed * (model.attention_parameters() + model.unrouted_parameters());
    // Embedding and LM head stay in 16 bits; tied ones are one table where one stage has both.
    const bool both = stages == 1 && !model.tied_embeddings;
    const double tables = (both ? 2 : stage == 0 || stage == stages - 1 ? 1 : 0) * model.embedding_parameters();
    return (share * beside * bytes_of(quantisation.weights) + 2 * tables) / t +
           share * routed * model.routed_parameters() * bytes_of(quantisation.experts) / ranks;
}

ModelStep::ModelStep(const ServingModel& model)
    : m_(model),
      t_(static_cast<double>(model.gpus.size()) / static_cast<double>(model.groups)),
      share_(model.layers > 0 ? static_cast<double>(model.layers) / static_cast<double>(model.model.layers) : 1),
      beside_(attends_beside(model, t_)) {
    const std::size_t tensor = model.gpus.size() / model.groups;
    ORRERY_ASSERT(tensor * model.groups == model.gpus.size());
    tensor_group_.assign(model.gpus.begin(), model.gpus.begin() + static_cast<std::ptrdiff_t>(tensor));
    for (std::size_t first = 0; first < model.gpus.size(); first += tensor) {
        across_groups_.push_back(model.gpus[first]);
    }
    if (model.dispatch == Dispatch::hierarchical && model.groups > 1) {
        const GroupLayout layout = layout_of(model.fabric, model.gpus);
        node_.assign(model.gpus.begin(), model.gpus.begin() + layout.per_node());
        for (std::size_t place = 0; place < model.gpus.size(); place += layout.per_node()) {
            rail_.push_back(model.gpus[place]);
        }
        if (layout.nodes > 1) {
            nic_sharers_ = layout.per_node() * layout_of(model.fabric, rail_).nics.value() / layout.nics.value();
        }
    }
}

StepWork ModelStep::priced(const Operation& operation, Precision precision) const {
    const Cost cost = m_.device.cost(operation);
    double seconds = cost.seconds.value();
    // Narrow products run as much faster as their operands are narrower.
    const double flops = cost.flops * bytes_of(precision) / 2;
    if (m_.partitioned != nullptr && seconds > 0) {
        seconds *= std::max(1.0, units_share(*m_.partitioned, flops / seconds) / m_.units);
    }
    return {seconds, seconds, flops, cost.bytes, cost.flops};
}

StepWork ModelStep::product(double m, double n, double k) const {
    Gemm gemm;
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.weight_only = weights_alone(m_.quantisation.weights, m_.quantisation);
    (gemm.weight_only ? gemm.weights : gemm.precision) = m_.quantisation.weights;
    gemm.quantises = !gemm.weight_only && bytes_of(gemm.precision) < 2;
    StepWork best = priced(gemm, gemm.precision);
    if (m_.host.tuned) {
        // A kernel made for more rows computes fewer in the same time.
        const double most = std::min(kMostRowsTried, kRowsTried * m);
        for (double rows = std::bit_ceil(static_cast<std::uint64_t>(m)); rows <= most; rows *= 2) {
            gemm.m = rows;
            const StepWork padded = priced(gemm, gemm.precision);
            best.seconds = std::min(best.seconds, padded.seconds);
            best.kernels = best.seconds;
        }
    }
    return best;
}

StepWork ModelStep::streaming(double values, double kernels, StreamingKind kind) const {
    Streaming kernel;
    kernel.bytes = 2 * values;
    kernel.kernels = kernels;
    kernel.kind = kind;
    StepWork work = priced(kernel);
    if (m_.host.compiled && kind != StreamingKind::any) {
        kernel.kind = StreamingKind::any;
        if (const StepWork bytes = priced(kernel); bytes.seconds < work.seconds) {
            work = bytes;
        }
    }
    return work;
}

// A kernel whose result a product reads: with narrow products it is fused into their quantisation, whose time they have, and only
// its bytes count.
StepWork ModelStep::before_product(double values, StreamingKind kind) const {
    const bool fused =
        bytes_of(m_.quantisation.weights) < 2 && !weights_alone(m_.quantisation.weights, m_.quantisation);
    return fused ? streaming(values, 0, StreamingKind::any) : streaming(values, 1, kind);
}

StepWork ModelStep::collective(CollectiveOp op, const std::vector<GpuId>& ranks, double bytes) const {
    const double seconds =
        seconds_alone(m_.fabric, make_transfer(m_.fabric, m_.collectives, op, ranks, Bytes(bytes), m_.paths)).value();
    return {seconds, seconds, 0, 0, 0};
}

StepWork ModelStep::reduce(double tokens) const {
    const double bytes = 2 * static_cast<double>(m_.model.hidden) * tokens;
    if (tensor_group_.size() < 2) {
        return {};
    }
    if (m_.sums != SumRoute::library) {
        const double seconds = sum_by_messages(m_, tensor_group_, bytes);
        return {seconds, seconds, 0, 0, 0};
    }
    return collective(CollectiveOp::all_reduce, tensor_group_, bytes);
}

StepWork ModelStep::between(CollectiveOp op, double bytes) const {
    return collective(op, op == CollectiveOp::all_to_all ? m_.gpus : across_groups_, bytes);
}

LayerContext ModelStep::layer(double rows) const {
    return {m_.model,
            {m_.model.experts.count > 0, false},
            {t_, cache_ranks(m_.model, static_cast<std::int64_t>(t_)), 1},
            LayerPhase::decode,
            rows};
}

StepWork ModelStep::priced(const LayerOperation& one) const {
    switch (one.role) {
        case LayerRole::residual:
            return {};  // fused into the norm after it
        case LayerRole::norm:
            // With the residual addition before it, whose sum it does not read again.
            return before_product(2 * one.values(), StreamingKind::norm);
        case LayerRole::input:
        case LayerRole::output:
            return product(one.rows, one.out, one.in);
        case LayerRole::inner_norm:
            return streaming(one.values(), one.launches, StreamingKind::norm);
        case LayerRole::position:
            return streaming(one.values(), one.launches, StreamingKind::rotary);
        case LayerRole::activation:
            return before_product(one.values(), StreamingKind::activation);
        case LayerRole::choice:
            return streaming(one.values(), one.launches, StreamingKind::any);
        case LayerRole::sum:
            return tensor_group_.size() < 2 ? StepWork()
                                            : collective(CollectiveOp::all_reduce, tensor_group_, 2 * one.values());
        case LayerRole::router: {
            Gemm gate{one.rows, one.out, one.in};
            gate.precision = m_.model.experts.gate;
            return priced(gate);
        }
        case LayerRole::core:
            break;
    }
    ORRERY_ASSERT(one.kernel && std::holds_alternative<FusedExperts>(*one.kernel));
    FusedExperts experts = std::get<FusedExperts>(*one.kernel);
    experts.scaling = m_.quantisation.scaling;
    experts.weight_only = weights_alone(m_.quantisation.experts, m_.quantisation);
    (experts.weight_only ? experts.weights : experts.precision) = m_.quantisation.experts;
    return priced(experts, experts.precision);
}

StepProgram ModelStep::program_of(const LayerOperations& operations) const {
    StepProgram out;
    for (const LayerOperation& one : operations) {
        out.add(one.name, class_of(one.role), priced(one));
    }
    return out;
}

StepProgram ModelStep::norm(double tokens) const {
    const auto hidden = static_cast<double>(m_.model.hidden);
    return program_of({LayerOperation{"norm", LayerRole::norm, tokens, hidden, hidden}});
}

StepProgram ModelStep::attention_products(double tokens, bool windowed) const {
    LayerContext at = layer(tokens);
    at.kind = model::mixing_kind(m_.model, at.kind.experts, windowed);
    StepProgram out = norm(tokens);
    out.add(program_of(before_attention(at)));
    out.add(program_of(after_attention(at)));
    return out;
}

StepProgram ModelStep::feed_forward(double tokens, double width) const {
    return program_of(dense_feed_forward(layer(tokens), width));
}

// A context-coherent group leaves tokens where their experts are: the busiest rank has as many more as its experts.
double ModelStep::rank_tokens(double tokens, bool stays) const {
    const auto groups = static_cast<double>(m_.groups);
    return stays ? std::min(tokens, std::ceil(tokens * m_.expert_load / groups)) : std::ceil(tokens / groups);
}

StepProgram ModelStep::experts(double tokens, double group_tokens) const {
    const ExpertsSpec& routed = m_.model.experts;
    ExpertShard shard;
    shard.tokens = tokens;
    shard.devices = static_cast<double>(m_.expert);
    shard.held = (static_cast<double>(routed.count) + m_.redundant_experts) / shard.devices;
    // Of a token's choices, those that fall on this device.
    shard.choices = std::min(shard.held, static_cast<double>(routed.topk) / shard.devices * m_.expert_load);
    if (m_.groups == 1) {
        // Every token is there; libraries sort the choices of other ranks' experts along.
        shard.elsewhere = static_cast<double>(routed.topk) - shard.choices;
    }
    shard.width = static_cast<double>(routed.ffn) * shard.devices / static_cast<double>(m_.gpus.size());
    shard.shared = m_.groups > 1 ? 1 : t_;
    return program_of(routed_feed_forward(layer(group_tokens), shard));
}

StepWork ModelStep::by_node(double group_tokens, double token) const {
    const ExpertsSpec& routed = m_.model.experts;
    const double bytes = group_tokens / t_ * token;
    const auto exchanged = [&](const std::vector<GpuId>& ranks, double each) {
        return ranks.size() < 2 ? StepWork() : collective(CollectiveOp::all_to_all, ranks, each);
    };
    const StepWork across =
        exchanged(rail_, nic_sharers_ * bytes * holders_reached(routed, static_cast<double>(rail_.size())));
    const StepWork inside = exchanged(node_, bytes * holders_reached(routed, static_cast<double>(m_.expert)));
    return across.seconds > inside.seconds ? across : inside;
}

ModelStep::Exchange ModelStep::price_exchange(double tokens, double group_tokens, Mode mode) const {
    const ExpertsSpec& routed = m_.model.experts;
    const auto hidden = static_cast<double>(m_.model.hidden);
    const auto groups = static_cast<double>(m_.expert);
    if (m_.groups == 1) {
        return {};
    }
    if (m_.dispatch == Dispatch::gather) {
        const double bytes = 2 * hidden * tokens;
        return {between(CollectiveOp::all_gather, bytes), between(CollectiveOp::reduce_scatter, bytes)};
    }
    if (mode == Mode::stays) {
        // A rank sends the tokens whose expert is elsewhere there, where they stay: their residuals, once. By chance one in
        // `groups` is not sent, which is what an all-to-all leaves out.
        const double chance = 1 / groups;
        const double elsewhere = m_.affinity > 0 ? (1 - m_.affinity) / (1 - chance) : 1;
        return {between(CollectiveOp::all_to_all, 2 * hidden * group_tokens * elsewhere), {}};
    }
    if (m_.dispatch == Dispatch::hierarchical && mode == Mode::prompts) {
        return {by_node(group_tokens, bytes_of(m_.quantisation.weights) * hidden), by_node(group_tokens, 2 * hidden)};
    }
    // A rank sends its part of the group's tokens once to each of their experts, and gets as many back.
    // Choices within few groups of experts reach the ranks that hold those alone.
    const double reached =
        routed.groups > 0 && routed.group_topk > 0
            ? std::ceil(groups * static_cast<double>(routed.group_topk) / static_cast<double>(routed.groups))
            : groups;
    const double copies = group_tokens / t_ * std::min(static_cast<double>(routed.topk), reached) * hidden;
    return {between(CollectiveOp::all_to_all, bytes_of(m_.quantisation.weights) * copies),
            between(CollectiveOp::all_to_all, 2 * copies)};
}

StepProgram ModelStep::dense_layer(double tokens) const {
    StepProgram out = attention_products(tokens, false);
    out.add(norm(tokens));
    out.add(feed_forward(tokens, static_cast<double>(m_.model.ffn) / t_));
    return out;
}

StepProgram ModelStep::layers(double tokens, double own, Mode mode) const {
    const ModelSpec& model = m_.model;
    const auto routed = static_cast<double>(model.expert_layers());
    const double all = static_cast<double>(model.layers);
    const auto other = static_cast<double>(model::other_layers(model));
    const double mixing = model.hybrid() ? first_layers(model) + other : all;
    const double dense = (model.hybrid() ? all - mixing : all) - routed;
    StepProgram out;
    // The second norm of a layer, and both all-reduces; attention and feed-forward side by side share one of each.
    out.add(attention_products(own, false), share_ * (mixing - other));
    if (other > 0) {
        out.add(attention_products(own, true), share_ * other);
    }
    if (!model.parallel_block) {
        out.add(norm(own), share_ * (dense + routed));
    }
    const double blocks = model.hybrid() || model.parallel_block ? all : 2 * all;
    out.add("sum over tensor ranks", StepClass::collective, reduce(own), share_ * blocks);
    if (dense > 0) {
        out.add(feed_forward(own, static_cast<double>(model.ffn) / t_), share_ * dense);
    }
    if (routed > 0) {
        const Exchange exchange = price_exchange(tokens, own, mode);
        out.add(experts(tokens, own), share_ * routed);
        out.add("dispatch to experts", StepClass::collective, exchange.dispatch, share_ * routed);
        out.add("return from experts", StepClass::collective, exchange.combine, share_ * routed);
    }
    if (coherent()) {
        // Every rank gets the keys and values of the iteration's tokens, of all layers at once.
        const double context = cache_bytes_per_token(model, m_.quantisation.cache, m_.compression);
        out.add("gather of keys and values", StepClass::collective, between(CollectiveOp::all_gather, context * tokens),
                share_);
    }
    if (m_.embedding) {
        out.add(embedding(own));
    }
    return out;
}

StepProgram ModelStep::embedding(double tokens) const {
    StepProgram out;
    out.add("embedding", StepClass::small,
            streaming(2 * static_cast<double>(m_.model.hidden) * tokens, 1, StreamingKind::embedding));
    out.add("sum of embeddings", StepClass::collective, reduce(tokens));
    return out;
}

StepWork ModelStep::dense(std::uint32_t tokens, Mode mode) {
    std::vector<StepWork>& known = dense_.at(static_cast<std::size_t>(mode));
    if (known.size() <= tokens) {
        known.resize(std::size_t{tokens} + 1, kNotPriced);
    }
    if (known[tokens].seconds < 0) {
        known[tokens] = layers(tokens, rank_tokens(tokens, mode == Mode::stays), mode).total();
        ORRERY_ASSERT(known[tokens].seconds >= 0);
    }
    return known[tokens];
}

StepWork ModelStep::uneven(std::uint32_t tokens, std::uint32_t own) {
    if (own <= rank_tokens(tokens, false)) {
        return dense(tokens, Mode::prompts);
    }
    const auto [entry, fresh] = uneven_.try_emplace((std::uint64_t{tokens} << 32U) | own);
    if (fresh) {
        entry->second = layers(tokens, own, Mode::prompts).total();
    }
    return entry->second;
}

static CoreShape seen_by(const ServingModel& m, double tensor, double sequences, double queries, double keys) {
    CoreShape out;
    out.sequences = sequences;
    out.heads = static_cast<double>(m.model.heads) / tensor;
    out.queries = queries;
    out.keys = keys;
    out.cache = m.quantisation.cache;
    out.page = m.block;
    return out;
}

StepWork ModelStep::one_attention(double sequences, double queries, double keys, bool windowed) const {
    LayerContext at = layer(sequences * queries);
    at.kind = model::mixing_kind(m_.model, at.kind.experts, windowed);
    at.phase = queries > 1 ? LayerPhase::prompt : LayerPhase::decode;
    const CoreShape shape = seen_by(m_, t_, sequences, queries, keys);
    const Operation core = attention_core(at, shape);
    StepWork usual = priced(core);
    const auto* heads = std::get_if<Attention>(&core);
    if (m_.compression.given && heads != nullptr) {
        return compressed(*heads, usual);
    }
    for (const LayerOperation& one : beside_attention(at, shape)) {
        usual += priced(*one.kernel);
    }
    return usual;
}

StepWork ModelStep::attention(double sequences, double queries, double keys) const {
    const double full = first_layers(m_.model);
    return share_ * (full > 0 ? full * one_attention(sequences, queries, keys, false) : StepWork()) +
           windowed_attention(sequences, queries, keys);
}

StepWork ModelStep::windowed_attention(double sequences, double queries, double keys) const {
    const double windowed = second_layers(m_.model);
    return windowed > 0 ? share_ * windowed * one_attention(sequences, queries, keys, true) : StepWork();
}

StepWork ModelStep::head(std::uint32_t sequences, bool stays) {
    std::vector<StepWork>& known = head_[stays ? 1 : 0];
    if (known.size() <= sequences) {
        known.resize(std::size_t{sequences} + 1, kNotPriced);
    }
    if (known[sequences].seconds < 0) {
        known[sequences] = output_layer(rank_tokens(sequences, stays)).total();
    }
    return known[sequences];
}

StepProgram ModelStep::output_layer(double own) const {
    const auto vocabulary = static_cast<double>(m_.model.vocabulary);
    StepProgram out;
    out.add("output layer", StepClass::product,
            priced(Gemm{own, vocabulary / t_, static_cast<double>(m_.model.hidden)}));
    out.add("sampling", StepClass::small, streaming(kSamplingBytes / 2 * vocabulary * own, 2, StreamingKind::sampling));
    if (tensor_group_.size() > 1) {
        out.add("gather of logits", StepClass::collective,
                collective(CollectiveOp::all_gather, tensor_group_, 2 * vocabulary * own));
    }
    return out;
}

StepWork ModelStep::price_adapters(double tokens, double adapters) const {
    const ModelSpec& model = m_.model;
    const auto hidden = static_cast<double>(model.hidden);
    const auto rank = static_cast<double>(m_.adapters.rank);
    // Tokens are spread evenly over the adapters of the batch. Down to the rank, the long side is cut into parts that run side
    // by side: 64 for few tokens, else 8, as in vLLM's kernels.
    const double parts = tokens < 128 ? 64 : 8;
    const auto both = [&](double in, double middle, double out) {
        return priced(Gemm{tokens / adapters, middle, in / parts, adapters * parts}) +
               priced(Gemm{tokens / adapters, out, rank, adapters});
    };
    const double q = model.q_width() / t_;
    const double kv = model.kv_width() / cache_ranks(model, static_cast<std::int64_t>(t_));
    const auto layers = static_cast<double>(model.layers);
    StepWork seconds = layers * (both(hidden, 3 * rank, q + 2 * kv) + both(q, rank, hidden));
    if (m_.adapters.targets == AdapterTargets::all) {
        const double ffn = static_cast<double>(model.ffn) / t_;
        const double ups = model.gated ? 2 : 1;
        const double dense = layers - static_cast<double>(model.expert_layers());
        seconds += dense * (both(hidden, ups * rank, ups * ffn) + both(ffn, rank, hidden));
    }
    return share_ * seconds;
}

StepWork ModelStep::adapters(const Batch& batch) {
    std::uint64_t tokens = 0;
    for (const auto& [adapter, its_tokens] : batch.adapters) {
        tokens += its_tokens;
    }
    const auto [entry, fresh] = adapters_.try_emplace((tokens << 24U) | batch.adapters.size());
    if (fresh) {
        entry->second = price_adapters(static_cast<double>(tokens), static_cast<double>(batch.adapters.size()));
    }
    return entry->second;
}

// Both halves of a batch: one's decoding attention beside the other's products, layer by layer (Heo et al., "NeuPIMs", ASPLOS 2024,
// section 6). `attention` and `products` are of a half, which reads all weights.
static StepWork interleaved(const StepWork& attention, const StepWork& products, double layers) {
    StepWork both = 2.0 * (attention + products);
    const double alone = std::min(attention.seconds, products.seconds) / layers;  // before both halves are under way
    both.seconds = both.kernels = 2 * std::max(attention.seconds, products.seconds) + alone;
    return both;
}

StepWork ModelStep::kernels(const Batch& batch, StepProgram* out) {
    const auto groups = static_cast<double>(m_.groups);
    std::uint32_t tokens = batch.padded;
    double decoding = batch.padded;
    double context = 0;
    double prompts = 0;
    double prompt_tokens = 0;
    std::uint32_t longest_prompt = 0;
    for (const BatchItem& item : batch.items) {
        tokens += item.tokens;
        if (item.tokens == 1) {
            ++decoding;
            context += item.context;
        } else {
            ++prompts;
            prompt_tokens += item.tokens;
            longest_prompt = std::max(longest_prompt, item.tokens);
        }
    }
    StepWork work;
    StepWork pieces;  // attention of all prompts, one after another
    // Of it, where somebody asks: that of linear layers, and what indexers take.
    StepWork linear_pieces;
    StepWork indexed_pieces;
    const double full = share_ * first_layers(m_.model);
    const auto indexed = [&](double sequences, double queries, double at_keys) {
        LayerContext at = layer(sequences * queries);
        at.phase = queries > 1 ? LayerPhase::prompt : LayerPhase::decode;
        StepWork sum;
        for (const LayerOperation& one : beside_attention(at, seen_by(m_, t_, sequences, queries, at_keys))) {
            sum += full * priced(*one.kernel);
        }
        return sum;
    };
    const auto linear_attention = [&](double sequences, double queries, double at_keys) {
        return m_.model.linear.given() || m_.model.hybrid() ? windowed_attention(sequences, queries, at_keys)
                                                            : StepWork();
    };
    // Of the prompts a group has whole ones: the busiest, for which all wait, has the longest or one more than others.
    const double together = std::ceil(prompts / groups);
    const double busiest = prompts > 0 ? together / prompts : 0;
    if (prompts > 0) {
        StepWork& sum = pieces;
        double longest = 0;
        for (const BatchItem& item : batch.items) {
            if (item.tokens > 1) {
                const StepWork all = attention(together, item.tokens, item.context);
                const double piece = all.seconds / together;
                sum += {piece, piece, all.flops / together, all.bytes / together, all.done / together};
                longest = std::max(longest, piece);
                if (out != nullptr) {
                    linear_pieces += (1 / together) * linear_attention(together, item.tokens, item.context);
                    indexed_pieces += (1 / together) * indexed(together, item.tokens, item.context);
                }
            }
        }
        const double seconds = std::max(longest, sum.seconds * busiest);
        work += {seconds, seconds, sum.flops / groups, sum.bytes / groups, sum.done / groups};
    }
    const StepWork prompt_attention = work;
    StepProgram program;
    // Parts of attention's time stand by themselves.
    struct Part {
        const char* name;
        double seconds;
    };
    const auto note_attention = [&](const char* name, const StepWork& all, double seconds,
                                    std::initializer_list<Part> parts) {
        double rest = 1;
        for (const Part& part : parts) {
            const double share = seconds > 0 ? part.seconds / seconds : 0;
            if (share > 0) {
                program.add(part.name, StepClass::attention, share * all);
                rest -= share;
            }
        }
        program.add(name, StepClass::attention, rest * all);
    };
    const auto note = [&](const char* name, StepClass kind, const StepWork& one) {
        if (out != nullptr) {
            program.add(name, kind, one);
        }
        return one;
    };
    if (out != nullptr) {
        note_attention("attention of prompts", prompt_attention, pieces.seconds,
                       {{m_.model.hybrid() ? "state-space scans of prompts" : "linear attention of prompts",
                         linear_pieces.seconds},
                        {"indexer of prompts", indexed_pieces.seconds}});
    }
    const double running = std::max(1.0, decoding - batch.padded);
    const Mode mode = prompts > 0 ? Mode::prompts : coherent() ? Mode::stays : Mode::decodes;
    const bool stays = mode == Mode::stays;
    const double own = rank_tokens(decoding, stays);
    const double keys = std::max(1.0, context / running);
    if (decoding > 0) {
        const StepWork all = batch.prefixes.empty() ? attention(own, 1, keys) : shared_attention(batch, own, context);
        work += all;
        if (out != nullptr) {
            note_attention("attention of decoding sequences", all, all.seconds,
                           {{m_.model.hybrid() ? "state-space scans of decoding sequences"
                                               : "linear attention of decoding sequences",
                             linear_attention(own, 1, keys).seconds},
                            {"indexer of decoding sequences", indexed(own, 1, keys).seconds}});
        }
    }
    if (batch.drafted > 0 && m_.draft_layers > 0 && m_.head) {
        const auto drafting = static_cast<std::uint32_t>(running);
        const double share = static_cast<double>(m_.draft_layers) / (share_ * static_cast<double>(m_.model.layers));
        const StepWork pass =
            share * (attention(own, 1, keys) + dense(drafting, Mode::decodes)) + head(drafting, stays);
        work += note("drafts", StepClass::product, static_cast<double>(m_.draft_tokens) * pass);
    }
    const StepWork low_rank = batch.adapters.empty() || m_.adapters.rank == 0 ? StepWork() : adapters(batch);
    work += note("adapters", StepClass::product, low_rank);
    if (m_.compression.given) {
        work += note("compression of the cache", StepClass::small,
                     compress(std::ceil((tokens - batch.padded) / groups), prompts > 0));
    }
    auto sequences = static_cast<std::uint32_t>(batch.items.size()) + batch.padded;
    if (prompts == 0) {
        // A graph computes the places that it has too many, but for their attention.
        const std::uint32_t group = (sequences + m_.groups - 1) / m_.groups;
        const std::uint32_t idle = m_.groups * (graph_size(m_.host, group) - group);
        sequences += idle;
        tokens += idle;
    }
    const std::uint32_t passed = tokens + batch.drafted;
    const StepWork last = m_.head ? head(sequences + batch.drafted, stays) : StepWork();
    const double prompt_share = std::max<double>(longest_prompt, std::ceil(prompt_tokens * busiest));
    const double share = std::ceil((passed - prompt_tokens) / groups) + prompt_share;
    const auto own_passed = static_cast<std::uint32_t>(share);
    const StepWork whole = work + (prompts > 0 ? uneven(passed, own_passed) : dense(passed, mode)) + last;
    if (out != nullptr) {
        const double even = rank_tokens(passed, stays);
        program.add(layers(passed, prompts > 0 ? std::max<double>(own_passed, even) : even, mode));
        if (m_.head) {
            program.add(output_layer(rank_tokens(sequences + batch.drafted, stays)));
        }
    }
    StepWork best = whole;
    if (m_.nano_batches > 1) {
        const StepWork cut = nano_batched({static_cast<double>(passed), own, keys, prompt_attention, mode}) + low_rank +
                             last + (m_.embedding ? embedding(std::ceil(passed / groups)).total() : StepWork());
        best = cut.seconds < whole.seconds ? cut : whole;
    } else if (own >= 2 && beside_ && batch.prefixes.empty()) {
        const double count = share_ * static_cast<double>(m_.model.layers);
        const StepWork halves =
            prompt_attention + low_rank + last +
            interleaved(attention(std::ceil(own / 2), 1, keys), dense((passed + 1) / 2, mode), count);
        best = halves.seconds < whole.seconds ? halves : whole;
    }
    if (out != nullptr && whole.seconds > 0) {
        out->add(program, best.seconds / whole.seconds);
    }
    return best;
}

StepWork ModelStep::work(const Batch& batch) {
    return with_host(batch, kernels(batch));
}

StepProgram ModelStep::program(const Batch& batch) {
    StepProgram device;
    const StepWork work = kernels(batch, &device);
    const double slowdown = m_.host.slowdown.value;
    StepProgram out;
    out.add(device, slowdown);
    out.add("host and launches", StepClass::host,
            {with_host(batch, work).seconds - slowdown * work.seconds, 0, 0, 0, 0});
    return out;
}

StepWork ModelStep::with_host(const Batch& batch, StepWork work) const {
    IterationShape shape;
    // A feed-forward layer of a pattern is the other half of one that mixes tokens.
    shape.layers = share_ * (m_.model.hybrid() ? first_layers(m_.model) + second_layers(m_.model)
                                               : static_cast<double>(m_.model.layers));
    shape.latent_layers =
        m_.model.latent.kv_rank > 0 ? share_ * static_cast<double>(m_.model.layers - m_.model.linear_layers()) : 0;
    shape.routed_layers = share_ * static_cast<double>(m_.model.expert_layers());
    const auto sequences = static_cast<double>(batch.items.size()) + batch.padded;
    double tokens = batch.padded + batch.drafted;
    for (const BatchItem& item : batch.items) {
        tokens += item.tokens;
        shape.prompts = shape.prompts || item.tokens > 1;
    }
    // Each attention group has a host process of its own, which plans, launches and samples for its own sequences.
    const auto groups = static_cast<double>(m_.groups);
    shape.sequences = std::ceil(sequences / groups);
    shape.tokens = std::ceil(tokens / groups);
    work.seconds =
        iteration_seconds(m_.host, work.seconds, shape) + m_.step_overhead + m_.sequence_overhead * shape.sequences;
    return work;
}

}  // namespace orrery::serving
