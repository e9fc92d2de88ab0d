#!/usr/bin/env python3
"""Fits the constants of models/data/collectives/between/*.yaml to measured all-reduces over several nodes.

Usage: fit_between_nodes.py      (from the repository root; prints the constants of every network)

With x, the time that the bytes of a ring take on the NICs of a node (of two nodes with `exchange`: the payload once):
  infiniband: t = latency + step_latency * 2 (n - 1) + x / efficiency
  the others: t = latency + level_latency * log2(nodes) + fill * nodes * x / (x + ramp * nodes) + x / efficiency
Least squares of the relative error with non-negative terms, the ramp by trial. Held back: every second size of a series, when the
constants are those of the others. Two nodes of H100 are left out where they exchange: NVLink limits them. level_latency is left out where all rows have two nodes.
"""
import csv
import itertools
import math

INFINIBAND = {"dgx-h100": 400e9, "dgx-b200": 400e9, "dgx2-v100": 100e9, "hgx-a100-80g-4x200": 100e9}  # bits per second of a NIC
# Systems of more.csv, B/s of a node's NICs, and whether two nodes exchange.
NETWORKS = {
    "slingshot-gh200": ([("Alps, GH200, Slingshot", 100e9), ("Alps, two nodes, 2025-26", 100e9)], True),
    "slingshot-a100": ([("Polaris, A100, Slingshot, NCCL 2.18", 50e9), ("Polaris, A100, Slingshot, NCCL 2.21", 50e9)], False),
    "efa": ([("2 x A100, EFA (p4de)", 50e9), ("4x HGX B200 + EFA v4 8x400G (p6-b200)", 400e9)], True),
    "rccl-6": ([("2 x MI300X, ROCm 6.4 (AAC)", 400e9), ("2 x MI300X, RoCE (OCI)", 400e9), ("1 to 8 x MI325X, RoCE", 400e9)], False),
    "rccl-7": ([("2 x MI355X, RoCE, ROCm 7 (AAC)", 400e9)], False),
}
RAMPS = [1e-6 * 2 ** (i / 2) for i in range(30)]  # s


def solve(a, b):
    n = len(b)
    m = [a[i][:] + [b[i]] for i in range(n)]
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(m[r][i]))
        if abs(m[p][i]) < 1e-12:
            return None
        m[i], m[p] = m[p], m[i]
        for r in range(n):
            if r != i:
                f = m[r][i] / m[i][i]
                m[r] = [u - f * v for u, v in zip(m[r], m[i])]
    return [m[i][n] / m[i][i] for i in range(n)]


def least_squares(rows):
    """Non-negative x with rows x = 1: the best solution over every set of terms."""
    k = len(rows[0])
    scale = [max(row[j] for row in rows) or 1 for j in range(k)]
    best = None
    for size in range(1, k + 1):
        for chosen in itertools.combinations(range(k), size):
            a = [[sum(r[i] * r[j] for r in rows) / scale[i] / scale[j] for j in chosen] for i in chosen]
            found = solve(a, [sum(r[i] for r in rows) / scale[i] for i in chosen])
            if found is None or min(found) < 0:
                continue
            x = [0.0] * k
            for i, value in zip(chosen, found):
                x[i] = value / scale[i]
            cost = sum((sum(u * v for u, v in zip(r, x)) - 1) ** 2 for r in rows)
            if best is None or cost < best[0]:
                best = (cost, x)
    return best


def read(file):
    with open("validation/collectives/" + file) as stream:
        return [r for r in csv.DictReader((line for line in stream if not line.startswith("#")), delimiter=";")
                if r["op"] == "all-reduce" and int(r["nodes"]) > 1]


def errors(rows, x):
    return [abs(sum(u * v for u, v in zip(r, x)) - 1) for r in rows]


def mean(values):
    return 100 * sum(values) / len(values)


def infiniband():
    rows = []
    for row in read("measured.csv"):
        n, t = int(row["gpus"]), float(row["us"]) * 1e-6
        if "EFA" not in row["system"] and row["node"] in INFINIBAND:
            rows.append((1 / t, 2 * (n - 1) / t, 2 * (n - 1) / n * float(row["bytes"]) / INFINIBAND[row["node"]] / t))
    x = least_squares(rows)[1]
    off = errors(rows, x)
    print(f"infiniband: {len(rows)} rows: latency {x[0] * 1e6:.1f} us, step_latency {x[1] * 1e6:.2f} us, efficiency {1 / x[2]:.3f}; "
          f"mean error {mean(off):.1f} %, worst {100 * max(off):.1f} %")


def fit(points):
    """points: (nodes, x, seconds). The ramp and the terms."""
    levels = len({p[0] for p in points}) > 1

    def terms(point, ramp):
        nodes, x, t = point
        return [1 / t, math.log2(nodes) / t if levels else 0, nodes * x / (x + ramp * nodes) / t, x / t]

    best = min((least_squares([terms(p, ramp) for p in points]) + (ramp,) for ramp in RAMPS), key=lambda b: b[0])
    return best[1], lambda some: errors([terms(p, best[2]) for p in some], best[1]), best[2]


def network(name, systems, exchange):
    points, held = [], []
    for system, nics in systems:
        series = {}
        for row in read("measured.csv") + read("more.csv"):
            if row["system"] == system:
                series.setdefault(int(row["gpus"]), []).append(row)
        for gpus, rows in sorted(series.items()):
            sizes = sorted({float(r["bytes"]) for r in rows})
            for row in rows:
                nodes, size = int(row["nodes"]), float(row["bytes"])
                wire = size if exchange and nodes == 2 else 2 * (gpus - 1) / gpus * size
                points.append((nodes, wire / nics, float(row["us"]) * 1e-6))
                held.append(sizes.index(size) % 2 == 1)
    x, of, ramp = fit(points)
    half = fit([p for p, h in zip(points, held) if not h])[1]
    back = half([p for p, h in zip(points, held) if h])
    off = of(points)
    print(f"{name}: {len(points)} rows: latency {x[0] * 1e6:.3g} us, level_latency {x[1] * 1e6:.3g} us, fill {x[2] * 1e6:.3g} us, "
          f"ramp {ramp * 1e6:.3g} us, efficiency {1 / x[3]:.3f}; mean error {mean(off):.1f} %, worst {100 * max(off):.0f} %, "
          f"held back {mean(back):.1f} %")


infiniband()
for name, (systems, exchange) in NETWORKS.items():
    network(name, systems, exchange)
