#!/usr/bin/env python3
"""Extracts the tables of measured kernels in models/data/kernels from the public raw profiles.

Usage: extract_kernels.py DATA_DIR      (run from the repository root; needs only Python 3)

DATA_DIR holds a checkout of the public repositories named in README.md ("Raw data"). The tables are facts (times of
kernels on devices); this script says which rows of the raw files they are. It is not needed to build or run Orrery.

GEMM: rows of the sweep on a rectilinear subgrid, times in microseconds. fp8 rows of the raw sweep time the quantisation
of the activations together with the GEMM; here the quantisation (3 bytes a value through memory at the device's
streaming rate) is taken off, so that a table holds the GEMM alone.
Attention: causal forward FlashAttention of the framework of the sweep; equal query and KV lengths.
"""
import collections
import csv
import lzma
import os
import sys

M = [1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
NK = [128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 65536]
DEVICES = {  # our name -> (folder, version, achieved memory bandwidth in B/us for the fp8 correction)
    "a100-sxm-80g": ("a100_sxm", "0.14.0", 1.73e6),
    "h100-sxm": ("h100_sxm", "0.19.0", 2.97e6),
    "h200-sxm": ("h200_sxm", "0.19.0", 4.04e6),
    "b200-sxm": ("b200_sxm", "0.19.0", 6.39e6),
}

# The H200 and B200 attention sweeps hold rows beyond the device's peak rate (sliding-window kernels labelled as full
# attention, fp8 caches): they are refused whole, and those devices use the H100 table.
ATTENTION = ("a100-sxm-80g", "h100-sxm")


def rows(path):
    with lzma.open(path, "rt") as stream:
        yield from csv.DictReader(stream)


def write(path, header, lines):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(header)
        for line in lines:
            out.write(",".join(str(v) for v in line) + "\n")


def main(data):
    for name, (folder, version, bandwidth) in DEVICES.items():
        base = f"{data}/aiconfigurator/data/{folder}"
        source = f"ai-dynamo/aiconfigurator@095f58a, {folder}, vLLM {version} (Apache-2.0)"
        gemm = collections.defaultdict(dict)
        for row in rows(f"{base}/gemm/vllm/{version}/gemm_perf.csv.xz"):
            m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
            if m in M and n in NK and k in NK:
                gemm[row["gemm_dtype"]][m, n, k] = 1000 * float(row["latency"])
        for raw, precision in (("bfloat16", "bf16"), ("fp8", "fp8")):
            if raw not in gemm:
                continue
            lines = []
            for (m, n, k), t in sorted(gemm[raw].items()):
                if precision == "fp8":
                    t = max(t - 3 * m * k / bandwidth, 0.25 * t)
                lines.append((m, n, k, f"{t:.4g}"))
            write(f"models/data/kernels/{name}/gemm-{precision}.csv", f"# {source}; us\nm,n,k,us\n", lines)
        if name not in ATTENTION:
            continue
        attention = collections.defaultdict(list)
        for row in rows(f"{base}/attention/vllm/{version}/context_attention_perf.csv.xz"):
            if row["attn_dtype"] != "bfloat16" or row["kv_cache_dtype"] != "bfloat16" or row.get("step", "0") != "0":
                continue
            b, s = int(row["batch_size"]), int(row["isl"])
            h, kv, d = int(row["num_heads"]), int(row["num_key_value_heads"]), int(row["head_dim"])
            if d not in (64, 128) or row.get("window_size", "0") not in ("0", ""):
                continue
            attention[d, s, b * h].append(1000 * float(row["latency"]))
        lines = []
        for (d, s, bh), times in sorted(attention.items()):
            if s & (s - 1) == 0 and bh & (bh - 1) == 0 and s >= 64:
                lines.append((d, s, bh, f"{sorted(times)[len(times) // 2]:.4g}"))
        write(f"models/data/kernels/{name}/attention-forward.csv",
              f"# {source}; causal forward, median over KV head counts; us\nhead_dim,seq,batch_heads,us\n", lines)


main(sys.argv[1])
