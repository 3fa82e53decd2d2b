#!/usr/bin/env python3
"""Writes tests/config/reference/schedules.json: factors on the learning rate as the schedules of Transformers and PyTorch compute them.

    PYTHONPATH=.deps/transformers /usr/bin/python3 tests/config/make_schedules.py    # transformers 4.47.1, torch 1.13

A schedule of Transformers is a function of the step. Here, optimizer step k (from 1) has its value at k, so that the last step has the
last value. Cycles of PyTorch have their value at step k - 1 after warm-up, and OneCycleLR at step k - 1, as PyTorch itself uses them.
"""
import json
import pathlib

import torch
from transformers import optimization

OUT = pathlib.Path(__file__).parent / "reference" / "schedules.json"
MAX_STEPS = 60


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def of_transformers(make, **options):
    """The factors of steps 1 to MAX_STEPS + 5."""
    schedule = make(optimizer(), **options).lr_lambdas[0]
    return [schedule(step) for step in range(1, MAX_STEPS + 6)]


def of_torch(make, steps):
    schedule = make(optimizer())
    factors = []
    for _ in range(steps):
        factors.append(schedule.get_last_lr()[0])
        schedule.optimizer.step()
        schedule.step()
    return factors


def restarts(first, factor, low):
    return of_torch(lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=first, T_mult=factor, eta_min=low), MAX_STEPS)


def one_cycle(**options):
    return of_torch(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=MAX_STEPS, cycle_momentum=False, **options),
                    MAX_STEPS)


def wsd(decay, low, warmup=7, decay_steps=20):
    """transformers 4.47.1 has cosine decay only; the formulas of the other shapes are those of 4.57.1."""
    if decay == "cosine":
        return of_transformers(optimization.get_wsd_schedule, num_warmup_steps=warmup, num_decay_steps=decay_steps,
                               num_stable_steps=MAX_STEPS - warmup - decay_steps, min_lr_ratio=low)
    factors = []
    for step in range(1, MAX_STEPS + 6):
        if step < warmup:
            factors.append(step / warmup)
        elif step < MAX_STEPS - decay_steps:
            factors.append(1.0)
        elif step < MAX_STEPS:
            progress = (step - MAX_STEPS + decay_steps) / decay_steps
            factor = 1 - progress if decay == "linear" else 1 - progress**0.5
            factors.append(max(0.0, factor * (1.0 - low) + low))
        else:
            factors.append(low)
    return factors


def main():
    end = dict(num_warmup_steps=7, num_training_steps=MAX_STEPS)
    cases = [
        dict(settings=dict(name="linear", warmup_steps=7), factors=of_transformers(optimization.get_linear_schedule_with_warmup, **end)),
        dict(settings=dict(name="cosine", warmup_steps=7), factors=of_transformers(optimization.get_cosine_schedule_with_warmup, **end)),
        dict(settings=dict(name="cosine", warmup_steps=7, min_lr_ratio=0.1),
             factors=of_transformers(optimization.get_cosine_with_min_lr_schedule_with_warmup, min_lr_rate=0.1, **end)),
        dict(settings=dict(name="constant", warmup_steps=7),
             factors=of_transformers(optimization.get_constant_schedule_with_warmup, num_warmup_steps=7)),
        dict(settings=dict(name="inverse_sqrt", warmup_steps=7),
             factors=of_transformers(optimization.get_inverse_sqrt_schedule, num_warmup_steps=7)),
        dict(settings=dict(name="inverse_sqrt", warmup_steps=7, timescale=30),
             factors=of_transformers(optimization.get_inverse_sqrt_schedule, num_warmup_steps=7, timescale=30)),
        dict(settings=dict(name="inverse_sqrt"), factors=of_transformers(optimization.get_inverse_sqrt_schedule, num_warmup_steps=0)),
    ]
    for power, low in ((1.0, 0.0), (2.0, 0.05), (0.5, 0.2)):
        cases.append(dict(settings=dict(name="polynomial", warmup_steps=7, power=power, min_lr_ratio=low),
                          factors=of_transformers(optimization.get_polynomial_decay_schedule_with_warmup, lr_end=low, power=power, **end)))
    for decay in ("linear", "cosine", "1-sqrt"):
        for low in (0.0, 0.1):
            cases.append(dict(settings=dict(name="wsd", warmup_steps=7, decay_steps=20, decay_type=decay, min_lr_ratio=low),
                              factors=wsd(decay, low)))
    for first, factor, low in ((10, 1, 0.0), (5, 2, 0.1), (4, 3, 0.0)):
        settings = dict(name="cosine_with_restarts", cycle_steps=first, cycle_factor=factor, min_lr_ratio=low)
        factors = restarts(first, factor, low)
        cases.append(dict(settings=settings, factors=factors))
        warm = [step / 7 for step in range(1, 8)]
        cases.append(dict(settings=dict(settings, warmup_steps=7), factors=warm + factors))
    for options in ({}, dict(pct_start=0.1), dict(pct_start=0.5, div_factor=10.0, final_div_factor=100.0), dict(anneal_strategy="linear")):
        cases.append(dict(settings=dict(name="one_cycle", **options), factors=one_cycle(**options)))
    for case in cases:
        case["factors"] = [float(f"{factor:.12g}") for factor in case["factors"]]
    OUT.parent.mkdir(exist_ok=True)
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    OUT.write_text(f'{{"max_steps": {MAX_STEPS}, "cases": [\n  {lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
