#!/usr/bin/env python3
"""Measures attention, transformer layers and whole steps with PyTorch, as a microbenchmark trace.

    tools/torchbench/torchbench.py --out FILE --device h200-sxm [--groups attention,layer,...] [--seconds N]

The groups `attention` (forward, backward, chunked and decode, through PyTorch's fused kernels), `flash` (FlashAttention-2, with
the pieces of rings), `cudnn` and `flash2` (attention of training in bursts; apart from the others) are for calibration. `held`
has clock and power of kernels without a pause, and products after one. All other groups are end-to-end runs, marked as held
out: cost models are never fitted on them; `fsdp` has steps of llama.py, `megatron` of megatron.py, `unfused` the kernels of the
latter one by one, `experts` grouped products of training (held out, too). The layout of the file is documented in
models/calibration/trace.hpp. Rows are flushed as measured; run again with the same file, it goes on where it stopped.
`--profile` writes instead, of every end-to-end point, the kernels of one execution as the profiler sees them (name,
launches, us): in a run of its own, because a profiler that was once loaded slows the launches after it.
`--smoke` runs a tiny version of everything on the CPU, to test the script itself.
"""

import argparse
import datetime
import gc
import math
import os
import platform
import statistics
import subprocess
import sys
import threading
import time

import torch
from torch import nn
from torch.nn import functional as F

COLUMNS = ("op,phase,dtype,shape,library,mode,cache,split,point,median_ns,min_ns,p10_ns,p90_ns,mean_ns,reps,sm_clock_mhz,power_w,"
           "temperature_c,held_s,beside,note").split(",")
LLAMA_8B = dict(hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128)
GPT2_124M = dict(hidden=768, ffn=3072, heads=12, kv_heads=12, head_dim=64)
GPT_1_3B = dict(hidden=2048, ffn=8192, heads=16, kv_heads=16, head_dim=128)
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
TINY = dict(hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=16)


def host_cpu():
    """Name of the host's processor and how many of its threads there are."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unknown'} x {os.cpu_count()}".replace(",", " ")


def repeat_kv(x, times):
    return x if times == 1 else x.repeat_interleave(times, dim=1)


def attention(q, k, v, causal):
    """q: [b, h, sq, d], k and v: [b, g, skv, d]; a causal mask is aligned to the last key."""
    grouped = dict(enable_gqa=True) if TORCH >= (2, 5) and q.shape[1] != k.shape[1] else {}
    if not grouped:
        k, v = repeat_kv(k, q.shape[1] // k.shape[1]), repeat_kv(v, q.shape[1] // v.shape[1])
    if not hasattr(F, "scaled_dot_product_attention"):  # PyTorch 1, for --smoke
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
            score = score.masked_fill(~mask, float("-inf"))
        return score.softmax(-1) @ v
    if causal and q.shape[2] != k.shape[2]:
        from torch.nn.attention.bias import causal_lower_right

        return F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(q.shape[2], k.shape[2]), **grouped)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    """Pre-norm transformer layer: Llama (RMS norm, rotary, SwiGLU) or GPT (layer norm, GELU)."""

    def __init__(self, hidden, ffn, heads, kv_heads, head_dim, gated):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.gated = heads, kv_heads, head_dim, gated
        norm = RmsNorm if gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(hidden), norm(hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * head_dim, bias=not gated)
        self.out = nn.Linear(heads * head_dim, hidden, bias=not gated)
        self.up = nn.Linear(hidden, (2 if gated else 1) * ffn, bias=not gated)
        self.down = nn.Linear(ffn, hidden, bias=not gated)

    def forward(self, x, angles=None, cache=None):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(
            [n * self.head_dim for n in (self.heads, self.kv_heads, self.kv_heads)], dim=-1)
        q, k, v = (t.view(b, s, -1, self.head_dim).transpose(1, 2) for t in (q, k, v))
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        causal = s > 1
        if cache is not None:
            # The new tokens take the last places of the cache, as a paged engine would write them.
            cache[0][:, :, -s:], cache[1][:, :, -s:] = k, v
            k, v = cache
        x = x + self.out(attention(q, k, v, causal).transpose(1, 2).reshape(b, s, -1))
        y = self.up(self.norm2(x))
        if self.gated:
            gate, y = y.chunk(2, dim=-1)
            y = F.silu(gate) * y
        else:
            y = F.gelu(y, approximate="tanh")
        return x + self.down(y)


def rotate(x, angles):
    low, high = x.chunk(2, dim=-1)
    cos, sin = angles
    return torch.cat((low * cos - high * sin, low * sin + high * cos), dim=-1)


class Experts(nn.Module):
    """A mixture-of-experts feed-forward layer, one product an expert."""

    def __init__(self, hidden, ffn, experts, topk):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, hidden, 2 * ffn) / math.sqrt(hidden))
        self.down = nn.Parameter(torch.randn(experts, ffn, hidden) / math.sqrt(ffn))
        self.topk = topk

    def forward(self, x):
        weight, expert = self.gate(x).float().softmax(-1).topk(self.topk, dim=-1)
        order = expert.flatten().argsort()
        rows = x[order // self.topk]
        counts = torch.bincount(expert.flatten(), minlength=self.up.shape[0]).tolist()
        parts = []
        for e, part in enumerate(rows.split(counts)):
            gate, up = (part @ self.up[e]).chunk(2, dim=-1)
            parts.append((F.silu(gate) * up) @ self.down[e])
        y = torch.cat(parts) * weight.flatten()[order].unsqueeze(-1).to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // self.topk, y)


class Gpt(nn.Module):
    def __init__(self, layers, vocabulary, sequence, shape):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, shape["hidden"])
        self.places = nn.Embedding(sequence, shape["hidden"])
        self.layers = nn.ModuleList(Layer(**shape, gated=False) for _ in range(layers))
        self.norm = nn.LayerNorm(shape["hidden"])

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy((self.norm(x) @ self.tokens.weight.t()).flatten(0, 1).float(), labels.flatten())


class Bench:
    def __init__(self, args):
        self.args = args
        self.cuda = not args.smoke
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.where = torch.device("cuda" if self.cuda else "cpu")
        self.start = time.monotonic()
        self.done = set() if args.profile else self.resume()

    def resume(self):
        """Names of the points that the file holds; writes its head when it is new, drops a row that was cut off."""
        try:
            with open(self.args.out, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        text = text[: text.rfind("\n") + 1]
        lines = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
        with open(self.args.out, "w", encoding="utf-8") as file:
            file.write(text or self.head())
        return {cells[COLUMNS.index("point")] for cells in lines[1:] if len(cells) == len(COLUMNS)}

    def head(self):
        version = subprocess.run(["git", "log", "-1", "--format=%h", "--", os.path.dirname(os.path.abspath(__file__))],
                                 capture_output=True, text=True, check=False, cwd=os.path.dirname(os.path.abspath(__file__)))
        commit = self.args.commit or version.stdout.strip() or "unknown"
        meta = {"device": self.args.device, "source": f"tools/torchbench at {commit}",
                "date": datetime.date.today().isoformat(), "torch": torch.__version__, "timer": "CUDA events",
                "warm_up": "3 executions", "seed": "1"}
        if BURSTS.issuperset(self.args.groups.split(",")):
            meta["repetitions"] = "4 bursts of 8 ms, 30 ms of rest before each"
        else:
            meta["sustained"] = "0.2 s"
        if self.cuda:
            meta["device_name"] = torch.cuda.get_device_name()
            meta["cuda"] = torch.version.cuda
            meta["cudnn"] = str(torch.backends.cudnn.version())
            meta["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        meta["os"] = f"{platform.system()} {platform.release().split('-')[0]}"
        meta["host_cpu"] = host_cpu()
        lines = ["# orrery-trace: 1"] + [f"# {key}: {value}" for key, value in meta.items()]
        return "\n".join(lines + [",".join(COLUMNS)]) + "\n"

    def tensor(self, *shape):
        return torch.randn(*shape, device=self.where, dtype=self.dtype)

    def time(self, run, graph):
        """Seconds of single executions: in a CUDA graph, or launched by the host."""
        for _ in range(3):
            run()
        if not self.cuda:
            out = []
            for _ in range(3):
                begin = time.perf_counter()
                run()
                out.append(time.perf_counter() - begin)
            return out
        torch.cuda.synchronize()
        replay = run
        if graph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                run()
            replay = captured.replay
        replay()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        reps = int(min(100, max(7, 0.2 / max(1e-6, begin.elapsed_time(end) * 1e-3))))
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(reps)]
        for first, last in marks:
            first.record()
            replay()
            last.record()
        torch.cuda.synchronize()
        return [first.elapsed_time(last) * 1e-3 for first, last in marks]

    def write_profile(self, name, run):
        """Kernels of one execution, the longest first; a kernel's name is last, because it holds commas."""
        where = "CUDA" if self.cuda else "CPU"
        with torch.profiler.profile(activities=[getattr(torch.profiler.ProfilerActivity, where)]) as seen:
            run()
            if self.cuda:
                torch.cuda.synchronize()
        total = {}
        for event in seen.events():
            if event.device_type.name == where:
                launches, us = total.get(event.name, (0, 0.0))
                total[event.name] = launches + 1, us + event.time_range.elapsed_us()
        with open(self.args.out, "a", encoding="utf-8") as file:
            if file.tell() == 0:
                file.write("point,launches,us,kernel\n")
            for kernel, (launches, us) in sorted(total.items(), key=lambda entry: -entry[1][1]):
                file.write(f"{name},{launches},{us:.1f},{kernel}\n")

    def point(self, op, shape, run, *, phase="", mode="eager", held_out=True, note="", library=None, count=1, board=False, dtype="bf16"):
        """Times `run()`; what it does `count` times in an execution is given once in the row. `board`: with its clock and power."""
        text = " ".join(f"{key}={value}" for key, value in shape.items())
        name = "/".join(part for part in (op, phase, mode, note.replace(" ", "-"), text) if part)
        if name in self.done:
            return
        if time.monotonic() - self.start > self.args.seconds:
            raise TimeoutError
        try:
            execute = run()
            if self.args.profile:
                if held_out and op != "launch":
                    for _ in range(3):
                        execute()
                    self.write_profile(name, execute)
                return
            samples, stop = [], []
            sampler = threading.Thread(target=sample_board, args=(samples, 0, stop))
            if board and self.cuda:
                for _ in range(3):
                    execute()
                sampler.start()
            times = sorted(seconds / count for seconds in self.time(execute, mode == "graph"))
            stop.append(True)
            if sampler.is_alive():
                sampler.join()
        except torch.cuda.OutOfMemoryError if hasattr(torch.cuda, "OutOfMemoryError") else MemoryError:
            print(f"left out, out of memory: {name}", file=sys.stderr)
            torch.cuda.empty_cache()
            return
        self.write(dict(op=op, phase=phase, dtype=dtype, shape=text, library=library or f"torch-{torch.__version__}", mode=mode,
                        cache="warm", split="holdout" if held_out else "", point=name, note=note, **means(samples)), times)

    def write(self, cells, times):
        """A row of sorted `times`, s."""
        quantile = lambda q: times[min(len(times) - 1, round(q * (len(times) - 1)))]
        cells.update(median_ns=statistics.median(times) * 1e9, min_ns=times[0] * 1e9, p10_ns=quantile(0.1) * 1e9,
                     p90_ns=quantile(0.9) * 1e9, mean_ns=statistics.fmean(times) * 1e9, reps=len(times))
        row = ",".join(f"{cells[c]:.1f}" if isinstance(cells.get(c), float) else str(cells.get(c, "")) for c in COLUMNS)
        with open(self.args.out, "a", encoding="utf-8") as file:
            file.write(row + "\n")
        self.done.add(cells["point"])

    def held(self, op, note, shape, make, seconds=2.0):
        """A kernel without a pause, with the means of what the board says of itself in the second half."""
        text = " ".join(f"{key}={value}" for key, value in shape.items())
        name = "/".join(part for part in (op, "held", note.replace(" ", "-"), text) if part)
        if name in self.done or self.args.profile:
            return
        if time.monotonic() - self.start > self.args.seconds:
            raise TimeoutError
        run = make()
        times, samples = self.time_held(run, seconds)
        self.write(dict(op=op, dtype="fp8" if "fp8" in note else "bf16", shape=text, library=f"torch-{torch.__version__}", mode="stream",
                        cache="warm", split="holdout", point=name, note=note, held_s=seconds,
                        beside=note if note.startswith("with ") else "", **means(samples)), sorted(times))

    def time_held(self, run, seconds):
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        begin = time.monotonic()
        times, samples, stop = [], [], []
        sampler = threading.Thread(target=sample_board, args=(samples, begin + seconds / 2, stop))
        sampler.start()
        while time.monotonic() - begin < seconds:
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(21)]
            marks[0].record()
            for mark in marks[1:]:
                run()
                mark.record()
            torch.cuda.synchronize()
            if time.monotonic() - begin > seconds / 2:
                times += [first.elapsed_time(last) * 1e-3 for first, last in zip(marks, marks[1:])]
        stop.append(True)
        sampler.join()
        return times, samples

    def paused(self, op, note, shape, dtype, make):
        """Single executions, each after 40 ms of rest."""
        text = " ".join(f"{key}={value}" for key, value in shape.items())
        name = "/".join((op, "paused", note.replace(" ", "-"), text))
        if name in self.done or self.args.profile:
            return
        run = make()
        for _ in range(3):
            run()
        times = []
        for _ in range(9):
            torch.cuda.synchronize()
            time.sleep(0.04)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            run()  # wakes the clocks
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3)
        self.write(dict(op=op, dtype=dtype, shape=text, library=f"torch-{torch.__version__}", mode="stream", cache="warm",
                        split="holdout", point=name, note=note), sorted(times))


def bursts_of(execute, stream):
    """Sorted seconds of an execution in four bursts of 8 ms, each after a rest and a graph that wakes the clocks.

    A graph holds executions for a millisecond, so that its own start is in none of the times.
    """
    def graph(executions):
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            for _ in range(executions):
                execute()
        return captured.replay

    def timed(replay, count):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record(stream)
        for mark in marks[1:]:
            replay()
            mark.record(stream)
        torch.cuda.synchronize()
        return [first.elapsed_time(last) * 1e-3 for first, last in zip(marks, marks[1:])]

    executions = int(min(50, max(1, 1e-3 / max(1e-6, timed(graph(1), 3)[2]))))
    replay = graph(executions)
    count = int(max(2, 8e-3 / max(1e-6, timed(replay, 2)[1])))
    times = []
    for _ in range(4):
        time.sleep(0.03)
        replay()
        times += timed(replay, count)
    return sorted(seconds / executions for seconds in times)


def sample_board(samples, start, stop):
    """Samples of clock, power and temperature of the first GPU from `start` on, until `stop` holds something."""
    import pynvml

    pynvml.nvmlInit()
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    while not stop:
        if time.monotonic() >= start:
            samples.append(dict(sm_clock_mhz=float(pynvml.nvmlDeviceGetClockInfo(board, pynvml.NVML_CLOCK_SM)),
                                power_w=pynvml.nvmlDeviceGetPowerUsage(board) / 1000,
                                temperature_c=float(pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU))))
        time.sleep(0.05)


def means(samples):
    return {key: statistics.fmean(sample[key] for sample in samples) for key in samples[0]} if samples else {}


def attention_points(bench):
    shapes = [(32, 8, 128), (8, 1, 128), (16, 16, 64)] if bench.cuda else [(4, 2, 16)]
    longest, most = (16384, 32768) if bench.cuda else (256, 256)

    def measure(batch, queries, keys, heads, kv_heads, width, backward):
        shape = dict(batch=batch, queries=queries, keys=keys, heads=heads, kv_heads=kv_heads, head_dim=width, causal=1)

        def run():
            q = bench.tensor(batch, heads, queries, width)
            k, v = bench.tensor(batch, kv_heads, keys, width), bench.tensor(batch, kv_heads, keys, width)
            if not backward:
                return lambda: attention(q, k, v, True)
            inputs = [t.requires_grad_() for t in (q, repeat_kv(k, heads // kv_heads), repeat_kv(v, heads // kv_heads))]
            out = attention(*inputs, True)
            gradient = torch.randn_like(out)
            return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)

        # A retained graph cannot be captured, and a mask of its own object launches nothing extra.
        graph = bench.cuda and not backward and queries == keys
        op = "attention_training" if queries == keys else "attention_prefill"
        bench.point(op, shape, run, phase="backward" if backward else "", held_out=False,
                    mode="graph" if graph else "eager")

    for heads, kv_heads, width in shapes:
        for batch in (1, 2, 4, 8, 16):
            length = 128
            while length <= longest and batch * length <= most:
                measure(batch, length, length, heads, kv_heads, width, False)
                if length >= 512 or not bench.cuda:
                    measure(batch, length, length, heads, kv_heads, width, True)
                length *= 2
    for queries in (256, 512, 1024, 2048) if bench.cuda else (8,):
        for before in (1024, 4096, 16384, 32768) if bench.cuda else (16,):
            measure(1, queries, before + queries, *shapes[0], False)
    for heads, kv_heads, width in shapes[:2]:
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256) if bench.cuda else (1, 2):
            for keys in (128, 512, 2048, 8192, 32768) if bench.cuda else (32,):
                shape = dict(batch=batch, keys=keys, heads=heads, kv_heads=kv_heads, head_dim=width)

                def run(batch=batch, keys=keys, heads=heads, kv_heads=kv_heads, width=width):
                    # The query heads of a group are queries of their key head: its cache is read once, as engines do.
                    q = bench.tensor(batch, kv_heads, heads // kv_heads, width)
                    k, v = bench.tensor(batch, kv_heads, keys, width), bench.tensor(batch, kv_heads, keys, width)
                    return lambda: attention(q, k, v, False)

                if batch * keys <= 4 << 20:
                    bench.point("attention_decode", shape, run, held_out=False, mode="graph" if bench.cuda else "eager")


def cudnn_points(bench):
    """cuDNN's attention of training by heads, shared keys and widths."""
    attention_in_bursts(bench, "CUDNN_ATTENTION", "",
                        [(32, 32, 128), (8, 8, 128), (32, 8, 128), (8, 1, 128), (16, 2, 128), (5, 5, 128), (16, 16, 64), (32, 8, 64),
                         (8, 8, 96), (16, 16, 96), (12, 1, 192), (8, 8, 192), (4, 4, 256)])


def flash2_points(bench):
    """FlashAttention-2, PyTorch's own kernels, likewise."""
    attention_in_bursts(bench, "FLASH_ATTENTION", "/flash",
                        [(32, 32, 128), (8, 8, 128), (32, 8, 128), (8, 1, 128), (5, 5, 128), (16, 16, 64), (8, 8, 96), (8, 8, 192)])


def attention_in_bursts(bench, backend, library, heads):
    """Attention of training by (heads, kv_heads, head_dim), in bursts and without the host in any time."""
    if not bench.cuda or bench.args.profile:
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def measure(batch, length, heads, kv_heads, width, causal):
        shape = dict(batch=batch, queries=length, keys=length, heads=heads, kv_heads=kv_heads, head_dim=width, causal=int(causal))
        text = " ".join(f"{key}={value}" for key, value in shape.items())
        names = {phase: "/".join(part for part in ("attention_training", phase, f"burst{library}", text) if part)
                 for phase in ("", "backward")}
        if all(name in bench.done for name in names.values()):
            return
        if time.monotonic() - bench.start > bench.args.seconds:
            raise TimeoutError
        # Contiguous in tokens, as projections write them; a backward pass runs on the stream of its forward pass.
        tensors = [bench.tensor(batch, length, count, width).transpose(1, 2).requires_grad_() for count in (heads, kv_heads, kv_heads)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)), torch.cuda.stream(stream):
                run = lambda: F.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=heads != kv_heads)
                out = run()
                gradient = torch.randn_like(out)
                for phase, name in names.items():
                    execute = run if not phase else lambda: torch.autograd.grad(out, tensors, gradient, retain_graph=True)
                    for _ in range(3):
                        execute()
                    torch.cuda.synchronize()
                    times = bursts_of(execute, stream)
                    bench.write(dict(op="attention_training", phase=phase, dtype="bf16", shape=text, mode="graph", cache="warm",
                                     library=f"torch-{torch.__version__}{library}", point=name, note="bursts"), times)
        except RuntimeError as error:
            print(f"left out: {names['']}: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.cuda.synchronize()

    for h, g, width in heads:
        for length in (512, 1024, 2048, 4096, 8192, 16384):
            for batch in (1, 2, 4, 8):
                if batch * length <= (16384 if h > 16 else 32768):
                    measure(batch, length, h, g, width, True)
    for h, g, width in ((16, 16, 64), (32, 32, 128)):
        for length in (512, 2048, 8192):
            measure(1, length, h, g, width, False)


def flash_points(bench):
    """FlashAttention-2, PyTorch's own kernels, in training: whole sequences, and the pieces of a ring over ranks."""
    if not bench.cuda:
        return
    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    library = f"torch-{torch.__version__}/flash"

    def measure(batch, queries, keys, heads, width, causal):
        shape = dict(batch=batch, queries=queries, keys=keys, heads=heads, kv_heads=heads, head_dim=width, causal=int(causal))
        made = []

        def inputs():
            if not made:
                made.append([bench.tensor(batch, heads, count, width) for count in (queries, keys, keys)])
            return made[0]

        def forward():
            q, k, v = inputs()
            return lambda: flash(q, k, v, 0.0, causal)

        def backward():
            tensors = [t.requires_grad_() for t in inputs()]
            out = flash(*tensors, 0.0, causal)[0]
            gradient = torch.randn_like(out)
            return lambda: torch.autograd.grad(out, tensors, gradient, retain_graph=True)

        for phase, run in (("", forward), ("backward", backward)):
            bench.point("attention_training", shape, run, phase=phase, held_out=False, library=library, mode="eager", note="flash")

    for heads, width in ((32, 128), (8, 128), (40, 128), (16, 64)):
        length = 1024
        while length <= 32768:
            for batch in (1, 2, 4) if length <= 8192 else (1,):
                measure(batch, length, length, heads, width, True)
            length *= 2
    for queries, keys in ((2048, 2048), (8192, 8192), (32768, 16384), (16384, 32768), (32768, 32768)):
        measure(1, queries, keys, 32, 128, False)


def held_points(bench):
    """Clock and power where a kernel is held for two seconds, and products after a pause."""
    if not bench.cuda:
        return

    def product(n, k, m, make=None):
        a, b = (make or bench.tensor)(m, k), (make or bench.tensor)(n, k)
        return lambda: torch.mm(a, b.t())

    def product8(n, k, m, fast):
        a, b = bench.tensor(m, k).to(torch.float8_e4m3fn), bench.tensor(n, k).to(torch.float8_e4m3fn)
        one = torch.ones((), device=bench.where)
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)

    def streaming(gigabytes):
        a = torch.empty(int(gigabytes * 1e9 / 8), device=bench.where)
        b = torch.randn_like(a)
        return lambda: torch.add(b, 1.0, out=a)

    def attention_of(length):
        q, k, v = (bench.tensor(1, 32, length, 128) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def mixed(gigabytes):
        first, second = product(8192, 8192, 8192), streaming(gigabytes)

        def run():
            first()
            second()

        return run

    square = dict(m=8192, n=8192, k=8192)
    kinds = [("gemm", "random", square, lambda: product(8192, 8192, 8192)),
             ("gemm", "uniform", square, lambda: product(8192, 8192, 8192, lambda *s: bench.tensor(*s).uniform_(-1, 1))),
             ("gemm", "one value", square, lambda: product(8192, 8192, 8192, lambda *s: bench.tensor(*s).fill_(1.0))),
             ("gemm", "few bits", square, lambda: product(8192, 8192, 8192, lambda *s: bench.tensor(*s).sign())),
             ("gemm", "zeros", square, lambda: product(8192, 8192, 8192, lambda *s: bench.tensor(*s).zero_())),
             ("gemm", "tall", dict(m=16384, n=28672, k=4096), lambda: product(28672, 4096, 16384)),
             ("gemm", "small", dict(m=1024, n=1024, k=8192), lambda: product(1024, 8192, 1024)),
             ("gemm", "fp8 fast", square, lambda: product8(8192, 8192, 8192, True)),
             ("gemm", "fp8 split", square, lambda: product8(8192, 8192, 8192, False)),
             ("attention_prefill", "as PyTorch chooses",
              dict(batch=1, queries=8192, keys=8192, heads=32, kv_heads=32, head_dim=128, causal=1), lambda: attention_of(8192)),
             ("copy", "", dict(bytes=1050000000), lambda: streaming(2.1)),
             ("gemm", "with 1 GB streamed after each", square, lambda: mixed(1)),
             ("gemm", "with 4 GB streamed after each", square, lambda: mixed(4))]
    for op, note, shape, make in kinds:
        bench.held(op, note, shape, make)
    for n, k, m in ((8192, 8192, 8192), (28672, 4096, 8192), (4096, 14336, 8192), (4096, 4096, 16384), (14336, 8192, 8192)):
        for note, dtype, run in (("bf16", "bf16", lambda: product(n, k, m)), ("fast", "fp8", lambda: product8(n, k, m, True)),
                                 ("split", "fp8", lambda: product8(n, k, m, False))):
            bench.paused("gemm", f"after a pause {note}", dict(m=m, n=n, k=k), dtype, run)


def fsdp_points(bench):
    """Whole steps of Llama 3 8B's layers as torchtitan runs them, under FSDP2 on one device."""
    import llama  # needs PyTorch 2.6

    shape, vocabulary, batch, sequence = (LLAMA_8B, 128256, 2, 8192) if bench.cuda else (TINY, 128, 2, 16)
    kinds = [("compiled", True, False, "operations"), ("eager", False, False, "operations"),
             ("compiled fp8", True, True, "operations"), ("compiled none", True, False, "none"), ("eager full", False, False, "full"),
             ("compiled fp8 none", True, True, "none"), ("compiled flash", True, False, "operations")]
    for name, compiled, eight_bits, recompute in kinds:
        for layers in (4,) if bench.args.profile else (4, 2):

            def run(name=name, layers=layers, compiled=compiled, eight_bits=eight_bits, recompute=recompute):
                return llama.training_step(layers, vocabulary, batch, sequence, shape, compiled=compiled and bench.cuda,
                                           eight_bits=eight_bits and bench.cuda, recompute=recompute, flash="flash" in name,
                                           where=bench.where)

            bench.point("step", dict(batch=batch, queries=sequence, layers=layers, **shape, vocabulary=vocabulary, gated=1, training=1),
                        run, note=f"fsdp2 {name}", board=True)
            gc.collect()
            if bench.cuda:
                torch._dynamo.reset()
                torch.cuda.empty_cache()


def unfused_points(bench):
    """Attention as scores, softmax, dropout and weighted sum in fp16, each by itself, and the other kernels of Megatron's own layers."""
    import megatron

    softmax, gelu, add = megatron.fused_kernels(bench.cuda).values()

    def half(*shape):
        return bench.tensor(*shape).to(torch.float16 if bench.cuda else torch.float32)

    def measure(op, shape, note, make, phase=""):
        graph = bench.cuda and op != "dropout_add"  # whose random numbers are of the compiler's making
        bench.point(op, shape, make, phase=phase, note=note, mode="graph" if graph else "eager", dtype="fp16")

    def of_heads(batch, heads, s, width):
        rows = batch * heads
        wide, narrow = dict(m=s, n=s, k=width, batch=rows), dict(m=s, n=width, k=s, batch=rows)

        def product(kind):
            # As the layer holds them: [sequence, batch * heads, width].
            q, k, v = (half(s, rows, width).transpose(0, 1) for _ in range(3))
            p = half(rows, s, s)
            return {"scores": lambda: torch.baddbmm(p, q, k.transpose(1, 2), beta=0.0, alpha=0.1),
                    "weighted sum": lambda: torch.bmm(p, v),
                    "gradient of values": lambda: torch.bmm(p.transpose(1, 2), q),
                    "gradient of weights": lambda: torch.bmm(q, v.transpose(1, 2)),
                    "gradient of queries": lambda: torch.bmm(p, k)}[kind]

        for kind, shape in (("scores", wide), ("weighted sum", narrow), ("gradient of values", narrow),
                            ("gradient of weights", wide), ("gradient of queries", narrow)):
            measure("gemm", shape, kind, lambda kind=kind: product(kind))

        def masked(backward):
            p = half(rows, s, s)
            gradient, out = half(rows, s, s), p.softmax(-1)
            return (lambda: torch._softmax_backward_data(gradient, out, -1, out.dtype)) if backward else (lambda: softmax(p))

        def dropped(backward):
            p = half(rows, s, s)
            _, mask = torch.native_dropout(p, 0.1, True)
            return (lambda: torch.ops.aten.native_dropout_backward(p, mask, 1 / 0.9)) if backward else (
                lambda: torch.native_dropout(p, 0.1, True))

        shape = dict(tokens=rows * s, hidden=s)
        for backward in (False, True):
            phase = "backward" if backward else ""
            measure("softmax", shape, "causal mask" if not backward else "", lambda backward=backward: masked(backward), phase)
            measure("dropout", shape, "", lambda backward=backward: dropped(backward), phase)

    for sizes in (((6, 24, 1024, 96), (3, 32, 1024, 128), (1, 48, 1024, 128), (2, 24, 2048, 128), (8, 16, 1024, 64), (1, 16, 4096, 128),
                   (16, 12, 512, 64)) if bench.cuda else ((1, 2, 16, 8),)):
        of_heads(*sizes)
    for tokens, hidden in ((6144, 2304), (3072, 4096), (1024, 6144), (8192, 8192)) if bench.cuda else ((16, 32),):
        shape, wide = dict(tokens=tokens, hidden=hidden), dict(tokens=tokens, hidden=4 * hidden)
        three = dict(bytes=2 * 3 * tokens * hidden)
        makes = [("dropout_add", shape, "with a bias", "",
                  lambda: (lambda x, b, r: lambda: add(x, b, r, 0.1, True))(half(tokens, hidden), half(hidden), half(tokens, hidden))),
                 ("gelu", wide, "with a bias", "", lambda: (lambda x, b: lambda: gelu(x, b))(half(tokens, 4 * hidden), half(4 * hidden))),
                 ("layer_norm", shape, "", "",
                  lambda: (lambda x, w, b: lambda: F.layer_norm(x, (hidden,), w, b))(half(tokens, hidden), half(hidden), half(hidden))),
                 ("copy", three, "bias", "", lambda: (lambda x, b: lambda: x + b)(half(tokens, 3 * hidden), half(3 * hidden))),
                 ("read", three, "sum of a bias", "", lambda: (lambda x: lambda: x.sum(dim=0))(half(tokens, 3 * hidden))),
                 ("copy", three, "split of heads", "",
                  lambda: (lambda x: lambda: [t.contiguous() for t in x.split(hidden // 32, dim=-1)])(half(tokens, 32, 3 * hidden // 32)))]
        for op, of, note, phase, make in makes:
            measure(op, of, note, make, phase)


def megatron_points(bench):
    """Micro-batches and whole steps of Megatron's own layers, see megatron.py."""
    import megatron

    kinds = ([(2304, 24, 6, 1024, False), (4096, 32, 3, 1024, False), (6144, 48, 1, 1024, False), (3072, 24, 1, 2048, True)]
             if bench.cuda else [(32, 2, 2, 16, False)])
    vocabulary = 32000 if bench.cuda else 128
    steps = [(4, "step", 2), (4, "step", 8), (2, "step", 8)]
    for parts in [steps, [(4, "update", 1), (4, "passes", 1), (4, "forward", 1)]] if not bench.args.profile else [steps[:1]]:
        for hidden, heads, batch, sequence, flash in kinds:
            for layers, part, micro_batches in parts:

                def run(layers=layers, part=part, micro_batches=micro_batches):
                    return megatron.training_step(layers, vocabulary, batch, sequence, hidden, heads, micro_batches, flash=flash,
                                                  dropout=0.0 if flash else 0.1, part=part, where=bench.where)

                bench.point("step", dict(batch=batch, queries=sequence, layers=layers, hidden=hidden, ffn=4 * hidden, heads=heads,
                                         kv_heads=heads, head_dim=hidden // heads, vocabulary=vocabulary, gated=0, training=1), run,
                            note=f"megatron {part} {micro_batches}{' flash' if flash else ''}", board=part == "step", dtype="fp16")
                gc.collect()
                if bench.cuda:
                    torch.cuda.empty_cache()
            if bench.cuda:
                torch._dynamo.reset()


def experts_points(bench):
    """Products of experts in training, all experts in one kernel (torch._grouped_mm), and what brings tokens to them and back."""
    if not bench.cuda:
        return
    for tokens, experts, topk, hidden, ffn in ((4096, 128, 8, 2048, 768), (16384, 128, 8, 2048, 768), (4096, 16, 8, 4096, 1536),
                                               (16384, 16, 8, 4096, 1536), (8192, 8, 2, 6144, 16384), (4096, 32, 8, 7168, 2048),
                                               (16384, 32, 8, 7168, 2048), (8192, 16, 1, 5120, 8192), (16384, 32, 4, 2880, 2880)):
        rows = tokens * topk
        ends = (torch.arange(1, experts + 1, device=bench.where) * rows // experts).to(torch.int32)
        for n, k in ((2 * ffn, hidden), (hidden, ffn)):
            shape = dict(tokens=tokens, experts=experts, topk=topk, n=n, k=k)

            def forward(n=n, k=k):
                x, w = bench.tensor(rows, k), bench.tensor(experts, n, k)
                return lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends)

            def of_input(n=n, k=k):
                g, w = bench.tensor(rows, n), bench.tensor(experts, n, k)
                return lambda: torch._grouped_mm(g, w, offs=ends)

            def of_weights(n=n, k=k):
                g, x = bench.tensor(rows, n), bench.tensor(rows, k)
                return lambda: torch._grouped_mm(g.t(), x, offs=ends)

            for phase, make in (("", forward), ("data_gradient", of_input), ("weight_gradient", of_weights)):
                bench.point("grouped_gemm", shape, make, phase=phase)

        def route():
            x, gate = bench.tensor(tokens, hidden), bench.tensor(experts, hidden)

            def execute():
                weight, expert = (x @ gate.t()).float().softmax(-1).topk(topk, dim=-1)
                order = expert.flatten().argsort()
                there = x[order // topk]
                back = torch.empty_like(there).index_copy_(0, order, there).view(tokens, topk, hidden)
                return (back * weight.unsqueeze(-1).to(back.dtype)).sum(1)

            return execute

        bench.point("moe_route", dict(tokens=tokens, experts=experts, topk=topk, hidden=hidden), route)


def launch_points(bench):
    """What the host pays for one eager operation of a framework: the device is never the slower of the two."""
    count = 2000 if bench.cuda else 4
    x = bench.tensor(16, 16)
    weight = bench.tensor(16, 16)
    for note, operation in (("eager add", lambda: x.add_(1.0)), ("eager linear", lambda: F.linear(x, weight))):
        bench.point("launch", dict(count=count), lambda operation=operation: lambda: [operation() for _ in range(count)],
                    note=note, count=count)


def angles_of(bench, length, width):
    turn = torch.arange(length, device=bench.where).float()[:, None] * torch.arange(width // 2, device=bench.where)
    return turn.cos().to(bench.dtype), turn.sin().to(bench.dtype)


def layer_points(bench):
    shape = LLAMA_8B if bench.cuda else TINY
    for batch, queries in ((1, 512), (1, 2048), (4, 2048), (1, 8192)) if bench.cuda else ((1, 16),):
        for backward in (False, True):
            for mode in ("eager", "graph") if bench.cuda else ("eager",):

                def run(batch=batch, queries=queries, backward=backward):
                    layer = Layer(**shape, gated=True).to(bench.where, bench.dtype)
                    x = bench.tensor(batch, queries, shape["hidden"]).requires_grad_(backward)
                    angles = angles_of(bench, queries, shape["head_dim"])
                    gradient = torch.randn_like(x)

                    def forward():
                        with torch.no_grad():
                            layer(x, angles)

                    return (lambda: layer(x, angles).backward(gradient)) if backward else forward

                bench.point("layer", dict(batch=batch, queries=queries, **shape, gated=1), run, mode=mode,
                            phase="backward" if backward else "", note="forward and backward" if backward else "")


def serving_points(bench):
    shape, layers, vocabulary = (LLAMA_8B, 32, 128256) if bench.cuda else (TINY, 2, 128)
    built = {}

    def model():
        if not built:
            built["layers"] = [Layer(**shape, gated=True).to(bench.where, bench.dtype) for _ in range(layers)]
            built["head"] = bench.tensor(vocabulary, shape["hidden"])
        return built["layers"], built["head"]

    def step(sequences):
        """sequences: (count, new tokens, keys in the cache with them) of one pass over groups of equal sequences."""

        def run():
            blocks, head = model()
            groups = []
            for count, new, keys in sequences:
                caches = [[bench.tensor(count, shape["kv_heads"], keys, shape["head_dim"]) for _ in range(2)] for _ in blocks]
                groups.append((bench.tensor(count, new, shape["hidden"]), caches, angles_of(bench, new, shape["head_dim"])))

            def execute():
                with torch.no_grad():
                    for x, caches, angles in groups:
                        for block, cache in zip(blocks, caches):
                            x = block(x, angles, cache)
                        (x[:, -1] @ head.t()).argmax(-1)

            return execute

        return run

    base = dict(layers=layers, **shape, vocabulary=vocabulary, gated=1)
    graph = "graph" if bench.cuda else "eager"
    for batch, keys in (((1, 512), (1, 4096), (8, 512), (8, 4096), (32, 512), (32, 4096), (128, 512)) if bench.cuda
                        else ((2, 16),)):
        bench.point("step", dict(batch=batch, queries=1, keys=keys, **base), step([(batch, 1, keys)]), mode=graph,
                    note="decode")
    for tokens in (128, 1024, 4096) if bench.cuda else (16,):
        bench.point("step", dict(batch=1, queries=tokens, **base), step([(1, tokens, tokens)]), mode=graph, note="prefill")
    chunk, decoding, keys = (512, 64, 2048) if bench.cuda else (8, 2, 16)
    bench.point("step", dict(batch=1, queries=chunk, decode_batch=decoding, decode_keys=keys, **base),
                step([(1, chunk, chunk), (decoding, 1, keys)]), mode=graph,
                note="prefill and decode one after the other")


def training_points(bench):
    runs = ([("124M", GPT2_124M, 12, 16, 1024), ("1.3B", GPT_1_3B, 24, 4, 2048)] if bench.cuda else [("tiny", TINY, 2, 2, 16)])
    vocabulary = 50304 if bench.cuda else 128
    for _, shape, layers, batch, sequence in runs:
        for mode in ("eager", "compiled") if bench.cuda else ("eager",):

            def run(shape=shape, layers=layers, batch=batch, sequence=sequence, mode=mode):
                model = Gpt(layers, vocabulary, sequence, shape).to(bench.where)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **(dict(fused=True) if bench.cuda else {}))
                compiled = torch.compile(model) if mode == "compiled" else model
                tokens = torch.randint(vocabulary, (batch, sequence), device=bench.where)

                def execute():
                    with torch.autocast(bench.where.type, dtype=torch.bfloat16):
                        loss = compiled(tokens, tokens)
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)

                return execute

            bench.point("step", dict(batch=batch, queries=sequence, layers=layers, **shape, vocabulary=vocabulary, gated=0,
                                     training=1), run, note=f"adamw autocast {mode}")


def moe_points(bench):
    tokens, hidden, ffn, experts, topk = (4096, 2048, 1408, 64, 6) if bench.cuda else (16, 32, 16, 4, 2)

    def run():
        layer = Experts(hidden, ffn, experts, topk).to(bench.where, bench.dtype)
        x = bench.tensor(tokens, hidden).requires_grad_()
        gradient = torch.randn_like(x)
        return lambda: layer(x).backward(gradient)

    bench.point("moe", dict(tokens=tokens, experts=experts, topk=topk, hidden=hidden, ffn=ffn, gated=1), run,
                phase="backward", note="forward and backward with one product an expert")


GROUPS = dict(attention=attention_points, cudnn=cudnn_points, flash2=flash2_points, launch=launch_points, layer=layer_points,
              serving=serving_points, training=training_points, moe=moe_points, flash=flash_points, held=held_points,
              fsdp=fsdp_points, unfused=unfused_points, megatron=megatron_points, experts=experts_points)
BURSTS = {"cudnn", "flash2"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cpu", help="the device's name in models/data/devices")
    parser.add_argument("--groups", default=",".join(name for name in GROUPS if name not in BURSTS),
                        help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=420, help="stop after that long (default %(default)s)")
    parser.add_argument("--profile", action="store_true", help="write kernels of end-to-end points instead of times")
    parser.add_argument("--commit", help="commit of this script, for a copy outside its repository")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on the CPU")
    args = parser.parse_args()
    unknown = [name for name in args.groups.split(",") if name not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]!r}; there are {', '.join(GROUPS)}")
    bursts = [name in BURSTS for name in args.groups.split(",")]
    if any(bursts) and not all(bursts):
        parser.error(f"groups {' and '.join(sorted(BURSTS))} are measured in bursts, the others without a pause: use two files")
    if not args.smoke and not torch.cuda.is_available():
        sys.exit("torchbench: no CUDA device here (--smoke tests the script on the CPU)")
    torch.manual_seed(1)
    bench = Bench(args)
    try:
        for name in args.groups.split(","):
            GROUPS[name](bench)
            if bench.cuda:
                torch.cuda.empty_cache()
    except TimeoutError:
        sys.exit("torchbench: out of time; run it again to go on")


if __name__ == "__main__":
    main()
