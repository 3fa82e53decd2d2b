"""Writes reference/nf4.json: matrices quantized as bitsandbytes 0.45 does (functional.py, backends/default/ops.py), with torch.

    python make_nf4_reference.py > reference/nf4.json

Values are packed bytes as hexadecimal text, and floats. Needs torch only.
"""
import json

import torch

NF4 = torch.tensor([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])


def dynamic_map():
    """The signed map of 8 bits: 7 ranges, whose numbers of values double."""
    values = [0.0, 1.0]
    for i in range(7):
        boundaries = torch.linspace(0.1, 1, 2**i + 1)
        means = (boundaries[:-1] + boundaries[1:]) / 2.0
        values += ((10 ** (-6 + i)) * means).tolist() + (-(10 ** (-6 + i)) * means).tolist()
    return torch.tensor(sorted(values))


def blockwise(values, levels, size):
    """The nearest levels' codes, and the largest absolute value of each block."""
    padded = torch.nn.functional.pad(values, (0, -len(values) % size)).view(-1, size)
    absmax = padded.abs().max(dim=1)[0]
    scaled = (padded * (1 / absmax.view(-1, 1))).nan_to_num(0).clamp(-1, 1).flatten()[: len(values)]
    return (scaled.view(-1, 1) - levels).abs().argmin(dim=1), absmax


def quantize(values):
    codes, absmax = blockwise(values, NF4, 64)
    packed = codes[::2] * 16 + codes[1::2]
    offset = absmax.mean()
    factor_codes, groups = blockwise(absmax - offset, dynamic_map(), 256)
    factors = dynamic_map()[factor_codes] * groups.repeat_interleave(256)[: len(factor_codes)] + offset
    return {"count": len(values), "packed": bytes(packed.tolist()).hex(), "absmax": absmax.tolist(), "mean": offset.item(),
            "groups": groups.tolist(), "factor_codes": bytes(factor_codes.tolist()).hex(), "factors": factors.tolist()}


def values(count, seed):
    """Made in the test, too, with the same bits: numbers without a pattern, some of them large, and a block of zeros."""
    i = torch.arange(count, dtype=torch.int64)
    values = ((i * i * 31 + i * 7919 * seed) % 2003 - 1001).float() / 1000 * torch.where(i % 97 == seed, 3.0, 0.02)
    return torch.where((i >= 128) & (i < 192), 0.0, values)


cases = [quantize(values(count, seed)) | {"seed": seed} for count, seed in [(64, 1), (1000, 2), (64 * 300 + 6, 3)]]
print(json.dumps({"map": dynamic_map().tolist(), "cases": cases}))
