#!/usr/bin/env python3
"""Writes tests/contract/reference/optimizers.json: parameters and states after a few updates, as published code computes them.

    python3 tests/contract/make_optimizers.py    # torch 2.11.0, transformers 4.47.1, lion-pytorch 0.2.5, schedulefree 1.4.1, bitsandbytes 0.50.2

Parameters and gradients are given by value() (tests/contract/optimizer_reference_test.cpp has the same in C++). A tensor is stored
as every STRIDE-th of its elements.
"""
import json
import math
import pathlib

import torch

OUT = pathlib.Path(__file__).parent / "reference" / "optimizers.json"
STRIDE = 17
MATRIX, LARGE, VECTOR = (24, 40), (65, 67), (50,)


def value(index, step):
    return math.sin(12.9898 * index + 78.233 * step) * (0.1 if step == 0 else 0.02 / step)


def tensor(shape, step):
    numel = math.prod(shape)
    return torch.tensor([value(i, step) for i in range(numel)], dtype=torch.float64).to(torch.float32).view(shape)


def stored(values):
    return [float(f"{x:.9g}") for x in values.detach().to(torch.float64).flatten()[::STRIDE].tolist()]


def run(make, shape, steps, rates=None):
    """The optimizer, and the parameter after `steps` updates."""
    parameter = torch.nn.Parameter(tensor(shape, 0))
    optimizer = make([parameter])
    for step in range(1, steps + 1):
        if rates:
            for group in optimizer.param_groups:
                group["lr"] = rates[step - 1]
        parameter.grad = tensor(shape, step)
        optimizer.step()
    return optimizer, parameter


def case(name, shape, settings, make, states=(), steps=4):
    optimizer, parameter = run(make, shape, steps)
    kept = optimizer.state[parameter]
    return dict(optimizer=name, shape=shape, settings=settings, steps=steps, parameter=stored(parameter),
                states={ours: stored(kept[theirs]) for ours, theirs in states})


def lion(parameters, **options):
    from lion_pytorch import Lion
    return Lion(parameters, **options)


def schedule_free(parameters, **options):
    import schedulefree
    optimizer = schedulefree.AdamWScheduleFree(parameters, foreach=False, **options)
    optimizer.train()
    return optimizer


def schedule_free_case(shape, **options):
    made = case("schedule_free_adamw", shape, options, lambda p: schedule_free(p, **options), [("z", "z"), ("exp_avg_sq", "exp_avg_sq")])
    optimizer, parameter = run(lambda p: schedule_free(p, **options), shape, made["steps"])
    optimizer.eval()
    made["average"] = stored(parameter)
    return made


def adafactor(parameters, **options):
    from transformers.optimization import Adafactor
    return Adafactor(parameters, relative_step=False, warmup_init=False, **options)


class Adam8bit:
    """The update of bitsandbytes on CPU: its reference in PyTorch (backends/triton/kernels_optim.py), with its quantiles."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        import bitsandbytes.functional as functional
        (self.parameter,), self.options, self.step_number = parameters, (lr, betas, eps, weight_decay), 0
        self.param_groups = []
        blocks = -(self.parameter.numel() // -256)
        code = {True: functional.create_dynamic_map(True), False: functional.create_dynamic_map(False)}
        self.map = code
        self.kept = {"exp_avg": torch.zeros(self.parameter.numel(), dtype=torch.uint8),
                     "exp_avg_sq": torch.zeros(self.parameter.numel(), dtype=torch.uint8),
                     "exp_avg_scale": torch.zeros(blocks), "exp_avg_sq_scale": torch.zeros(blocks)}
        self.state = {self.parameter: self.kept}

    def step(self):
        update = reference_8bit()
        lr, betas, eps, weight_decay = self.options
        self.step_number += 1
        update(self.parameter.data.view(-1), self.parameter.grad.view(-1), self.kept["exp_avg"], self.kept["exp_avg_sq"], *betas, 0.0, 0.0,
               eps, self.step_number, lr, self.map[True], self.map[False], self.kept["exp_avg_scale"], self.kept["exp_avg_sq_scale"],
               weight_decay, 1.0, False, optimizer_name="adam")


def reference_8bit():
    """optimizer_update_8bit_blockwise_pytorch, whose module needs Triton to be imported."""
    import bitsandbytes
    source = (pathlib.Path(bitsandbytes.__file__).parent / "backends/triton/kernels_optim.py").read_text(encoding="utf-8")
    begin, end = source.index("def _dequantize_blockwise_pytorch"), source.index("# Mixed torch + triton implementation")
    names = {"torch": torch, "math": math, "Optional": __import__("typing").Optional}
    exec(source[begin:end], names)  # pylint: disable=exec-used
    return names["optimizer_update_8bit_blockwise_pytorch"]


def main():
    states_8bit = [(name, name) for name in ("exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale")]
    cases = []
    for shape in (MATRIX, VECTOR):
        for options in (dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1), dict(lr=3e-4, betas=(0.95, 0.98), weight_decay=0.0)):
            cases.append(case("lion", shape, options, lambda p, o=options: lion(p, **o), [("exp_avg", "exp_avg")]))
        for options in (dict(lr=2e-3, betas=(0.9, 0.999), weight_decay=0.0), dict(lr=1e-2, betas=(0.95, 0.99), weight_decay=0.1)):
            cases.append(schedule_free_case(shape, **options))
        for options in (dict(lr=1e-2, weight_decay=0.0, scale_parameter=False), dict(lr=1e-2, weight_decay=0.1, scale_parameter=True),
                        dict(lr=1e-2, weight_decay=0.1, scale_parameter=False, clip_threshold=0.5, decay_rate=-0.6)):
            states = [("exp_avg_sq_row", "exp_avg_sq_row"), ("exp_avg_sq_column", "exp_avg_sq_col")] if len(shape) == 2 else [("exp_avg_sq", "exp_avg_sq")]
            cases.append(case("adafactor", shape, options, lambda p, o=options: adafactor(p, **o), states))
    for options in (dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0), dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)):
        cases.append(case("adamw_8bit", LARGE, options, lambda p, o=options: Adam8bit(p, **o), states_8bit))
    for shape in (MATRIX, (40, 24)):
        for options in (dict(lr=2e-2, weight_decay=0.1), dict(lr=2e-2, weight_decay=0.0, nesterov=False, adjust_lr_fn="match_rms_adamw")):
            cases.append(case("muon", shape, options, lambda p, o=options: torch.optim.Muon(p, **o), [("momentum_buffer", "momentum_buffer")]))
    import bitsandbytes.functional as functional
    maps = {name: [float(f"{x:.9g}") for x in functional.create_dynamic_map(signed).tolist()] for name, signed in (("signed", True), ("unsigned", False))}
    OUT.parent.mkdir(exist_ok=True)
    lines = ",\n  ".join(json.dumps(one) for one in cases)
    OUT.write_text(f'{{"stride": {STRIDE}, "maps": {json.dumps(maps)}, "cases": [\n  {lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
