"""Llama 3 as PyTorch's own training examples write it (torchtitan's models, FSDP2, torchao's 8-bit layers), on one device.

Learnt from pytorch/torchtitan, models/llama3/model.py and parallelize.py: projections apart, rotary embedding in 32 bits on complex
numbers, keys repeated for every query head, weights in 32 bits that FSDP2 casts to 16, every second product kept by selective
recomputation. 8-bit layers scale each tensor by its largest value; the gradient's products have a split accumulator (pytorch/ao,
float8/config.py).
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def scaled(x, dtype):
    """x in 8 bits and the factor that takes it back, for the whole tensor."""
    largest = torch.max(torch.abs(x)).double()
    scale = (torch.finfo(dtype).max / largest.clamp(min=1e-12)).float()
    limit = torch.finfo(dtype).max
    return (x.float() * scale).clamp(-limit, limit).to(dtype), scale.reciprocal()


class Product8(torch.autograd.Function):
    """y = x w^T, x: [tokens, k], w: [n, k], in 8 bits forward and backward."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        x8, x_back = scaled(x, E4M3)
        w8, w_back = scaled(w, E4M3)
        return torch._scaled_mm(x8, w8.t(), scale_a=x_back, scale_b=w_back, out_dtype=x.dtype, use_fast_accum=True)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        g8, g_back = scaled(gradient, E5M2)
        w8, w_back = scaled(w, E4M3)
        x8, x_back = scaled(x, E4M3)
        split = dict(out_dtype=gradient.dtype, use_fast_accum=False)
        of_x = torch._scaled_mm(g8, w8.t().contiguous().t(), scale_a=g_back, scale_b=w_back, **split)
        of_w = torch._scaled_mm(g8.t().contiguous(), x8.t().contiguous().t(), scale_a=g_back, scale_b=x_back, **split)
        return of_x, of_w


class Linear8(nn.Linear):
    def forward(self, x):
        return Product8.apply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


def rotate(x, turn):
    """x: [batch, sequence, heads, head_dim]; turn: [sequence, head_dim / 2], complex."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn.view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


def repeat_keys(x, times):
    if times == 1:
        return x
    b, s, g, d = x.shape
    return x[:, :, :, None, :].expand(b, s, g, times, d).reshape(b, s, g * times, d)


class Block(nn.Module):
    def __init__(self, hidden, ffn, heads, kv_heads, head_dim, linear):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.wq = linear(hidden, heads * head_dim, bias=False)
        self.wk = linear(hidden, kv_heads * head_dim, bias=False)
        self.wv = linear(hidden, kv_heads * head_dim, bias=False)
        self.wo = linear(heads * head_dim, hidden, bias=False)
        self.w1 = linear(hidden, ffn, bias=False)
        self.w2 = linear(ffn, hidden, bias=False)
        self.w3 = linear(hidden, ffn, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)

    def forward(self, x, turn):
        b, s, _ = x.shape
        y = self.norm1(x)
        q, k, v = (w(y).view(b, s, -1, self.head_dim) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, turn), rotate(k, turn)
        k, v = (repeat_keys(t, self.heads // self.kv_heads) for t in (k, v))
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.wo(y.transpose(1, 2).contiguous().view(b, s, -1))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


SAVED = [getattr(torch.ops.aten, name).default
         for name in ("mm", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
                      "_scaled_dot_product_cudnn_attention", "max") if hasattr(torch.ops.aten, name)]


def keep_every_second():
    """Selective recomputation of operations: attention, largest values and every second product in 16 bits are kept.

    8-bit products run again.
    """
    count = {False: 0, True: 0}

    def policy(ctx, operation, *args, **kwargs):
        if operation == torch.ops.aten.mm.default:
            count[ctx.is_recompute] += 1
            if count[ctx.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operation in SAVED else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Recomputed(nn.Module):
    def __init__(self, block, recompute):
        super().__init__()
        self.block, self.recompute = block, recompute

    def forward(self, x, turn):
        if self.recompute == "operations":
            return checkpoint(self.block, x, turn, use_reentrant=False, context_fn=keep_every_second)
        if self.recompute == "full":
            return checkpoint(self.block, x, turn, use_reentrant=False)
        return self.block(x, turn)


class Llama(nn.Module):
    def __init__(self, layers, vocabulary, sequence, shape, linear, recompute):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, shape["hidden"])
        self.blocks = nn.ModuleList(Recomputed(Block(**shape, linear=linear), recompute) for _ in range(layers))
        self.norm = nn.RMSNorm(shape["hidden"], eps=1e-5)
        self.head = nn.Linear(shape["hidden"], vocabulary, bias=False)
        half = shape["head_dim"] // 2
        angle = torch.outer(torch.arange(sequence).float(), 500000.0 ** -(torch.arange(half).float() / half))
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.turn)
        return self.head(self.norm(x))


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


def training_step(layers, vocabulary, batch, sequence, shape, *, compiled, eight_bits, recompute, flash, where):
    """A function that runs one whole step: forward, backward, clipping, AdamW."""
    if not dist.is_initialized():
        store = dist.HashStore()
        dist.init_process_group("nccl" if where.type == "cuda" else "gloo", store=store, rank=0, world_size=1)
    with torch.device(where):
        model = Llama(layers, vocabulary, sequence, shape, Linear8 if eight_bits else nn.Linear, recompute)
    if compiled:
        for block in model.blocks:
            block.compile(fullgraph=True)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, block in enumerate(model.blocks):
        fully_shard(block, mp_policy=policy, reshard_after_forward=i + 1 < layers)
    fully_shard(model, mp_policy=policy)
    loss = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, foreach=True)
    tokens = torch.randint(vocabulary, (batch, sequence), device=where)
    labels = torch.randint(vocabulary, (batch, sequence), device=where)

    def execute():
        optimizer.zero_grad()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if flash else contextlib.nullcontext():
            logits = model(tokens)
        value = loss(logits, labels)
        del logits
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return value

    return execute
