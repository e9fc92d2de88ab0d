// The order of passes as an integer program, solved by CBC in one thread.
//
// Variables: when each pass begins, and for each two passes of a stage that may come either way, which comes first. Micro-batches come
// in order, so that what a stage may hold is an order as well: forward pass i follows the weight gradients of i - held.
// Sends wait for each other in play() and not here: what is found is played, and counts only if it is faster.
// Several orders may take the same time, and which of them a solver finds is its own affair. A second program takes the one whose passes
// begin first, those of early stages and micro-batches before others.

#include "workloads/training/schedules/search.hpp"

#include "sim/base/error.hpp"

#include <coin/Cbc_C_Interface.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

namespace orrery::training {

namespace {

// Larger programs do not end within a few thousand nodes, and each of their nodes takes long.
constexpr std::uint32_t kMostBinaries = 128;
// Of the order found so far, in the program's unit of time. Its tolerances are about a millionth of that.
constexpr double kUnits = 100;

std::uint32_t binaries_of(const PipelineShape& shape) {
    return 3 * shape.stages * shape.micro_batches * (shape.micro_batches - 1) / 2;
}

struct DeleteModel {
    void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};

struct Term {
    int column;
    double factor;
};

class OrderProgram {
  public:
    /// Orders that take less than `best`; with `period`, in the program's unit, the first of those that take no longer.
    OrderProgram(const PipelineShape& shape, const MeasuredPipeline& measured, std::int64_t best, double period = 0)
        : shape_(shape),
          m_(shape.micro_batches),
          in_(measured),
          unit_(static_cast<double>(best) / kUnits),
          breaks_ties_(period > 0) {
        least_ = static_cast<double>(least_time(shape, measured)) / unit_;
        period_ =
            column(least_, breaks_ties_ ? period : kUnits * (1 - 1e-6), breaks_ties_ ? 0 : 1);  // faster than that
        add_starts();
        for (std::uint32_t s = 0; s < shape.stages; ++s) {
            add_period(s, s);
            add_chains(s);
            add_choices(s);
        }
        if (measured.ends_meet) {
            add_period(0, shape.stages - 1);
            add_period(shape.stages - 1, 0);
        }
    }

    struct Found {
        ProgramResult result;
        double period = 0;  ///< of the order found, in the program's unit
    };
    Found solve(std::uint32_t nodes) {
        Cbc_Model* const model = model_.get();
        for (const auto& [name, value] : {std::pair<const char*, std::string>{"log", "0"},
                                          {"threads", "0"},
                                          {"maxNodes", std::to_string(nodes)},
                                          {"randomSeed", "1"},
                                          {"randomCbcSeed", "1"}}) {
            Cbc_setParameter(model, name, value.c_str());
        }
        Cbc_setLogLevel(model, 0);
        Cbc_solve(model);
        Found out;
        const bool optimal = Cbc_isProvenOptimal(model) != 0;
        out.result.proven = optimal || Cbc_isProvenInfeasible(model) != 0;
        if (optimal || Cbc_numberSavedSolutions(model) > 0) {
            solution_ = Cbc_getColSolution(model);
            out.result.words = words();
            out.period = solution_[period_];
        }
        return out;
    }

  private:
    // Kinds of passes: forward, input gradients, weight gradients.
    static constexpr std::size_t kForward = 0, kInput = 1, kWeight = 2, kKinds = 3;

    int column(double least, double most, double price = 0, bool whole = false) {
        Cbc_addCol(model_.get(), std::to_string(columns_).c_str(), least, std::max(least, most), price, whole ? 1 : 0,
                   0, nullptr, nullptr);
        return columns_++;
    }
    int binary() { return column(0, 1, 0, true); }
    // The sum of the terms is this or more.
    void at_least(double least, const std::vector<Term>& terms) {
        std::vector<int> columns;
        std::vector<double> factors;
        for (const Term& term : terms) {
            columns.push_back(term.column);
            factors.push_back(term.factor);
        }
        Cbc_addRow(model_.get(), std::to_string(rows_++).c_str(), static_cast<int>(terms.size()), columns.data(),
                   factors.data(), 'G', least);
    }
    void follows(int later, int earlier, double by) { at_least(by, {{later, 1}, {earlier, -1}}); }

    [[nodiscard]] double scaled(std::int64_t time) const { return static_cast<double>(time) / unit_; }
    /// That a stage is taken for, with a send that it waits for.
    [[nodiscard]] double length(std::uint32_t s, std::size_t kind) const {
        const bool waits = in_.sender_waits;
        switch (kind) {
            case kForward:
                return scaled(in_.forward[s] + (waits ? in_.send[s] : 0));
            case kInput:
                return scaled(in_.input[s] + (waits ? in_.send_gradient[s] : 0));
            default:
                return scaled(in_.weight[s]);
        }
    }
    [[nodiscard]] int start(std::uint32_t s, std::size_t kind, std::uint32_t i) const { return starts_[s][kind][i]; }

    // The first forward passes begin as soon as they can, which is known.
    void add_starts() {
        starts_.assign(shape_.stages, std::array<std::vector<int>, kKinds>());
        choices_.assign(shape_.stages, std::array<std::vector<std::vector<int>>, kKinds>());
        double first = 0;
        for (std::uint32_t s = 0; s < shape_.stages; ++s) {
            for (std::size_t kind = 0; kind < kKinds; ++kind) {
                for (std::uint32_t i = 0; i < m_; ++i) {
                    const bool known = kind == kForward && i == 0;
                    // Early passes weigh more, so that no two orders that differ cost the same.
                    const double weight = 1 + 1.0 / (1 + s + shape_.stages * (kind + kKinds * i));
                    starts_[s][kind].push_back(
                        column(first, known ? first : first + kUnits, breaks_ties_ ? weight : 0));
                }
            }
            first_.push_back(first);
            first += scaled(in_.forward[s] + in_.send[s]);
        }
    }

    // From its first pass on a stage takes no longer than the period; its step follows the last pass of stage `of`.
    void add_period(std::uint32_t s, std::uint32_t of) {
        at_least(length(of, kWeight) + scaled(in_.step[s]) - first_[s],
                 {{period_, 1}, {start(of, kWeight, m_ - 1), -1}});
    }

    void add_chains(std::uint32_t s) {
        for (std::uint32_t i = 0; i < m_; ++i) {
            for (std::size_t kind = 0; kind < kKinds && i + 1 < m_; ++kind) {
                follows(start(s, kind, i + 1), start(s, kind, i), length(s, kind));
            }
            follows(start(s, kInput, i), start(s, kForward, i), length(s, kForward));
            follows(start(s, kWeight, i), start(s, kInput, i), length(s, kInput));
            if (s + 1 < shape_.stages) {
                follows(start(s + 1, kForward, i), start(s, kForward, i), scaled(in_.forward[s] + in_.send[s]));
                follows(start(s, kInput, i), start(s + 1, kInput, i),
                        scaled(in_.input[s + 1] + in_.send_gradient[s + 1]));
            }
            if (i >= in_.held[s]) {
                follows(start(s, kForward, i), start(s, kWeight, i - in_.held[s]), length(s, kWeight));
            }
        }
    }

    // Forward pass i against both gradients of j, and input gradient i against weight gradients j: either way for i behind j.
    void add_choices(std::uint32_t s) {
        for (std::size_t pair = 0; pair < kKinds; ++pair) {
            const auto [left, right] = kPairs[pair];
            choices_[s][pair].assign(m_, std::vector<int>(m_, 0));
            for (std::uint32_t i = 1; i < m_; ++i) {
                for (std::uint32_t j = 0; j < i; ++j) {
                    choices_[s][pair][i][j] =
                        choose(start(s, left, i), length(s, left), start(s, right, j), length(s, right));
                }
            }
        }
        const auto implies = [&](int one, int other) { at_least(0, {{other, 1}, {one, -1}}); };
        for (std::uint32_t i = 1; i < m_; ++i) {
            for (std::uint32_t j = 0; j < i; ++j) {
                for (const auto& first : choices_[s]) {
                    if (j + 1 < i) {
                        implies(first[i][j], first[i][j + 1]);
                        implies(first[i][j], first[i - 1][j]);
                    }
                }
                implies(choices_[s][0][i][j],
                        choices_[s][1][i][j]);  // before the input gradients of j: before its weights'
                implies(choices_[s][2][i][j],
                        choices_[s][1][i][j]);  // as the forward pass of i is before its gradients
            }
        }
    }
    /// A binary that is 1 where the first of two passes comes first. Neither begins later than the period after the stage.
    int choose(int first, double first_length, int second, double second_length) {
        const int choice = binary();
        at_least(first_length - kUnits, {{second, 1}, {first, -1}, {choice, -kUnits}});
        at_least(second_length, {{first, 1}, {second, -1}, {choice, kUnits}});
        return choice;
    }

    [[nodiscard]] bool before(std::uint32_t s, std::size_t pair, std::uint32_t i, std::uint32_t j) const {
        return i <= j || solution_[choices_[s][pair][i][j]] > 0.5;
    }
    // Merged by what comes first of the next of each kind.
    [[nodiscard]] OrderWords words() const {
        OrderWords out(shape_.stages);
        for (std::uint32_t s = 0; s < shape_.stages; ++s) {
            std::uint32_t f = 0;
            std::uint32_t b = 0;
            std::uint32_t w = 0;
            while (w < m_) {
                if (f < m_ && before(s, 0, f, b) && before(s, 1, f, w)) {
                    out[s].push_back(PassWork::forward);
                    ++f;
                } else if (b < m_ && before(s, 2, b, w)) {
                    out[s].push_back(PassWork::input_gradient);
                    ++b;
                } else {
                    out[s].push_back(PassWork::weight_gradient);
                    ++w;
                }
            }
        }
        return out;
    }

    static constexpr std::array<std::pair<std::size_t, std::size_t>, kKinds> kPairs = {
        {{kForward, kInput}, {kForward, kWeight}, {kInput, kWeight}}};

    PipelineShape shape_;
    std::uint32_t m_;
    const MeasuredPipeline& in_;
    double unit_, least_ = 0;
    bool breaks_ties_;
    std::unique_ptr<Cbc_Model, DeleteModel> model_{Cbc_newModel()};
    const double* solution_ = nullptr;  ///< values of columns
    int columns_ = 0, rows_ = 0;
    int period_ = 0;
    std::vector<double> first_;                                               ///< when each stage begins
    std::vector<std::array<std::vector<int>, kKinds>> starts_;                ///< by stage and kind
    std::vector<std::array<std::vector<std::vector<int>>, kKinds>> choices_;  ///< by stage and pair of kinds
};

}  // namespace

bool program_fits(const PipelineShape& shape) {
    return static_cast<std::uint64_t>(shape.stages) * shape.micro_batches * shape.micro_batches < 1'000 &&
           binaries_of(shape) <= kMostBinaries;
}

ProgramResult solve_program(const PipelineShape& shape, const MeasuredPipeline& measured, std::int64_t best,
                            std::uint32_t nodes) {
    if (least_time(shape, measured) >= best) {
        return {std::nullopt, true};
    }
    const OrderProgram::Found found = OrderProgram(shape, measured, best).solve(nodes);
    ProgramResult out = found.result;
    if (out.words && out.proven) {
        constexpr double kTolerance = 1e-6;
        const auto first = OrderProgram(shape, measured, best, found.period + kTolerance).solve(nodes);
        out.words = first.result.words ? first.result.words : out.words;
    }
    // Within the tolerances of the solver an order as fast as the best passes for a faster one.
    const std::optional<OrderTime> time = out.words ? play(shape, measured, *out.words) : std::nullopt;
    if (!time || time->longest >= best) {
        out.words.reset();
    }
    return out;
}

}  // namespace orrery::training
