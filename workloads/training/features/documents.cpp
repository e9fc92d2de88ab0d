#include "workloads/training/features/documents.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace orrery::training {

void DocumentsPlan::describe(Fields& fields) {
    fields.items(
        {"lengths", "lengths of the documents, as they are drawn"}, lengths, [](Fields& inner, DocumentLength& one) {
            inner.integer({"tokens", "tokens of a document", true, 1, 1'000'000'000}, one.tokens);
            inner.number({"share", "relative frequency of documents of this length", false, 0, 1e15}, one.share);
        });
    fields.text(
        {"trace", "file of document lengths in tokens, one per line, in the order of training; instead of lengths"},
        trace);
    fields.enumeration({"fill", "a sequence: a document and padding; documents that fill it; a document alone"},
                       {"padded", "packed", "unpadded"}, fill);
    fields.boolean({"balance", "sequences are dealt out to replicas by what they cost, not as they are drawn"},
                   balanced);
    fields.boolean({"dynamic_groups", "a long document is cut over as many ranks as it needs, all others over none"},
                   dynamic);
}

void DocumentsPlan::check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const {
    const bool cut = fill != DocumentFill::padded;
    out.refuse(lengths.empty() == trace.empty(), "documents need lengths or a trace of them, and not both");
    double shares = 0;
    for (const DocumentLength& one : lengths) {
        shares += one.share;
        out.refuse(one.tokens > model.sequence,
                   fmt::format("documents of {} tokens do not fit into a sequence of {}", one.tokens, model.sequence));
    }
    out.refuse(!lengths.empty() && shares <= 0, "documents: the shares of lengths must not all be 0");
    out.refuse(plan.context > 1 && plan.context_exchange != ContextExchange::ring,
               "documents are cut over ranks in rings: context_exchange: ring");
    out.refuse(cut && plan.attention == AttentionKernel::unfused,
               "documents that are packed or unpadded need attention: flash, flash2 or flash1");
    out.refuse(fill == DocumentFill::unpadded && (plan.pipeline > 1 || plan.context > 1),
               "documents without padding (fill: unpadded) need pipeline 1 and context 1");
    out.refuse(balanced && !cut,
               "documents: balance needs fill: packed or unpadded, as padded sequences cost the same");
    out.refuse(dynamic && (fill != DocumentFill::packed || plan.pipeline > 1),
               "documents: dynamic_groups need fill: packed and pipeline 1");
    out.refuse(dynamic && balanced, "documents: dynamic_groups balance by themselves: leave balance out");
    out.refuse(
        (dynamic || fill == DocumentFill::unpadded) && model.experts.count > 0,
        "documents: ranks with unlike numbers of tokens (dynamic_groups, unpadded) are not modelled with experts");
    out.refuse(cut && model.latent.kv_rank > 0 && plan.context > 1,
               "documents: latent attention is not cut over ranks");
}

extern const FeatureRow kDocuments;
const FeatureRow kDocuments = {"documents",
                               "documents of the training set: their lengths, and how they fill sequences and ranks",
                               make_feature<DocumentsPlan>};

double document_flops(const ModelSpec& model, const PlanSpec& plan, double length) {
    ModelSpec one = model;
    one.sequence = static_cast<std::int64_t>(length);
    return length * flops_per_token(one, plan);
}

double MicroBatchLoad::squares() const {
    double sum = 0;
    for (const DocumentPiece& piece : pieces) {
        sum += piece.count * piece.length * piece.length / piece.ranks;
    }
    return sum;
}

std::vector<std::int64_t> read_document_trace(const std::string& path, std::int64_t longest) {
    InputLines file(path);
    std::vector<std::int64_t> out;
    std::vector<Diagnostic> errors;
    for (std::string line; file.next(line);) {
        line = line.substr(0, line.find('#'));
        line.erase(line.find_last_not_of(" \t\r") + 1);
        if (line.empty()) {
            continue;
        }
        double value = 0;
        if (!parse_number(line, value) || value < 1 || value != static_cast<double>(static_cast<std::int64_t>(value))) {
            errors.push_back(
                {path, file.number(), 1, fmt::format("'{}' is no length in tokens", line), ErrorCode::malformed_trace});
        } else if (value > static_cast<double>(longest)) {
            errors.push_back({path, file.number(), 1,
                              fmt::format("a document of {} tokens does not fit into a sequence of {}", line, longest),
                              ErrorCode::malformed_trace});
        } else {
            out.push_back(static_cast<std::int64_t>(value));
        }
    }
    if (errors.empty() && out.empty()) {
        errors.push_back({path, 1, 1, "names no length", ErrorCode::malformed_trace});
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return out;
}

namespace {

// Lengths as training meets them: drawn, or those of a trace, over and over.
class Source {
  public:
    Source(const DocumentsPlan& plan, const std::vector<std::int64_t>& trace, std::uint64_t seed)
        : plan_(plan), trace_(trace), stream_(seed, "training/documents") {
        for (const DocumentLength& one : plan.lengths) {
            sum_ += one.share;
        }
    }
    std::int64_t next() {
        if (!trace_.empty()) {
            return trace_[at_++ % trace_.size()];
        }
        double left = stream_.uniform() * sum_;
        for (const DocumentLength& one : plan_.lengths) {
            left -= one.share;
            if (left < 0) {
                return one.tokens;
            }
        }
        return plan_.lengths.back().tokens;
    }

  private:
    const DocumentsPlan& plan_;
    const std::vector<std::int64_t>& trace_;
    RandomStream stream_;
    double sum_ = 0;
    std::size_t at_ = 0;
};

using Sequence = std::vector<std::int64_t>;  // documents

// Best fit: the fullest sequence that has room, and of those the first.
std::vector<Sequence> pack(Source& source, std::size_t count, std::int64_t room) {
    std::vector<Sequence> out(count);
    std::set<std::pair<std::int64_t, std::size_t>> open;
    for (std::size_t i = 0; i < count; ++i) {
        open.emplace(room, i);
    }
    for (;;) {
        const std::int64_t length = source.next();
        const auto found = open.lower_bound({length, 0});
        if (found == open.end()) {
            return out;
        }
        const auto [left, into] = *found;
        open.erase(found);
        ORRERY_ASSERT(left >= length);
        out[into].push_back(length);
        if (left > length) {
            open.emplace(left - length, into);
        }
    }
}

class Layout {
  public:
    Layout(const ModelSpec& model, const PlanSpec& plan, std::uint32_t node_columns)
        : model_(model), plan_(plan), node_columns_(std::max(1U, node_columns)) {
        out_.columns =
            static_cast<std::uint32_t>(plan.feature<DocumentsPlan>().dynamic ? plan.data * plan.context : plan.data);
        out_.micro_batches = static_cast<std::uint32_t>(plan.micro_batches());
    }

    DocumentLayout fixed(std::vector<Sequence> sequences) {
        count(sequences);
        if (plan_.feature<DocumentsPlan>().balanced) {
            sequences = dealt(std::move(sequences));
        }
        const auto together = static_cast<std::size_t>(plan_.micro_batch);
        const auto cut = static_cast<std::uint32_t>(plan_.context);
        for (std::size_t cell = 0; cell * together < sequences.size(); ++cell) {
            std::map<std::int64_t, double> lengths;
            double tokens = 0;
            for (std::size_t i = cell * together; i < (cell + 1) * together; ++i) {
                for (const std::int64_t length : sequences[i]) {
                    ++lengths[length];
                    tokens += static_cast<double>(length);
                }
            }
            const bool whole = plan_.feature<DocumentsPlan>().fill == DocumentFill::packed;
            const double rows =
                whole ? static_cast<double>(together) * static_cast<double>(model_.sequence) / cut : tokens;
            add(load_of(rows, lengths, cut));
        }
        ORRERY_ASSERT(out_.of.size() == std::size_t{out_.columns} * out_.micro_batches);
        out_.rows *= cut;
        return std::move(out_);
    }

    // Every sequence is as long as the model's: all micro-batches are what they are without documents.
    DocumentLayout padded(std::vector<Sequence> sequences) {
        count(sequences);
        const double rows = static_cast<double>(plan_.micro_batch * model_.sequence);
        out_.loads.push_back({rows / static_cast<double>(plan_.context),
                              {{static_cast<double>(model_.sequence), static_cast<double>(plan_.micro_batch),
                                static_cast<std::uint32_t>(plan_.context)}}});
        out_.of.assign(std::size_t{out_.columns} * out_.micro_batches, 0);
        out_.rows = rows * static_cast<double>(out_.of.size());
        out_.longest_rows = out_.loads[0].rows;
        return std::move(out_);
    }

    DocumentLayout dynamic(const std::vector<Sequence>& sequences) {
        count(sequences);
        std::vector<std::int64_t> documents;
        for (const Sequence& sequence : sequences) {
            documents.insert(documents.end(), sequence.begin(), sequence.end());
        }
        std::sort(documents.rbegin(), documents.rend());
        room_ = static_cast<double>(plan_.micro_batch) * static_cast<double>(model_.sequence) /
                static_cast<double>(plan_.context);
        cells_.resize(std::size_t{out_.columns} * out_.micro_batches);
        spent_.assign(out_.columns, 0);
        for (std::uint32_t column = 0; column < out_.columns; ++column) {
            by_spent_.emplace(0.0, column);
        }
        for (const std::int64_t length : documents) {
            place(static_cast<double>(length));
        }
        for (const Cell& cell : cells_) {
            MicroBatchLoad load{std::max(1.0, cell.rows), {}};
            for (const auto& [piece, number] : cell.pieces) {
                load.pieces.push_back(piece);
                load.pieces.back().count = number;
            }
            add(load);
        }
        ORRERY_ASSERT(out_.of.size() == std::size_t{out_.columns} * out_.micro_batches);
        return std::move(out_);
    }

  private:
    struct Cell {
        double rows = 0;
        std::map<DocumentPiece, double> pieces;  ///< and how many
    };

    void count(const std::vector<Sequence>& sequences) {
        std::map<std::int64_t, double> all;
        for (const Sequence& sequence : sequences) {
            for (const std::int64_t length : sequence) {
                ++all[length];
                out_.tokens += static_cast<double>(length);
            }
        }
        for (const auto& [length, number] : all) {
            out_.documents.push_back({length, number});
        }
    }

    static MicroBatchLoad load_of(double rows, const std::map<std::int64_t, double>& lengths, std::uint32_t cut) {
        MicroBatchLoad out{rows, {}};
        for (const auto& [length, number] : lengths) {
            out.pieces.push_back({static_cast<double>(length), number, cut});
        }
        return out;
    }

    void add(const MicroBatchLoad& load) {
        const auto [found, added] = known_.try_emplace(load, static_cast<std::uint32_t>(out_.loads.size()));
        if (added) {
            out_.loads.push_back(load);
        }
        out_.of.push_back(found->second);
        out_.rows += load.rows;
        out_.longest_rows = std::max(out_.longest_rows, load.rows);
    }

    [[nodiscard]] double cost_of(double length) const { return document_flops(model_, plan_, length); }

    // In rounds of one sequence for each replica: the dearest to the replica with the least so far.
    [[nodiscard]] std::vector<Sequence> dealt(std::vector<Sequence> sequences) const {
        const auto cost = [&](const Sequence& sequence) {
            double sum = 0;
            for (const std::int64_t length : sequence) {
                sum += cost_of(static_cast<double>(length));
            }
            return sum;
        };
        std::vector<std::pair<double, std::size_t>> order;
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            order.emplace_back(-cost(sequences[i]), i);
        }
        std::sort(order.begin(), order.end());
        const std::size_t each = sequences.size() / out_.columns;
        ORRERY_ASSERT(each * out_.columns == sequences.size());
        std::vector<Sequence> out(sequences.size());
        std::vector<double> spent(out_.columns, 0);
        std::vector<std::uint32_t> columns(out_.columns);
        for (std::size_t round = 0; round < each; ++round) {
            std::iota(columns.begin(), columns.end(), 0U);
            std::stable_sort(columns.begin(), columns.end(),
                             [&](std::uint32_t a, std::uint32_t b) { return spent[a] < spent[b]; });
            for (std::size_t i = 0; i < columns.size(); ++i) {
                const auto& [less, from] = order[round * columns.size() + i];
                spent[columns[i]] -= less;
                out[columns[i] * each + round] = std::move(sequences[from]);
            }
        }
        return out;
    }

    // As many ranks as a document needs: on one node, or on whole nodes.
    [[nodiscard]] std::uint32_t ranks_of(double length) const {
        const auto least = static_cast<std::uint32_t>(std::ceil(length / room_));
        const std::uint32_t ranks =
            least <= node_columns_ ? least : (least + node_columns_ - 1) / node_columns_ * node_columns_;
        return std::min(ranks, out_.columns);
    }

    void place(double length) {
        const std::uint32_t ranks = ranks_of(length);
        const std::size_t cell = ranks == 1 ? cell_of(length) : ring_of(ranks, length / ranks);
        const auto column = static_cast<std::uint32_t>(cell / out_.micro_batches);
        ORRERY_ASSERT(column + ranks <= out_.columns);
        for (std::uint32_t i = 0; i < ranks; ++i) {
            Cell& own = cells_[cell + std::size_t{i} * out_.micro_batches];
            own.rows += length / ranks;
            ++own.pieces[{length, 1, ranks, ranks == 1 ? 0 : column}];
            by_spent_.erase({spent_[column + i], column + i});
            spent_[column + i] += cost_of(length) / ranks;
            by_spent_.emplace(spent_[column + i], column + i);
        }
        if (ranks > 1) {
            out_.rings.push_back({static_cast<std::uint32_t>(cell % out_.micro_batches), column, ranks});
        }
    }

    // The micro-batch with the least room that is enough, of the rank with the least to do that has one; else the emptiest one of the
    // rank with the least to do.
    [[nodiscard]] std::size_t cell_of(double length) const {
        for (const auto& [spent, column] : by_spent_) {
            std::size_t best = cells_.size();
            for (std::size_t i = column * std::size_t{out_.micro_batches}, end = i + out_.micro_batches; i < end; ++i) {
                if (cells_[i].rows + length <= room_ && (best == cells_.size() || cells_[i].rows > cells_[best].rows)) {
                    best = i;
                }
            }
            if (best < cells_.size()) {
                return best;
            }
        }
        const auto first = cells_.begin() + std::ptrdiff_t{by_spent_.begin()->second} * out_.micro_batches;
        const auto emptiest = std::min_element(first, first + out_.micro_batches,
                                               [](const Cell& a, const Cell& b) { return a.rows < b.rows; });
        return static_cast<std::size_t>(emptiest - cells_.begin());
    }

    // The micro-batch of the first rank of a ring: of those with room the one whose busiest rank has least to do, else of all.
    [[nodiscard]] std::size_t ring_of(std::uint32_t ranks, double rows) const {
        using Place = std::tuple<bool, double, double, std::size_t>;
        Place best{true, std::numeric_limits<double>::infinity(), 0, 0};
        for (std::uint32_t column = 0; column + ranks <= out_.columns; ++column) {
            const std::uint32_t within = column % node_columns_;
            if (ranks <= node_columns_ ? within + ranks > node_columns_ : within != 0) {
                continue;
            }
            const double spent = *std::max_element(spent_.begin() + column, spent_.begin() + column + ranks);
            for (std::uint32_t batch = 0; batch < out_.micro_batches; ++batch) {
                double fullest = 0;
                for (std::uint32_t i = column; i < column + ranks; ++i) {
                    fullest = std::max(fullest, cells_[std::size_t{i} * out_.micro_batches + batch].rows);
                }
                best = std::min(best, Place{fullest + rows > room_, spent, fullest,
                                            std::size_t{column} * out_.micro_batches + batch});
            }
        }
        return std::get<3>(best);
    }

    DocumentLayout out_;
    const ModelSpec& model_;
    const PlanSpec& plan_;
    std::uint32_t node_columns_;
    double room_ = 0;
    std::vector<Cell> cells_;    ///< by column and micro-batch
    std::vector<double> spent_;  ///< FLOPs of each column so far
    std::set<std::pair<double, std::uint32_t>> by_spent_;
    std::map<MicroBatchLoad, std::uint32_t> known_;
};

}  // namespace

DocumentLayout lay_out_documents(const ModelSpec& model, const PlanSpec& plan, const std::vector<std::int64_t>& trace,
                                 std::uint64_t seed, std::uint32_t node_columns) {
    Source source(plan.feature<DocumentsPlan>(), trace, seed);
    const auto sequences = static_cast<std::size_t>(plan.global_batch);
    Layout layout(model, plan, node_columns);
    if (plan.feature<DocumentsPlan>().fill == DocumentFill::packed) {
        std::vector<Sequence> packs = pack(source, sequences, model.sequence);
        return plan.feature<DocumentsPlan>().dynamic ? layout.dynamic(packs) : layout.fixed(std::move(packs));
    }
    std::vector<Sequence> alone(sequences);
    for (Sequence& sequence : alone) {
        sequence.push_back(source.next());
    }
    return plan.feature<DocumentsPlan>().fill == DocumentFill::padded ? layout.padded(alone)
                                                                      : layout.fixed(std::move(alone));
}

}  // namespace orrery::training
