#!/usr/bin/env python3
"""Fits the constants of models/data/collectives/across_nodes.yaml: t = latency + step_latency * steps + wire / (e * NICs).

Usage: fit_across_nodes.py      (from the repository root; needs numpy and scipy)

Rows: all-reduces over several nodes on InfiniBand in validation/collectives/measured.csv (EFA is another transport, with
its own start-up time, and is left out). Least squares of the relative error with non-negative coefficients.
"""
import csv

import numpy as np
from scipy.optimize import nnls

NICS = {"dgx-h100": 400e9, "dgx-b200": 400e9, "dgx2-v100": 100e9, "hgx-a100-80g-4x200": 100e9}
rows = []
with open("validation/collectives/measured.csv") as stream:
    for row in csv.DictReader((line for line in stream if not line.startswith("#")), delimiter=";"):
        n, nodes, size, t = int(row["gpus"]), int(row["nodes"]), float(row["bytes"]), float(row["us"]) * 1e-6
        if nodes > 1 and row["op"] == "all-reduce" and "EFA" not in row["system"] and row["node"] in NICS:
            rows.append((t, 2 * (n - 1), 2 * (n - 1) / n * size / NICS[row["node"]]))
a = np.array([[1 / t, steps / t, wire / t] for t, steps, wire in rows])
x, _ = nnls(a, np.ones(len(rows)))
error = np.abs(a @ x - 1)
print(f"{len(rows)} rows: latency {x[0] * 1e6:.1f} us, step {x[1] * 1e6:.2f} us, efficiency {1 / x[2]:.3f}; "
      f"mean error {100 * error.mean():.1f} %, worst {100 * error.max():.1f} %")
