#include "models/collective_fit.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::models {

namespace {

constexpr const char* kCollectivesVersion = "# orrery-collectives: 1";
constexpr const char* kUnnamed = "-";
constexpr std::size_t kMostCurves = 10'000;
constexpr double kPriorLatency = 10e-6;  ///< s; only ratios to the prior matter
constexpr double kMega = 1e6;

// What the wire volume alone takes, with a start-up of NCCL's order: the scale on which ranks and bandwidths interpolate.
double prior(CollectiveOp op, double ranks, double bytes, double bandwidth) {
    const double share = (ranks - 1) / ranks;
    return kPriorLatency + (op == CollectiveOp::all_reduce ? 2 : 1) * share * bytes / bandwidth;
}

class CollectiveFitParser : TextLines {
  public:
    using TextLines::TextLines;

    CollectiveFit run() {
        for (std::string_view line; next_line(line);) {
            read_line(line);
        }
        check();
        finish();
        return std::move(fit_);
    }

  private:
    void read_line(std::string_view line) {
        if (this->line() == 1) {
            if (line != kCollectivesVersion) {
                fail(fmt::format("a fit of collectives starts with the line '{}'", kCollectivesVersion));
            }
            return;
        }
        if (line.rfind("# source: ", 0) == 0) {
            fit_.sources.emplace_back(line.substr(10));
        }
        if (line.empty() || line.front() == '#') {
            return;
        }
        const std::vector<std::string_view> cells = split(line, ' ');
        if (cells[0] == "bandwidth_GBps" && cells.size() == 2) {
            fit_.bandwidth = number(cells[1], 1e-3, 1e6) * 1e9;
        } else if (cells[0] == "curve" && cells.size() == 7) {
            read_curve(cells);
        } else if (cells[0] == "piece" && cells.size() == 6) {
            read_piece(cells);
        } else {
            fail(
                "expected 'bandwidth_GBps B', 'curve library op ranks points error held_back' or 'piece from_bytes "
                "alpha_us "
                "us_per_MB us_per_sqrt_MB algorithm'");
        }
    }

    double number(std::string_view text, double least, double most) {
        double value = 0;
        if (!parse_number(std::string(text), value) || !(value >= least && value <= most)) {
            fail(fmt::format("expected a number from {} to {}, not '{}'", least, most, text));
            return least;
        }
        return value;
    }

    void read_curve(const std::vector<std::string_view>& cells) {
        if (fit_.curves.size() >= kMostCurves) {
            fail(fmt::format("more than {} curves", kMostCurves));
            finish();
        }
        CollectiveCurve curve;
        curve.library = cells[1];
        const auto& names = collective_op_names();
        const auto op = std::find(names.begin(), names.end(), cells[2]);
        if (op == names.end()) {
            const std::string near = nearest_name(cells[2], names);
            fail(fmt::format("no collective is called '{}'{}", cells[2],
                             near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
        } else {
            curve.op = static_cast<CollectiveOp>(op - names.begin());
        }
        curve.ranks = static_cast<std::uint32_t>(number(cells[3], 2, 1e6));
        curve.points = static_cast<std::int64_t>(number(cells[4], 1, 1e9));
        curve.error = number(cells[5], 0, 1e3);
        curve.held_back = number(cells[6], 0, 1e3);
        if (!fit_.curves.empty()) {
            const CollectiveCurve& last = fit_.curves.back();
            if (last.library == curve.library && last.op == curve.op && last.ranks >= curve.ranks) {
                fail("curves of one library and operation ascend in ranks");
            }
        }
        fit_.curves.push_back(std::move(curve));
    }

    void read_piece(const std::vector<std::string_view>& cells) {
        CollectivePiece piece;
        piece.from = number(cells[1], 0, 1e15);
        piece.alpha = number(cells[2], 0, 1e9) * 1e-6;
        piece.per_byte = number(cells[3], 0, 1e9) * 1e-6 / kMega;
        piece.gamma = number(cells[4], 0, 1e9) * 1e-6 / std::sqrt(kMega);
        piece.algorithm = cells[5] == kUnnamed ? std::string_view() : cells[5];
        if (fit_.curves.empty()) {
            fail("a piece belongs to a curve");
            return;
        }
        auto& pieces = fit_.curves.back().pieces;
        if (pieces.empty() ? piece.from != 0 : piece.from <= pieces.back().from) {
            fail("pieces of a curve start at 0 bytes and ascend");
        }
        if (!(piece.alpha + piece.per_byte + piece.gamma > 0)) {
            fail("a piece takes no time");
        }
        pieces.push_back(std::move(piece));
    }

    void check() {
        if (fit_.bandwidth <= 0) {
            fail_at(0, "no 'bandwidth_GBps'");
        }
        if (fit_.curves.empty()) {
            fail_at(0, "no 'curve'");
        }
        for (const CollectiveCurve& curve : fit_.curves) {
            if (curve.pieces.empty()) {
                fail_at(0, fmt::format("the curve of {} {} {} has no piece", curve.library,
                                       collective_op_names()[static_cast<std::size_t>(curve.op)], curve.ranks));
            }
        }
    }

    CollectiveFit fit_;
};

}  // namespace

double CollectivePiece::seconds(double bytes) const {
    return alpha + bytes * per_byte + gamma * std::sqrt(bytes);
}

double CollectiveCurve::seconds(double bytes) const {
    const auto after = std::upper_bound(pieces.begin(), pieces.end(), bytes,
                                        [](double size, const CollectivePiece& piece) { return size < piece.from; });
    ORRERY_ASSERT(after != pieces.begin());  // the first is from 0 bytes on
    return std::prev(after)->seconds(bytes);
}

bool CollectiveFit::has(std::string_view library, CollectiveOp op) const {
    return std::any_of(curves.begin(), curves.end(),
                       [&](const CollectiveCurve& curve) { return curve.library == library && curve.op == op; });
}

double CollectiveFit::seconds(std::string_view library, CollectiveOp op, double ranks, double bytes,
                              double link_bandwidth) const {
    const CollectiveCurve* below = nullptr;
    const CollectiveCurve* above = nullptr;
    for (const CollectiveCurve& curve : curves) {
        if (curve.library != library || curve.op != op) {
            continue;
        }
        if (below == nullptr || curve.ranks <= ranks) {
            below = &curve;
        }
        if (above == nullptr || above->ranks < ranks) {
            above = &curve;
        }
    }
    ORRERY_ASSERT(below != nullptr);
    const auto ratio = [&](const CollectiveCurve& curve) {
        return curve.seconds(bytes) / prior(op, curve.ranks, bytes, bandwidth);
    };
    double factor = ratio(*below);
    if (below->ranks < above->ranks) {
        // Ranks of tables are powers of two, so steps of equal ratio are what lies between them.
        const double low = below->ranks;
        const double share = (ranks - low) / (above->ranks - low);
        ORRERY_ASSERT(above->library == below->library && above->op == below->op);
        factor += share * (ratio(*above) - factor);
    }
    return factor * prior(op, ranks, bytes, link_bandwidth);
}

CollectiveFit parse_collective_fit(const std::string& text, const std::string& name) {
    return CollectiveFitParser(text, name).run();
}

std::string format_collective_fit(const CollectiveFit& fit) {
    std::string out = fmt::format("{}\n", kCollectivesVersion);
    for (const std::string& source : fit.sources) {
        out += fmt::format("# source: {}\n", source);
    }
    out +=
        "# curve library op ranks points error held_back; piece from_bytes alpha_us us_per_MB us_per_sqrt_MB "
        "algorithm\n";
    out += fmt::format("bandwidth_GBps {:.6g}\n", fit.bandwidth * 1e-9);
    for (const CollectiveCurve& curve : fit.curves) {
        out += fmt::format("curve {} {} {} {} {:.4f} {:.4f}\n", curve.library,
                           collective_op_names()[static_cast<std::size_t>(curve.op)], curve.ranks, curve.points,
                           curve.error, curve.held_back);
        for (const CollectivePiece& piece : curve.pieces) {
            out += fmt::format("piece {:.0f} {:.6g} {:.6g} {:.6g} {}\n", piece.from, piece.alpha * 1e6,
                               piece.per_byte * 1e6 * kMega, piece.gamma * 1e6 * std::sqrt(kMega),
                               piece.algorithm.empty() ? kUnnamed : piece.algorithm);
        }
    }
    return out;
}

}  // namespace orrery::models
