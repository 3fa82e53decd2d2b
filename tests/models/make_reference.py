#!/usr/bin/env python3
"""Writes the tables in tests/models/reference: losses of plain PyTorch over 20 AdamW steps, for models whose weights and tokens
are given by formulas (tests/support/hashed_weights.hpp has the same formulas in C++).

    python tests/models/make_reference.py          # needs torch 2.11, nothing else; CPU, fp32, one thread

A table contains the [model] keys of a recipe, the formula of the data, the optimizer and the losses. A loss is the mean over all
tokens of the step's batch, before the update. Weight decay applies to every tensor. `runner run` reads the same data with
data.shuffle = false.
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).parent / "reference"
STEPS = 20
OPTIMIZER = dict(name="adamw", lr=1e-3, weight_decay=0.01, betas=[0.9, 0.999], eps=1e-8)
TOKEN_RULE = "token(i) = (7 i + (i i mod 13)) mod vocab_size; sample k is tokens k seq_len to (k + 1) seq_len; step s takes samples from s sequences on"


def hash32(h):
    for _ in range(2):
        h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return h ^ (h >> 16)


def hashed(key, *shape):
    h = hash32((torch.arange(math.prod(shape)) + hash32(key + 1)) & 0xFFFFFFFF)
    return ((h.double() / 2**32 - 0.5) * (2 * 0.02 * 3**0.5)).float().view(shape).requires_grad_()


def ones(n):
    return torch.ones(n, requires_grad=True)


def zeros(n):
    return torch.zeros(n, requires_grad=True)


def batch(step, data, vocab):
    rows, length = data["sequences"], data["seq_len"]
    start = (step * rows + torch.arange(rows)).view(-1, 1) * length
    i = start + torch.arange(length + 1)
    t = (7 * i + (i * i) % 13) % vocab
    return t[:, :-1], t[:, 1:]


def attention(q, k, v):
    """Attention without a fused kernel. q is [B, H, T, D], k and v are [B, KV, T, D]."""
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    future = torch.ones(q.size(-2), q.size(-2), dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(-1) @ v


class Gpt:
    def __init__(self, c):
        d, self.c = c["dim"], c
        self.tokens, self.positions = hashed(0, c["vocab_size"], d), hashed(1, c["max_seq_len"], d)
        self.blocks = []
        for layer in range(c["n_layers"]):
            k = 100 * (layer + 1)
            self.blocks.append([ones(d), zeros(d), hashed(k, 3 * d, d), zeros(3 * d), hashed(k + 1, d, d), zeros(d),
                                ones(d), zeros(d), hashed(k + 2, 4 * d, d), zeros(4 * d), hashed(k + 3, d, 4 * d), zeros(d)])
        self.norm = [ones(d), zeros(d)]
        self.head = self.tokens if c["tie_embeddings"] else hashed(2, c["vocab_size"], d)

    def parameters(self):
        tied = [] if self.c["tie_embeddings"] else [self.head]
        return [self.tokens, self.positions, *sum(self.blocks, []), *self.norm, *tied]

    def logits(self, ids):
        c, (b, t), d = self.c, ids.shape, self.c["dim"]
        x = self.tokens[ids] + self.positions[:t]
        for n1, n1b, qkv, qkvb, out, outb, n2, n2b, up, upb, down, downb in self.blocks:
            h = F.linear(F.layer_norm(x, (d,), n1, n1b, c["norm_eps"]), qkv, qkvb)
            q, k, v = (s.view(b, t, c["n_heads"], -1).transpose(1, 2) for s in h.split(d, -1))
            x = x + F.linear(attention(q, k, v).transpose(1, 2).reshape(b, t, d), out, outb)
            h = F.linear(F.layer_norm(x, (d,), n2, n2b, c["norm_eps"]), up, upb)
            x = x + F.linear(F.gelu(h, approximate="tanh" if c["activation"] == "gelu_tanh" else "none"), down, downb)
        return F.linear(F.layer_norm(x, (d,), *self.norm, c["norm_eps"]), self.head)


class Llama:
    def __init__(self, c):
        d, hidden, self.c = c["dim"], c["hidden_dim"], c
        kv = d // c["n_heads"] * c["n_kv_heads"]
        self.tokens = hashed(0, c["vocab_size"], d)
        self.blocks = []
        for layer in range(c["n_layers"]):
            k = 100 * (layer + 1)
            self.blocks.append([ones(d), hashed(k, d, d), hashed(k + 1, kv, d), hashed(k + 2, kv, d), hashed(k + 3, d, d),
                                ones(d), hashed(k + 4, hidden, d), hashed(k + 5, hidden, d), hashed(k + 6, d, hidden)])
        self.norm = ones(d)
        self.head = self.tokens if c["tie_embeddings"] else hashed(2, c["vocab_size"], d)

    def parameters(self):
        tied = [] if self.c["tie_embeddings"] else [self.head]
        return [self.tokens, *sum(self.blocks, []), self.norm, *tied]

    def rms_norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["norm_eps"]) * w

    def angles(self, length):
        c, head_dim = self.c, self.c["dim"] // self.c["n_heads"]
        frequency = 1.0 / c["rope_theta"] ** (torch.arange(0, head_dim, 2).double() / head_dim)
        if "rope_scaling" in c:  # as transformers' _compute_llama3_parameters
            s = c["rope_scaling"]
            original, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
            wavelength = 2 * math.pi / frequency
            smooth = (original / wavelength - low) / (high - low)
            between = (1 - smooth) * frequency / s["factor"] + smooth * frequency
            frequency = torch.where(wavelength > original / low, frequency / s["factor"],
                                    torch.where(wavelength < original / high, frequency, between))
        angle = torch.outer(torch.arange(length).double(), frequency)
        return torch.cat([angle, angle], -1)

    def rotate(self, x):
        angle = self.angles(x.size(-2))
        a, b = x.chunk(2, -1)
        return x * angle.cos().float() + torch.cat([-b, a], -1) * angle.sin().float()

    def logits(self, ids):
        c, (b, t), d = self.c, ids.shape, self.c["dim"]
        x = self.tokens[ids]
        for n1, wq, wk, wv, wo, n2, w1, w3, w2 in self.blocks:
            h = self.rms_norm(x, n1)
            q, k, v = (F.linear(h, w).view(b, t, -1, d // c["n_heads"]).transpose(1, 2) for w in (wq, wk, wv))
            h = attention(self.rotate(q), self.rotate(k), v)
            x = x + F.linear(h.transpose(1, 2).reshape(b, t, d), wo)
            h = self.rms_norm(x, n2)
            x = x + F.linear(F.silu(F.linear(h, w1)) * F.linear(h, w3), w2)
        return F.linear(self.rms_norm(x, self.norm), self.head)


def train(config, data):
    model = {"gpt": Gpt, "llama": Llama}[config["name"]](config)
    kw = {k: v for k, v in OPTIMIZER.items() if k != "name"}
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, **kw)
    losses = []
    for step in range(STEPS):
        ids, targets = batch(step, data, config["vocab_size"])
        loss = F.cross_entropy(model.logits(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


TINY = dict(vocab_size=96, n_layers=2, dim=32, n_heads=4, max_seq_len=24, norm_eps=1e-5)
SCALING = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
PEER = dict(name="gpt", vocab_size=256, n_layers=4, dim=128, n_heads=4, max_seq_len=128, norm_eps=1e-5, activation="gelu",
            tie_embeddings=False)
TABLES = {
    "gpt": (dict(name="gpt", **TINY, activation="gelu_tanh", tie_embeddings=True), dict(sequences=12, seq_len=24)),
    "gpt_untied": (dict(name="gpt", **TINY, activation="gelu", tie_embeddings=False), dict(sequences=12, seq_len=24)),
    "llama": (dict(name="llama", **TINY, n_kv_heads=2, hidden_dim=88, rope_theta=10000.0, rope_scaling=SCALING,
                   tie_embeddings=False), dict(sequences=12, seq_len=24)),
    "llama_tied": (dict(name="llama", **TINY, n_kv_heads=4, hidden_dim=88, rope_theta=10000.0, tie_embeddings=True),
                   dict(sequences=12, seq_len=24)),
    "peer_tiny": (PEER, dict(sequences=12, seq_len=128)),
}

torch.set_num_threads(1)
OUT.mkdir(exist_ok=True)
for name, (config, data) in TABLES.items():
    table = dict(model=config, data=dict(tokens=TOKEN_RULE, **data), optimizer=OPTIMIZER, torch=torch.__version__,
                 losses=train(config, data))
    (OUT / f"{name}.json").write_text(json.dumps(table, indent=1) + "\n")
    print(name, *(f"{loss:.7f}" for loss in table["losses"]))
