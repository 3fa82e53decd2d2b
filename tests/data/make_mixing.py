#!/usr/bin/env python3
"""Makes tests/data/reference/mixing.json with timm 1.0.31: boxes and shares of CutMix, soft targets, their cross entropy and its
gradient. timm mixes a sample with that of the reversed batch, so each batch here has two rows, which are neighbours.

    python3 -m venv DIR && DIR/bin/pip install timm==1.0.31 torch numpy && DIR/bin/python tests/data/make_mixing.py
"""
import json
import os
from unittest import mock

import numpy as np
import torch
from timm.data.mixup import cutmix_bbox_and_lam, mixup_target
from timm.loss import SoftTargetCrossEntropy

OUTPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "mixing.json")


def boxes(random):
    for size in (8, 15, 224):
        for _ in range(6):
            lam, x, y = float(random.beta(1, 1)), int(random.integers(size)), int(random.integers(size))
            with mock.patch("numpy.random.randint", side_effect=[y, x]):  # timm draws the row first
                (top, bottom, left, right), share = cutmix_bbox_and_lam((3, size, size), lam)
            yield {"size": size, "lambda": lam, "x": x, "y": y, "left": int(left), "top": int(top),
                   "width": int(right - left), "height": int(bottom - top), "share": float(share)}


def losses(random):
    for smoothing in (0.0, 0.1):
        for lam in (0.3, 0.85):
            logits = torch.tensor(random.normal(0, 2, (2, 5)), dtype=torch.float32, requires_grad=True)
            labels = torch.tensor(random.integers(0, 5, 2))
            targets = mixup_target(labels, 5, lam, smoothing)
            loss = SoftTargetCrossEntropy()(logits, targets) * 2  # the sum of two rows
            loss.backward()
            yield {"smoothing": smoothing, "share": lam, "labels": labels.tolist(), "logits": logits.flatten().tolist(),
                   "targets": targets.flatten().tolist(), "loss": loss.item(), "gradient": logits.grad.flatten().tolist()}


def main():
    random = np.random.default_rng(0)
    values = {"boxes": list(boxes(random)), "losses": list(losses(random))}
    with open(OUTPUT, "w") as out:
        json.dump(values, out, indent=1)
        out.write("\n")


main()
