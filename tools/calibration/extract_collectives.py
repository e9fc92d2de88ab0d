#!/usr/bin/env python3
"""Extracts the tables of measured single-node collectives in models/data/collectives from the public raw profiles.

Usage: extract_collectives.py DATA_DIR      (run from the repository root; needs only Python 3)

Bytes are those of the larger buffer of a rank (raw `message_size` is in elements of 2 bytes), times in microseconds.
"""
import csv
import lzma
import os
import sys

SYSTEMS = {"nvlink3": ("a100_sxm", "2.27.3"), "nvlink4": ("h100_sxm", "2.29.2"), "nvlink5": ("b200_sxm", "2.29.2")}
OPS = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "alltoall": 3}

os.makedirs("models/data/collectives", exist_ok=True)
for name, (folder, version) in SYSTEMS.items():
    found = {}
    path = f"{sys.argv[1]}/aiconfigurator/data/{folder}/comm/nccl/{version}/nccl_perf.csv.xz"
    with lzma.open(path, "rt") as stream:
        for row in csv.DictReader(stream):
            if row["nccl_dtype"] == "half" and row["op_name"] in OPS and int(row["message_size"]) >= 4096:
                key = (OPS[row["op_name"]], int(row["num_gpus"]), 2 * int(row["message_size"]))
                found[key] = 1000 * float(row["latency"])
    with open(f"models/data/collectives/{name}.csv", "w") as out:
        out.write(f"# ai-dynamo/aiconfigurator@095f58a, {folder}, NCCL {version} (Apache-2.0); one node; us\n")
        out.write("# op: 1 all-reduce, 2 all-gather, 3 reduce-scatter, 4 all-to-all\n")
        out.write("op,ranks,bytes,us\n")
        for (op, ranks, size), us in sorted(found.items()):
            out.write(f"{op + 1},{ranks},{size},{us:.4g}\n")
