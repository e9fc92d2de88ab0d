#!/usr/bin/env python3
"""Fits the constants of models/data/collectives/between/*.yaml to measured all-reduces over several nodes.

Usage: fit_between_nodes.py      (from the repository root; prints the constants of every network)

With x, the time that the bytes of a ring take on the NICs of a node (of two nodes with `exchange`: the payload once):
  infiniband, infiniband-racks: t = latency + step_latency * 2 (n - 1) + x / efficiency
  the others: t = latency + level_latency * log2(nodes) + fill * nodes * x / (x + ramp * nodes) + x / efficiency
  infiniband-nvls, efa-nvls: as the others, but the last term is at least what the all-reduce takes on NVLink, by that of 512 MiB in one node
  slingshot-a100 besides, of all-gathers: ring_latency * (n - 1) + ring_fill * (n - 1) * x / (x + ramp * nodes) for the fill, and half the
  level_latency
Least squares of the relative error with non-negative terms, the ramp by trial. Held back: every second size of a series, when the
constants are those of the others. level_latency is left out where all rows have two nodes.
"""
import csv
import itertools
import math

INFINIBAND = {"dgx-h100": 400e9, "dgx-b200": 400e9, "dgx2-v100": 100e9, "hgx-a100-80g-4x200": 100e9}  # bits per second of a NIC
SMALL = ("2 x A100, InfiniBand (Sophia)", 200e9)  # the one series on InfiniBand with messages below 32 MiB; B/s of a node's NICs
# Systems of more.csv, B/s of a node's NICs, and whether two nodes exchange.
NETWORKS = {
    "slingshot-gh200": ([("Alps, GH200, Slingshot", 100e9), ("Alps, two nodes, 2025-26", 100e9)], True),
    "slingshot-a100": ([("Polaris, A100, Slingshot, NCCL 2.18", 50e9), ("Polaris, A100, Slingshot, NCCL 2.21", 50e9)], False),
    "efa": ([("2 x A100, EFA (p4de)", 50e9), ("4x HGX B200 + EFA v4 8x400G (p6-b200)", 400e9)], True),
    "rccl-6": ([("2 x MI300X, ROCm 6.4 (AAC)", 400e9), ("2 x MI300X, RoCE (OCI)", 400e9), ("1 to 8 x MI325X, RoCE", 400e9)], False),
    "rccl-7": ([("2 x MI355X, RoCE, ROCm 7 (AAC)", 400e9)], False),
}
# Two nodes whose switches reduce: series, NICs, seconds of the all-reduce of 512 MiB over eight GPUs of a node (measured.csv), whose efficiency is
# fitted. NVLink decides about the large messages of p5, so that they keep the efficiency of EFA.
NVLS = {
    "infiniband-nvls": ([("2 x B200, InfiniBand (Lambda)", None, 400e9, 1335e-6), ("2 x H100, InfiniBand (Nebius)", None, 400e9, 2111e-6)],
                        [0.85 + 0.01 * i for i in range(16)]),
    "efa-nvls": ([("2 x H100, EFA (p5)", "7", 400e9, 2111e-6)], [0.932]),
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


def infiniband(name, small):
    rows = []
    for row in read("measured.csv"):
        n, t = int(row["gpus"]), float(row["us"]) * 1e-6
        if "EFA" not in row["system"] and row["node"] in INFINIBAND:
            rows.append((1 / t, 2 * (n - 1) / t, 2 * (n - 1) / n * float(row["bytes"]) / INFINIBAND[row["node"]] / t))
    for row in read("more.csv"):
        n, t = int(row["gpus"]), float(row["us"]) * 1e-6
        if small and row["system"] == SMALL[0]:  # its all-gathers and all-to-alls are held back
            rows.append((1 / t, 2 * (n - 1) / t, 2 * (n - 1) / n * float(row["bytes"]) / SMALL[1] / t))
    x = least_squares(rows)[1]
    off = errors(rows, x)
    print(f"{name}: {len(rows)} rows: latency {x[0] * 1e6:.1f} us, step_latency {x[1] * 1e6:.2f} us, efficiency {1 / x[2]:.3f}; "
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


def nvls(name, series, efficiencies):
    rows = []
    for system, source, nics, in_node in series:
        points = [r for r in read("more.csv") if r["system"] == system and source in (None, r["source"])]
        sizes = sorted({float(r["bytes"]) for r in points})
        for row in points:
            size, n = float(row["bytes"]), int(row["gpus"])
            share = (2 * (n - 1) / n) / (2 * 7 / 8)
            rows.append((size / nics, share * in_node * size / 2**29, float(row["us"]) * 1e-6, sizes.index(size) % 2 == 1))

    def terms(row, ramp, efficiency):
        x, in_node, t, _ = row
        left = 1 - max(x / efficiency, in_node) / t
        return [1 / t, 2 * x / (x + 2 * ramp) / t], left

    def solved(some):
        best = None
        for efficiency in efficiencies:
            for ramp in RAMPS:
                pairs = [terms(row, ramp, efficiency) for row in some]
                for chosen in ([0, 1], [0], [1]):
                    a = [[sum(p[i] * p[j] for p, _ in pairs) for j in chosen] for i in chosen]
                    found = solve(a, [sum(p[i] * left for p, left in pairs) for i in chosen])
                    if found is None or min(found) < 0:
                        continue
                    x = [0.0, 0.0]
                    for i, value in zip(chosen, found):
                        x[i] = value
                    cost = sum((sum(u * v for u, v in zip(p, x)) - left) ** 2 for p, left in pairs)
                    if best is None or cost < best[0]:
                        best = (cost, x, ramp, efficiency)
        return best

    def off(some, of):
        return [abs(sum(u * v for u, v in zip(p, of[1])) - left) for p, left in (terms(row, of[2], of[3]) for row in some)]

    all_of = solved(rows)
    back = off([r for r in rows if r[3]], solved([r for r in rows if not r[3]]))
    every = off(rows, all_of)
    print(f"{name}: {len(rows)} rows: latency {all_of[1][0] * 1e6:.3g} us, fill {all_of[1][1] * 1e6:.3g} us, ramp {all_of[2] * 1e6:.3g} us, "
          f"efficiency {all_of[3]:.3f}; mean error {mean(every):.1f} %, worst {100 * max(every):.0f} %, held back {mean(back):.1f} %")


def rings():
    """Polaris: all-gathers pay for each step of the ring."""
    latency, level, ramp, efficiency, nics = 81.7e-6, 107e-6, 1.41e-6, 0.701, 50e9
    some = []
    with open("validation/collectives/more.csv") as stream:
        for r in csv.DictReader((line for line in stream if not line.startswith("#")), delimiter=";"):
            if r["system"].startswith("Polaris") and r["op"] == "all-gather":
                some.append((int(r["gpus"]), int(r["nodes"]), float(r["bytes"]), float(r["us"]) * 1e-6))

    def gather(row):
        n, nodes, size, t = row
        x = (n - 1) / n * size / nics
        left = 1 - (latency + level / 2 * math.log2(nodes) + x / efficiency) / t
        return [(n - 1) / t, (n - 1) * x / (x + ramp * nodes) / t], left

    def solved(of):
        pairs = [gather(r) for r in of]
        a = [[sum(p[i] * p[j] for p, _ in pairs) for j in (0, 1)] for i in (0, 1)]
        return solve(a, [sum(p[i] * left for p, left in pairs) for i in (0, 1)])

    def off(of, x):
        return [abs(sum(u * v for u, v in zip(p, x)) - left) for p, left in map(gather, of)]

    sizes = sorted({r[2] for r in some})
    x = solved(some)
    back = off([r for r in some if sizes.index(r[2]) % 2], solved([r for r in some if not sizes.index(r[2]) % 2]))
    print(f"slingshot-a100: {len(some)} all-gathers: ring_latency {x[0] * 1e6:.3g} us, ring_fill {x[1] * 1e6:.3g} us; "
          f"mean error {mean(off(some, x)):.1f} %, held back {mean(back):.1f} %")


infiniband("infiniband", True)
infiniband("infiniband-racks", False)
for name, (series, efficiencies) in NVLS.items():
    nvls(name, series, efficiencies)
rings()
for name, (systems, exchange) in NETWORKS.items():
    network(name, systems, exchange)
