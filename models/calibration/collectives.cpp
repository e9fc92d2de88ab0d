#include "models/calibration/collectives.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace orrery::models {

namespace {

constexpr std::size_t kFewestPoints = 3;  // of a piece
constexpr std::size_t kMostPieces = 6;
constexpr double kParameters = 4;          // of a piece: three terms and where it starts
constexpr double kFinest = 1e-4;           // squared log error a point below which more pieces are not worth having
constexpr std::size_t kMostPoints = 1000;  // of a curve; a sweep of sizes has some dozens
constexpr double kWorst = std::numeric_limits<double>::infinity();

struct Piece {
    double cost = kWorst;  // summed squared log errors
    CollectivePiece piece;
};

// The best non-negative terms, by trying every set of terms: the optimum is the least-squares solution of its own support.
Piece fit_piece(const std::vector<CollectivePoint>& points, std::size_t begin, std::size_t end) {
    Piece best;
    for (std::size_t i = begin + 1; i < end; ++i) {
        if (points[i].algorithm != points[begin].algorithm) {
            return best;
        }
    }
    const auto rows = static_cast<Eigen::Index>(end - begin);
    const double scale = points[end - 1].bytes;
    Eigen::MatrixXd terms(rows, 3);
    for (Eigen::Index i = 0; i < rows; ++i) {
        const CollectivePoint& point = points[begin + static_cast<std::size_t>(i)];
        const double x = point.bytes / scale;
        terms.row(i) << 1 / point.seconds, x / point.seconds, std::sqrt(x) / point.seconds;
    }
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(rows);
    for (unsigned set = 1; set < 8; ++set) {
        std::vector<Eigen::Index> chosen;
        for (unsigned term = 0; term < 3; ++term) {
            if ((set >> term & 1U) != 0) {
                chosen.push_back(term);
            }
        }
        const Eigen::VectorXd solved = terms(Eigen::all, chosen).colPivHouseholderQr().solve(ones);
        if (!(solved.minCoeff() >= 0) || !(solved.maxCoeff() > 0)) {
            continue;
        }
        double cost = 0;
        const Eigen::VectorXd ratios = terms(Eigen::all, chosen) * solved;
        for (const double ratio : ratios) {
            const double off = ratio > 0 ? log_pinned(ratio) : kWorst;
            cost += off * off;
        }
        if (cost < best.cost) {
            best.cost = cost;
            double found[3] = {0, 0, 0};
            for (std::size_t i = 0; i < chosen.size(); ++i) {
                found[chosen[i]] = solved[static_cast<Eigen::Index>(i)];
            }
            best.piece = {0, found[0], found[1] / scale, found[2] / std::sqrt(scale), points[begin].algorithm};
        }
    }
    return best;
}

std::vector<CollectivePiece> best_pieces(const std::vector<CollectivePoint>& points) {
    const std::size_t n = points.size();
    // cost[k][j]: points before j in k pieces; from[k][j]: where the last of them starts.
    std::vector<std::vector<double>> cost(kMostPieces + 1, std::vector<double>(n + 1, kWorst));
    std::vector<std::vector<std::size_t>> from(kMostPieces + 1, std::vector<std::size_t>(n + 1, 0));
    std::map<std::pair<std::size_t, std::size_t>, CollectivePiece> pieces;
    cost[0][0] = 0;
    const std::size_t fewest = std::min(kFewestPoints, n);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j <= n; ++j) {
            // A run that one name covers alone may be as short as it is.
            const bool whole = (i == 0 || points[i - 1].algorithm != points[i].algorithm) &&
                               (j == n || points[j].algorithm != points[j - 1].algorithm);
            if (j - i < fewest && !whole) {
                continue;
            }
            const Piece piece = fit_piece(points, i, j);
            if (piece.cost == kWorst) {
                continue;
            }
            pieces[{i, j}] = piece.piece;
            for (std::size_t k = 1; k <= kMostPieces; ++k) {
                if (cost[k - 1][i] + piece.cost < cost[k][j]) {
                    cost[k][j] = cost[k - 1][i] + piece.cost;
                    from[k][j] = i;
                }
            }
        }
    }
    std::size_t chosen = 0;
    double least = kWorst;
    const auto count = static_cast<double>(n);
    for (std::size_t k = 1; k <= kMostPieces; ++k) {
        if (cost[k][n] == kWorst) {
            continue;
        }
        const double criterion = count * log_pinned(std::max(cost[k][n] / count, kFinest)) +
                                 kParameters * static_cast<double>(k) * log_pinned(count);
        if (criterion < least) {
            least = criterion;
            chosen = k;
        }
    }
    ORRERY_ASSERT(chosen > 0);
    std::vector<CollectivePiece> out;
    for (std::size_t j = n, k = chosen; k > 0; j = from[k][j], --k) {
        const std::size_t i = from[k][j];
        CollectivePiece piece = pieces.at({i, j});
        piece.from = i == 0 ? 0 : std::round(std::sqrt(points[i - 1].bytes * points[i].bytes));
        out.push_back(std::move(piece));
    }
    std::reverse(out.begin(), out.end());
    ORRERY_ASSERT(std::is_sorted(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.from < b.from; }));
    return out;
}

double mean_error(const CollectiveCurve& curve, const std::vector<CollectivePoint>& points) {
    double sum = 0;
    for (const CollectivePoint& point : points) {
        sum += std::abs(curve.seconds(point.bytes) / point.seconds - 1);
    }
    return points.empty() ? 0 : sum / static_cast<double>(points.size());
}

// A size met something else on the machine where it took twice as long as each of the next two; or where doing the size before
// over and over would have been faster by a quarter, and the next size is back below that: nothing an algorithm does is so alone.
void drop_disturbed(std::vector<CollectivePoint>& points) {
    constexpr double kAbove = 1.25;
    std::vector<CollectivePoint> kept;
    for (std::size_t i = 0; i < points.size(); ++i) {
        const bool twice = i + 2 < points.size() && points[i].seconds > 2 * points[i + 1].seconds &&
                           points[i].seconds > 2 * points[i + 2].seconds;
        const auto above = [&](std::size_t at) {
            const CollectivePoint& before = kept.back();
            return points[at].seconds > kAbove * before.seconds * points[at].bytes / before.bytes;
        };
        const bool alone = !kept.empty() && i + 1 < points.size() && above(i) && !above(i + 1);
        if (!twice && !alone) {
            kept.push_back(points[i]);
        }
    }
    points = std::move(kept);
}

std::string name_of(const std::string& library) {
    return library.substr(0, library.find_first_of("-/ "));
}

}  // namespace

CollectiveCurve fit_collective(const std::vector<CollectivePoint>& points) {
    ORRERY_ASSERT(points.size() >= kFewestPoints);
    CollectiveCurve curve;
    curve.points = static_cast<std::int64_t>(points.size());
    std::vector<CollectivePoint> in, back;
    for (std::size_t i = 0; i < points.size(); ++i) {
        // Sizes beyond the last of the half would be another question.
        (i % 2 == 0 ? in : back).push_back(points[i]);
    }
    if (points.size() % 2 == 0) {
        back.pop_back();
    }
    if (in.size() >= kFewestPoints) {
        curve.pieces = best_pieces(in);
        curve.held_back = mean_error(curve, back);
    }
    curve.pieces = best_pieces(points);
    curve.error = mean_error(curve, points);
    return curve;
}

std::vector<CollectiveCurve> collective_curves(const Trace& trace) {
    struct Size {
        std::vector<double> seconds;
        std::string algorithm;
    };
    std::map<std::tuple<std::string, CollectiveOp, std::uint32_t>, std::map<double, Size>> groups;
    const auto& names = collective_op_names();
    for (const TraceRow& row : trace.rows) {
        std::string name = row.op;
        std::replace(name.begin(), name.end(), '_', '-');  // traces write all_reduce
        const auto op = std::find(names.begin(), names.end(), name);
        const bool rooted = op > names.begin() + static_cast<std::ptrdiff_t>(CollectiveOp::send_recv);
        if (op == names.end() || rooted || row.dim("nodes", 1) > 1 || row.dim("ranks") < 2 || !(row.dim("bytes") > 0)) {
            continue;
        }
        const std::string library = name_of(row.library);
        Size& size = groups[{library.empty() ? "nccl" : library, static_cast<CollectiveOp>(op - names.begin()),
                             static_cast<std::uint32_t>(row.dim("ranks"))}][row.dim("bytes")];
        size.seconds.push_back(row.median_ns * 1e-9);
        size.algorithm = row.algorithm;
    }
    std::vector<CollectiveCurve> curves;
    for (auto& [key, sizes] : groups) {
        std::vector<CollectivePoint> points;
        for (auto& [bytes, size] : sizes) {
            const auto middle = size.seconds.begin() + static_cast<std::ptrdiff_t>(size.seconds.size() / 2);
            std::nth_element(size.seconds.begin(), middle, size.seconds.end());
            points.push_back({bytes, *middle, size.algorithm});
        }
        drop_disturbed(points);
        if (points.size() < kFewestPoints || points.size() > kMostPoints) {
            continue;
        }
        CollectiveCurve curve = fit_collective(points);
        std::tie(curve.library, curve.op, curve.ranks) = key;
        curves.push_back(std::move(curve));
    }
    return curves;
}

const std::vector<PublicCollectives>& public_collectives() {
    static const std::vector<PublicCollectives> kTables = [] {
        constexpr const char* kApache = "Apache-2.0";
        constexpr double kGB = 1e9;
        constexpr const char* kNccl27 = "ai-dynamo/aiconfigurator@095f58a, NCCL 2.27.3";
        constexpr const char* kNccl29 = "ai-dynamo/aiconfigurator@095f58a, NCCL 2.29.2";
        constexpr const char* kVllm14 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.14.0";
        constexpr const char* kVllm22 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.22.0";
        constexpr const char* kVllm24 = "ai-dynamo/aiconfigurator@095f58a, vLLM 0.24.0";
        constexpr const char* kSglang10 = "ai-dynamo/aiconfigurator@095f58a, SGLang 0.5.10";
        constexpr const char* kSglang14 = "ai-dynamo/aiconfigurator@095f58a, SGLang 0.5.14";
        constexpr const char* kTrt1 = "ai-dynamo/aiconfigurator@095f58a, TensorRT-LLM 1.0.0";
        constexpr const char* kTrt13 = "ai-dynamo/aiconfigurator@095f58a, TensorRT-LLM 1.3.0rc20";
#define AIC "aiconfigurator-kernels/"
#define AICD "aiconfigurator/data/"
#define NCCL "/nccl_perf.csv"
#define CUSTOM "/custom_allreduce_perf.csv.xz"
        const auto table = [&](const char* fabric, double gigabytes, bool fitted, const char* path, const char* device,
                               const char* source, std::uint32_t most_ranks = 0) {
            return PublicCollectives{
                fabric, gigabytes * kGB, fitted, {"aic-collectives", path, device, source, kApache}, most_ranks};
        };
        return std::vector<PublicCollectives>{
            table("nvlink3", 300, true, AIC "a100_sxm/comm/nccl/2.27.3" NCCL, "a100-sxm-80g", kNccl27),
            table("nvlink3", 300, true, AICD "a100_sxm/comm/vllm/0.14.0" CUSTOM, "a100-sxm-80g", kVllm14),
            table("nvlink3", 300, true, AICD "a100_sxm/comm/sglang/0.5.10" CUSTOM, "a100-sxm-80g", kSglang10),
            table("nvlink3", 300, true, AICD "a100_sxm/comm/trtllm/1.0.0" CUSTOM, "a100-sxm-80g", kTrt1),
            table("nvlink4", 450, true, AIC "h100_sxm/comm/nccl/2.29.2" NCCL, "h100-sxm", kNccl29),
            table("nvlink4", 450, true, AICD "h100_sxm/comm/vllm/0.24.0" CUSTOM, "h100-sxm", kVllm24),
            table("nvlink4", 450, true, AICD "h100_sxm/comm/sglang/0.5.14" CUSTOM, "h100-sxm", kSglang14),
            table("nvlink4", 450, true, AICD "h100_sxm/comm/trtllm/1.3.0rc20" CUSTOM, "h100-sxm", kTrt13),
            table("nvlink4", 450, false, AIC "h200_sxm/comm/nccl/2.29.2" NCCL, "h200-sxm", kNccl29),
            table("nvlink4", 450, false, AICD "h200_sxm/comm/vllm/0.24.0" CUSTOM, "h200-sxm", kVllm24),
            table("nvlink4", 450, false, AICD "h200_sxm/comm/sglang/0.5.14" CUSTOM, "h200-sxm", kSglang14),
            table("nvlink4", 450, false, AICD "h200_sxm/comm/trtllm/1.3.0rc20" CUSTOM, "h200-sxm", kTrt13),
            table("nvlink5", 900, true, AIC "b200_sxm/comm/nccl/2.29.2" NCCL, "b200-sxm", kNccl29),
            table("nvlink5", 900, true, AICD "b200_sxm/comm/vllm/0.24.0" CUSTOM, "b200-sxm", kVllm24),
            table("nvlink5", 900, true, AICD "b200_sxm/comm/sglang/0.5.14" CUSTOM, "b200-sxm", kSglang14),
            table("nvlink5", 900, true, AICD "b200_sxm/comm/trtllm/1.3.0rc20" CUSTOM, "b200-sxm", kTrt13),
            table("nvlink5", 900, false, AIC "gb200/comm/nccl/2.29.2" NCCL, "gb200", kNccl29),
            table("nvlink5", 900, false, AICD "gb200/comm/vllm/0.24.0" CUSTOM, "gb200", kVllm24),
            table("nvlink5", 900, false, AICD "gb200/comm/trtllm/1.3.0rc20" CUSTOM, "gb200", kTrt13),
            // Eight L40S reach 2 GB/s in these tables: a host that was set up wrong.
            table("pcie4", 32, true, AIC "l40s/comm/nccl/2.27.3" NCCL, "l40s", kNccl27, 4),
            table("pcie4", 32, true, AICD "l40s/comm/vllm/0.22.0" CUSTOM, "l40s", kVllm22, 4),
            table("pcie5", 64, true, AIC "rtx_pro_6000_server/comm/nccl/2.29.2" NCCL, "rtx-pro-6000", kNccl29),
            table("pcie5", 64, true, AICD "rtx_pro_6000_server/comm/vllm/0.24.0" CUSTOM, "rtx-pro-6000", kVllm24),
        };
    }();
    return kTables;
}

}  // namespace orrery::models
