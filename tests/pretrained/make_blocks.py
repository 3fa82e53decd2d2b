"""Writes reference/blocks.json: blocks of each data type of GGUF, and the floats that the gguf package (ggml's) makes of them.

    python make_blocks.py        # needs numpy and gguf

Each type has two blocks of random bytes. The scales (halves) are small finite numbers.
"""
import json
import os

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

# The places of halves in a block.
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
          T.Q5_K: [0, 2], T.Q6_K: [208], T.F16: [0], T.BF16: []}
BYTES = {T.Q4_0: 18, T.Q4_1: 20, T.Q5_0: 22, T.Q5_1: 24, T.Q8_0: 34, T.Q2_K: 84, T.Q3_K: 110, T.Q4_K: 144, T.Q5_K: 176, T.Q6_K: 210,
         T.F16: 2, T.BF16: 2}
random = np.random.default_rng(11)
table = {}
for kind, size in BYTES.items():
    count = 16 if size == 2 else 2
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for place in HALVES[kind]:
        blocks[:, place:place + 2] = random.normal(0, 0.05, (count, 1)).astype(np.float16).view(np.uint8)
    if kind == T.BF16:
        blocks = (random.normal(0, 1, (count, 1)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    values = dequantize(blocks, kind).astype(np.float32).reshape(-1)
    assert np.isfinite(values).all()
    table[kind.name] = {"blocks": blocks.tobytes().hex(), "floats": values.tobytes().hex()}
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "blocks.json")
with open(path, "w") as file:
    json.dump(table, file, indent=1)
    file.write("\n")
