"""A folder with a recipe and a copy of runner whose worker is a shell script that reports one step. So only runner's own work
takes time."""
import os
import shutil
import stat

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEP = ('{"event":"step","step":1,"epoch":0,"loss":1.5,"lr":0.1,"grad_norm":1,"tokens":9,"seconds":1,"data_wait_s":0,'
        '"memory_bytes":1,"skipped":false}')
RECIPE = """[model]
name = "gpt"
n_layers = 1
dim = 32
n_heads = 2
max_seq_len = 32
[data]
format = "text"
train = ["text.txt"]
[devices]
accelerator = "cpu"
threads_per_rank = 1
[train]
max_steps = 1
global_batch_size = 4
"""


def prepare(folder):
    os.makedirs(os.path.join(folder, "bin"))
    runner = shutil.copy(os.path.join(ROOT, "build", "bin", "runner"), os.path.join(folder, "bin", "runner"))
    worker = os.path.join(folder, "bin", "runner-worker")
    with open(worker, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\necho '{STEP}' >/proc/self/fd/$RUNNER_EVENT_FD\n")
    os.chmod(worker, os.stat(worker).st_mode | stat.S_IXUSR)
    for name, text in {"text.txt": "words " * 2000, "base.toml": RECIPE}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    return runner
