#!/usr/bin/env python3
"""Writes reference/sums.json: what PyTorch's comm hooks make of some buckets on two ranks, for reference_test.cpp.

    tests/reducers/make_reference.py     # needs torch
"""
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization

# batched_powerSGD_hook passes a matrix to a function that asserts a batch of matrices (PyTorch 2.11).
ORTHOGONALIZE = power._orthogonalize
power._orthogonalize = lambda m, epsilon=0: ORTHOGONALIZE(m if m.dim() == 3 else m.unsqueeze(0), epsilon)

RANKS, STEPS, STRIDE = 2, 4, 7
SHAPES = [[12, 20], [7], [9, 16, 2], [5, 3]]
TOTAL = sum(torch.Size(shape).numel() for shape in SHAPES)
CASES = {
    "quantization_pertensor_hook": {},
    "quantization_perchannel_hook": {},
    "powerSGD_hook": dict(matrix_approximation_rank=1, start_powerSGD_iter=2),
    "powerSGD_hook rank 2": dict(matrix_approximation_rank=2, start_powerSGD_iter=2, random_seed=12345),
    "powerSGD_hook rank 3": dict(matrix_approximation_rank=3, start_powerSGD_iter=2, min_compression_rate=1),
    "powerSGD_hook no feedback": dict(matrix_approximation_rank=1, start_powerSGD_iter=1, use_error_feedback=False, warm_start=False),
    "batched_powerSGD_hook": dict(matrix_approximation_rank=2, start_powerSGD_iter=2),
}


def gradient(rank, step):
    """The test computes the same numbers."""
    i = torch.arange(TOTAL)
    return ((i * i * 37 + i * (rank * 11 + 5) + rank * 101 + step * 53) % 97 - 48).float() / 50


class Bucket:
    """Stands for torch's GradBucket."""

    def __init__(self, flat):
        self.flat = flat

    def buffer(self):
        return self.flat

    def set_buffer(self, flat):
        self.flat = flat

    def index(self):
        return 0

    def is_last(self):
        return True

    def gradients(self):
        parts, at = [], 0
        for shape in SHAPES:
            count = torch.Size(shape).numel()
            parts.append(self.flat[at : at + count].view(shape))
            at += count
        return parts


def quantized(flat, row):
    """One rank's bucket after quantization and back. PyTorch's hook itself needs NCCL, so its parts are called."""
    if row is None:
        observer = torch.ao.quantization.MinMaxObserver()
        observer(flat)
        scale, zero = observer.calculate_qparams()
        return quantization._dequantize_per_tensor_backend(quantization._quantize_per_tensor_backend(flat, scale, zero), scale, zero)
    rows = torch.nn.functional.pad(flat, (0, row - len(flat) % row)).view(-1, row)
    observer = torch.ao.quantization.PerChannelMinMaxObserver()
    observer(rows)
    scale, zero = observer.calculate_qparams()
    codes = quantization._quantize_per_channel_backend(rows, scale, zero)
    return quantization._dequantize_per_channel_backend(codes, scale, zero).flatten()[: len(flat)]


def run(name, options):
    kind = name.split()[0]
    if kind.startswith("quantization"):
        row = None if "pertensor" in kind else 512
        sums = [sum(quantized(gradient(rank, step), row) for rank in range(RANKS)) / RANKS for step in range(STEPS)]
        return [[round(number, 7) for number in one.tolist()[::STRIDE]] for one in sums]
    hook, state = getattr(power, kind), power.PowerSGDState(process_group=None, **options)
    results = []
    for step in range(STEPS):
        bucket = Bucket(gradient(dist.get_rank(), step))
        reduced = hook(state, bucket).wait()
        reduced = reduced[0] if isinstance(reduced, (list, tuple)) else reduced
        results.append([round(number, 7) for number in reduced.tolist()[::STRIDE]])
    return results


def rank_main(rank, file):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29731")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    cases = {name: {"options": options, "sums": run(name, options)} for name, options in CASES.items()}
    if rank == 0:
        with open(file, "w", encoding="utf-8") as out:
            json.dump(cases, out)
            out.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, (os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "sums.json"),), nprocs=RANKS)
