"""GPT's layers written after Megatron-LM's code (`--transformer-impl local`, fp16), and a whole step of them, on one device.

Learnt from NVIDIA/Megatron-LM, core/tensor_parallel/layers.py, core/transformer/, core/fusions/ and core/optimizer/: the bias of
queries, keys and values is a kernel of its own, biases of the other products are fused with what follows them; unfused attention
writes its scores, their softmax and what dropout leaves of it; gradients of weights are summed by the product that makes them, into a
buffer of the weights' format (fp16, where no flag asks for 32 bits); a step in fp16 copies gradients to 32 bits, looks for infinite
ones while it takes the loss scale out, takes the norm and copies weights back. Fused kernels of that code (softmax under a causal
mask; bias and GELU; bias, dropout and residual) are PyTorch's compiler's here, and Adam is PyTorch's.
"""

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F


def causal_softmax(scores):
    s = scores.shape[-1]
    keys = torch.arange(s, device=scores.device)
    return scores.masked_fill(keys[None, :] > keys[:, None], -math.inf).softmax(-1)


def bias_gelu(x, bias):
    return F.gelu(x + bias, approximate="tanh")


def bias_dropout_add(x, bias, residual, rate, training):
    return residual + F.dropout(x + bias, rate, training)


def fused_kernels(cuda):
    """The three, compiled."""
    compiled = functools.partial(torch.compile, dynamic=False) if cuda else (lambda function: function)
    return {"softmax": compiled(causal_softmax), "gelu": compiled(bias_gelu), "add": compiled(bias_dropout_add)}


class Product(torch.autograd.Function):
    """y = x w^T, x: [..., k], w: [n, k]; the gradient of w is added to w.main_grad."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.matmul(x, w.t())

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        of_x = gradient.matmul(w)
        w.main_grad.addmm_(gradient.flatten(0, -2).t(), x.flatten(0, -2))
        return of_x, None


class Linear(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, k).normal_(0, 0.02))
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return Product.apply(x, self.weight)


class Layer(nn.Module):
    """x: [sequence, batch, hidden]."""

    def __init__(self, hidden, heads, flash, dropout, fused):
        super().__init__()
        self.heads, self.width, self.flash, self.dropout, self.fused = heads, hidden // heads, flash, dropout, fused
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = Linear(hidden, 3 * hidden), Linear(hidden, hidden)
        self.up, self.down = Linear(hidden, 4 * hidden), Linear(4 * hidden, hidden)

    def attention(self, x):
        s, b, _ = x.shape
        q, k, v = x.view(s, b, self.heads, 3 * self.width).split(self.width, dim=-1)
        if self.flash:
            q, k, v = (t.permute(1, 2, 0, 3).contiguous() for t in (q, k, v))
            y = torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v, self.dropout, True)[0]
            return y.permute(2, 0, 1, 3).reshape(s, b, -1)
        q, k, v = (t.reshape(s, b * self.heads, self.width) for t in (q, k, v))
        scores = torch.empty(b * self.heads, s, s, dtype=x.dtype, device=x.device)
        scores = torch.baddbmm(scores, q.transpose(0, 1), k.permute(1, 2, 0), beta=0.0, alpha=1 / math.sqrt(self.width))
        weights = F.dropout(self.fused["softmax"](scores), self.dropout, True)
        y = torch.bmm(weights, v.transpose(0, 1))
        return y.view(b, self.heads, s, self.width).permute(2, 0, 1, 3).contiguous().view(s, b, -1)

    def forward(self, x):
        y = self.qkv(self.norm1(x)) + self.qkv.bias
        x = self.fused["add"](self.out(self.attention(y)), self.out.bias, x, self.dropout, True)
        y = self.fused["gelu"](self.up(self.norm2(x)), self.up.bias)
        return self.fused["add"](self.down(y), self.down.bias, x, self.dropout, True)


class Loss(torch.autograd.Function):
    """Kernels of Megatron's cross entropy over a cut vocabulary, one after another, on 32-bit logits: [tokens, vocabulary]."""

    @staticmethod
    def forward(ctx, logits, labels):
        logits = logits - logits.max(dim=-1)[0][:, None]
        rows = torch.arange(len(labels), device=labels.device)
        predicted = logits[rows, labels].clone()
        weights = torch.exp(logits)
        total = weights.sum(dim=-1)
        weights.div_(total[:, None])
        ctx.save_for_backward(weights, labels, rows)
        return torch.log(total) - predicted

    @staticmethod
    def backward(ctx, gradient):
        weights, labels, rows = ctx.saved_tensors
        weights[rows, labels] -= 1
        return weights.mul_(gradient[:, None]), None


class Gpt(nn.Module):
    def __init__(self, layers, vocabulary, sequence, hidden, heads, flash, dropout, fused):
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(vocabulary, hidden).normal_(0, 0.02))
        self.places = nn.Parameter(torch.empty(sequence, hidden).normal_(0, 0.02))
        self.layers = nn.ModuleList(Layer(hidden, heads, flash, dropout, fused) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.dropout = dropout

    def forward(self, tokens, labels):
        """tokens, labels: [batch, sequence]; logits stay [sequence, batch, vocabulary]."""
        x = (F.embedding(tokens, self.tokens) + self.places).transpose(0, 1).contiguous()
        x = F.dropout(x, self.dropout, True)
        for layer in self.layers:
            x = layer(x)
        logits = Product.apply(self.norm(x), self.tokens).float()
        return Loss.apply(logits.flatten(0, 1), labels.t().flatten()).mean()


def training_step(layers, vocabulary, batch, sequence, hidden, heads, micro_batches, *, flash, dropout, part, where):
    """A function that runs one step, or a `part` of it: `forward` and `backward` (of one micro-batch), `update`, `step`."""
    cuda = where.type == "cuda"
    dtype = torch.float16 if cuda else torch.float32
    model = Gpt(layers, vocabulary, sequence, hidden, heads, flash, dropout, fused_kernels(cuda)).to(where, dtype)
    weights = list(model.parameters())
    buffer = torch.zeros(sum(w.numel() for w in weights), device=where, dtype=dtype)
    at = 0
    for w in weights:
        w.main_grad = buffer[at : at + w.numel()].view(w.shape)
        at += w.numel()
        if w.dim() == 1 or w is model.tokens or w is model.places:
            # Gradients that autograd makes are added by a hook, as Megatron's gradient buffer does.
            w.register_hook(lambda gradient, w=w: w.main_grad.add_(gradient))
    masters = [w.detach().float().clone() for w in weights]
    for master in masters:
        master.requires_grad_()
    optimizer = torch.optim.AdamW(masters, lr=1e-4, **(dict(fused=True) if cuda else {}))
    tokens, labels = (torch.randint(vocabulary, (batch, sequence), device=where) for _ in range(2))
    scale = torch.ones(1, device=where)

    def passes(forward_only=False):
        loss = model(tokens, labels)
        if not forward_only:
            (scale * loss / micro_batches).backward()
            for w in weights:
                w.grad = None

    def update():
        gradients = [w.main_grad.float() for w in weights]
        found = torch.zeros(1, device=where)
        if cuda:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, 1 / scale)
        if found.item() > 0:
            return
        norms = torch._foreach_norm(gradients) if cuda else [torch.linalg.vector_norm(g) for g in gradients]
        if torch.stack(norms).norm().item() > 1e9:  # clipped above that
            return
        for master, gradient in zip(masters, gradients):
            master.grad = gradient
        optimizer.step()
        for master in masters:
            master.grad = None
        with torch.no_grad():
            torch._foreach_copy_(weights, masters) if cuda else [w.copy_(m) for w, m in zip(weights, masters)]

    def step():
        buffer.zero_()
        for _ in range(micro_batches):
            passes()
        update()

    def forward():
        with torch.no_grad():
            passes(forward_only=True)

    return {"step": step, "update": update, "forward": forward, "passes": passes}[part]
