#!/usr/bin/env python3
"""Writes a ledger with realistic runs, for the tests and the benchmark of `runner ui`.

    tests/ui/demo_ledger.py HOME [--runs N] [--points N] [--long N] [--long-points N] [--sweep N] [--seed N]

HOME/ledger.db gets the schema of schemas/ledger. --runs: number of runs (default 40); --points: points of each metric (default 400);
--long: the newest N runs have --long-points points of the loss (default 10,000). The curves are those of trainings: a fast descent, a plateau that depends on
the learning rate, noise that shrinks, spikes, and a run that diverges to NaN.
"""
import argparse
import glob
import hashlib
import json
import math
import os
import random
import sqlite3
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
APPLICATION_ID = 0x52554E52
NAMES = ["gpt_small", "gpt_small_wide", "llm_fsdp", "vision_digits", "tabular_iris", "finetune_chat", "lora_chat", "classify_messages"]
STRATEGIES = [("single", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 4), ("fsdp", 8), ("zero", 8), ("zero", 4)]
GIB = 1 << 30
SWEEP = """[sweep]
recipe = "recipe.toml"
method = "tpe"
metric = "val_loss"
goal = "min"
budget = { trials = 24 }

[sweep.space]
"optimizer.lr" = { log_uniform = [1e-4, 5e-2] }
"model.dim" = [256, 512, 768, 1024]
"model.dropout" = { uniform = [0.0, 0.3] }
"optimizer.name" = ["adamw", "lion"]
"""


def migrated(path):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    files = sorted(glob.glob(os.path.join(ROOT, "schemas/ledger/*.sql")))
    for file in files:
        with open(file, encoding="utf-8") as text:
            database.executescript(text.read())
    database.execute(f"PRAGMA user_version = {len(files)}")
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return database


class Demo:
    def __init__(self, home, seed):
        os.makedirs(home, exist_ok=True)
        self.home = home
        self.database = migrated(os.path.join(home, "ledger.db"))
        self.random = random.Random(seed)
        self.keys = {}
        self.now = time.time()

    def key(self, name):
        if name not in self.keys:
            self.keys[name] = self.database.execute("INSERT INTO key (name) VALUES (?)", (name,)).lastrowid
        return self.keys[name]

    def text(self, content):
        name = hashlib.md5(content.encode()).hexdigest()
        self.database.execute("INSERT OR IGNORE INTO config VALUES (?, ?)", (name, content))
        return name

    def config(self, name, strategy, ranks, lr, batch, dim, steps):
        return {
            "run": {"name": name, "seed": self.random.randrange(1000)},
            "model": {"name": "gpt", "n_layers": 12, "dim": dim, "n_heads": 12, "max_seq_len": 1024, "dropout": 0.1},
            "data": {"format": "text", "train": ["shakespeare.txt"], "seq_len": 1024, "shuffle": True},
            "optimizer": {"name": "adamw", "lr": lr, "betas": [0.9, 0.95], "weight_decay": self.random.choice([0.0, 0.01, 0.1])},
            "lr_scheduler": {"name": self.random.choice(["cosine", "linear"]), "warmup_steps": 100},
            "strategy": {"name": strategy, **({"sharding_strategy": "FULL_SHARD"} if strategy == "fsdp" else {})},
            "devices": {"accelerator": "cuda", "devices": ranks, "num_nodes": 1},
            "precision": {"mode": "bf16-mixed"},
            "train": {"max_steps": steps, "global_batch_size": batch, "micro_batch_size": max(1, batch // ranks), "log_every_n_steps": 10, "val_check_interval": steps // 10 or 1},
            "checkpoint": {"every_n_steps": steps // 5 or 1, "monitor": "val_loss"},
        }

    def curve(self, steps, points, lr, noise=0.05, diverges=None, spikes=()):
        """[(step, loss)]: what a training with this learning rate looks like."""
        speed, floor = 6.0 * math.sqrt(lr / 3e-3), 2.05 + 0.35 * abs(math.log10(lr / 2e-3))
        value, list_ = 0.0, []
        for i in range(points):
            step = 1 + i * (steps - 1) // max(1, points - 1)
            part = step / steps
            loss = floor + (10.8 - floor) * math.exp(-speed * 8 * part) + 0.5 * math.exp(-3 * part)
            value = 0.9 * value + self.random.gauss(0, noise * (0.4 + math.exp(-4 * part)))
            loss += value
            if i in spikes:
                loss += 2.2
            if diverges and part > diverges:
                loss = math.nan if part > diverges + 0.03 else loss + 8 * (part - diverges) / 0.03
            list_.append((step, loss))
        return list_

    def record(self, run, name, points):
        key = self.key(name)
        self.database.executemany("INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?)", ((run, key, step, None if math.isnan(value) else value) for step, value in points))
        finite = [value for _, value in points if not math.isnan(value)]
        last = points[-1][1]
        self.database.execute("INSERT INTO metric_last VALUES (?, ?, ?, ?, ?, ?)", (run, key, points[-1][0], None if math.isnan(last) else last, min(finite), max(finite)))

    def run(self, index, points, age, status=None, name=None, lr=None, sweep=None, tags=None, cheap=False):
        """Adds a run that began `age` seconds ago. Returns its row number, id and last validation loss."""
        rnd = self.random
        strategy, ranks = rnd.choice(STRATEGIES)
        name, lr = name or rnd.choice(NAMES), lr or 10 ** rnd.uniform(-4, -2)
        steps = max(points, rnd.choice([1000, 2000, 5000, 10000]))
        dim, batch = rnd.choice([512, 768, 1024]), rnd.choice([64, 128, 256])
        status = status or rnd.choices(["finished", "failed", "interrupted", "preempted", "lost"], [80, 9, 5, 3, 3])[0]
        config = self.config(name, strategy, ranks, lr, batch, dim, steps)
        done = 1.0 if status == "finished" else rnd.uniform(0.2, 0.9)
        reached = max(1, int(points * done))
        stamp = time.gmtime(self.now - age)
        id_ = time.strftime("%Y%m%d-%H%M%S-", stamp) + "".join("23456789abcdefghjkmnpqrstuvwxyz"[(index // 31**i) % 31] for i in range(4))
        step_seconds, memory = rnd.uniform(0.2, 0.9), rnd.uniform(20, 72) * GIB
        diverges = rnd.uniform(0.15, 0.6) if status == "failed" else None
        if diverges:
            reached = int(points * min(1, diverges + 0.05))
        loss = self.curve(steps, points, lr, 0.04, diverges, [rnd.randrange(points) for _ in range(rnd.choice([0, 0, 1, 3]))])[:reached]
        last_step, seconds = loss[-1][0], loss[-1][0] * step_seconds
        began = self.now - age
        ended = None if status == "running" else began + seconds
        parts = {"parameters": 0.16, "gradients": 0.16, "optimizer": 0.33, "activations": 0.27, "communication": 0.05, "gathered": 0.03}
        predicted = memory * rnd.uniform(0.93, 1.06)
        plan = {"strategy": strategy, "reason": f"the model fits with {strategy}", "rule": "named", "world_size": ranks, "micro_batch_size": max(1, batch // ranks), "accumulation": 1,
                "memory_bytes_per_rank": predicted, "memory_parts": {part: predicted * share for part, share in parts.items()}, "parameters": 124_000_000, "precision": "bf16-mixed",
                "step_seconds": step_seconds * rnd.uniform(0.85, 1.1), "step_seconds_error": 0.1, "notes": [], "options": config["strategy"],
                "traffic": [{"collective": "all_gather", "payload_bytes": 496e6, "wire_bytes": 434e6}, {"collective": "reduce_scatter", "payload_bytes": 248e6, "wire_bytes": 217e6}]}
        failure = {"kind": "nonfinite", "message": "the loss became NaN"} if status == "failed" else None
        annotations = {"predicted": {"memory_bytes_per_rank": predicted, "step_seconds": plan["step_seconds"], "step_seconds_error": 0.1}, "data_summary": "1 file with 37534 samples of 1024 tokens, and 1975 to validate"}
        if ended:
            annotations["measured"] = {"memory_bytes_per_rank": memory, "step_seconds": step_seconds, "tokens_per_s": batch * 1024 / step_seconds, "time_to_first_step_s": 4.2, "failure": failure, "restarts": 0, "status": status,
                                       "peak_memory_bytes_per_rank": [memory * rnd.uniform(0.97, 1) for _ in range(ranks)]}
        origins = {"optimizer.lr": f"recipes/{name}.toml:21:6", "train.max_steps": "--set train.max_steps", "optimizer.betas": "default", "strategy.name": f"recipes/{name}.toml:30:8", "precision.mode": "decided: the devices have bfloat16"}
        host = {"hostname": rnd.choice(["node-a", "node-b"]), "cpu": "AMD EPYC 9534", "cores": 64, "memory_bytes": 768 * GIB, "kernel": "6.1", "cuda": [{"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 * GIB}] * ranks}
        recipe = f'# {name}\n[run]\nname = "{name}"\n\n[model]\nname = "gpt"\ndim = {dim}\n\n[optimizer]\nname = "adamw"\nlr = {lr:.3g}\n'
        tags = tags if tags is not None else rnd.sample(["baseline", "paper", "ablation", "wide"], rnd.choice([0, 0, 1, 2]))
        git = {"commit": hashlib.sha1(name.encode()).hexdigest(), "branch": rnd.choice(["main", "warmup"]), "dirty": rnd.random() < 0.3, "diff_hash": None}
        folder = f"runs/{id_}"
        row = self.database.execute(
            "INSERT INTO run (id, name, status, strategy, world_size, started, ended, steps, exit_code, message, tags, notes, folder, working_directory, argv, build_id, git, host, "
            "recipe, resolved, config, origins, plan, annotations) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (id_, name, status, strategy, ranks, began, ended, last_step, 0 if status == "finished" else None if status == "running" else 1,
             "the loss became NaN at step %d; train.on_nonfinite = \"stop\"" % last_step if status == "failed" else "", json.dumps(tags), "", folder, "experiments", json.dumps(["runner", "run", f"recipes/{name}.toml"]),
             "0.1.0-demo", json.dumps(git), json.dumps(host), self.text(recipe), self.text(recipe), self.text(json.dumps(config)), self.text(json.dumps(origins)), self.text(json.dumps(plan)), json.dumps(annotations))).lastrowid
        self.record(row, "loss", loss)
        validation = None
        if not cheap:
            every = max(1, len(loss) // 10)
            val = [(step, value + 0.08 + rnd.gauss(0, 0.01)) for step, value in loss[every - 1::every] if not math.isnan(value)] or [(loss[0][0], loss[0][1])]
            validation = val[-1][1]
            self.record(row, "val_loss", val)
            self.record(row, "lr", [(step, lr * min(1, step / 100) * (0.5 + 0.5 * math.cos(math.pi * step / steps))) for step, _ in loss])
            self.record(row, "tokens_per_s", [(step, batch * 1024 / step_seconds * rnd.uniform(0.97, 1.02)) for step, _ in loss])
            self.record(row, "step_seconds", [(step, step_seconds * rnd.uniform(0.97, 1.04)) for step, _ in loss])
            self.record(row, "memory_bytes", [(step, memory) for step, _ in loss])
            self.record(row, "grad_norm", [(step, 0.4 + 3 * math.exp(-step / 200) + abs(rnd.gauss(0, 0.08))) for step, _ in loss])
            self.record(row, "tokens", [(step, step * batch * 1024.0) for step, _ in loss])
            self.record(row, "seconds", [(step, step * step_seconds) for step, _ in loss])
            self.record(row, "epoch", [(step, step * batch / 37534) for step, _ in loss])
            self.events(row, id_, folder, began, loss, step_seconds, status, ranks, steps)
            self.system(row, began, seconds, ranks, memory)
            if git["dirty"]:
                self.patch(folder, name)
        self.attempts(row, began, ended, strategy, ranks, host["hostname"], 2 if rnd.random() < 0.15 and not cheap else 1, last_step, status, config)
        if sweep:
            self.database.execute("INSERT INTO trial (sweep, number, draw, status, parameters, objective, run, step, tries, started, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)",
                                  (sweep[0], sweep[1], sweep[1], status if status in ("running", "failed") else "finished", json.dumps(sweep[2]), None if status == "failed" else sweep[3], row, last_step, began, ended))
        return row, id_, validation

    def lengthen(self, row, steps):
        """Replaces the loss of a run by `steps` points, made by SQLite: for many runs Python would take minutes."""
        key, floor = self.key("loss"), self.random.uniform(2, 3)
        self.database.execute("DELETE FROM metric WHERE run = ? AND key = ?", (row, key))
        self.database.execute("INSERT INTO metric WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?) "
                              "SELECT ?, ?, n, ? + 8.0 / (1 + n * 0.01) + (random() % 1000) * 0.0001 FROM i", (steps, row, key, floor))
        self.database.execute("INSERT OR REPLACE INTO metric_last SELECT run, key, max(step), value, min(value), max(value) FROM metric WHERE run = ? AND key = ?", (row, key))
        self.database.execute("UPDATE run SET steps = ? WHERE run = ?", (steps, row))

    def attempts(self, row, began, ended, strategy, ranks, host, number, last_step, status, config):
        alive = status == "running"
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot = file.read().strip()
        for i in range(number):
            start = began + (ended - began) * 0.45 * i if ended else began
            end = ended if i == number - 1 else start + ((ended or self.now) - began) * 0.4
            # A running run of the demo belongs to this host's first process, so that it is not found to be lost.
            self.database.execute(
                "INSERT INTO attempt (run, number, reason, from_step, host, boot_id, pid_namespace, pid, process_start, started, heartbeat, ended, strategy, world_size, argv, build_id, git, config) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (row, i + 1, "start" if i == 0 else "resume from checkpoints/step-%06d" % (last_step // 2), 0 if i == 0 else last_step // 2, "elsewhere" if alive else host, boot, "demo", 1, 0, start,
                 self.now + 365 * 86400 if alive else end, end, strategy, ranks, json.dumps(["runner", "run"]), "0.1.0-demo", "null", self.text(json.dumps(config))))

    def events(self, row, id_, folder, began, loss, step_seconds, status, ranks, steps):
        def event(at, event_kind, **fields):
            self.database.execute("INSERT INTO event (run, time, kind, fields) VALUES (?, ?, ?, ?)", (row, at, event_kind, json.dumps(fields)))

        for rank in range(ranks):
            event(began + 3, "ready", rank=rank, steps=steps, device=f"cuda:{rank}", pid=4000 + rank)
        for step in (int(loss[-1][0] * part) for part in (0.25, 0.5, 0.75, 1)):
            path = "checkpoints/step-%06d" % step
            self.database.execute("INSERT OR IGNORE INTO artifact (run, time, kind, path, fields) VALUES (?, ?, 'checkpoint', ?, ?)",
                                  (row, began + step * step_seconds, path, json.dumps({"step": step, "bytes": 1_490_000_000, "seconds": 1.3, "path": path})))
        text = "ROMEO.\nWhat light through yonder window breaks?"
        event(began + loss[-1][0] * step_seconds * 0.6, "sample", step=loss[len(loss) // 2][0], prompt="ROMEO.", text=text)
        self.file(folder, "artifacts/samples.txt", text)
        self.database.execute("INSERT INTO artifact (run, time, kind, path, fields) VALUES (?, ?, 'artifact', 'artifacts/samples.txt', ?)", (row, began + 50, json.dumps({"step": 1})))
        if status == "failed":
            event(began + loss[-1][0] * step_seconds, "failed", step=loss[-1][0], kind="nonfinite", message="the loss became NaN")
        else:
            blocks = [{"name": name, "forward_seconds": 0.1, "backward_seconds": 0.2} for name in ("embedding", "blocks.0", "head")]
            event(began + 60, "profile", step_seconds=1.0, phases={"data": 0.01, "forward": 0.3, "backward": 0.55, "update": 0.08, "collective": 0.06}, blocks=blocks,
                  collectives=[{"name": "all_gather", "of": "blocks.0", "bytes": 2e8, "seconds": 0.04}], outside={"validation": {"times": 10, "seconds": 4.2}})
            event(began + 61, "trace", path="/another/home/trace-rank-0.json", steps=[3, 4])  # the home has moved
            self.file(folder, "trace-rank-0.json", '{"traceEvents": []}')
        logs = os.path.join(self.home, folder, "logs")
        os.makedirs(logs, exist_ok=True)
        for rank in range(min(2, ranks)):
            with open(os.path.join(logs, f"rank-{rank}.log"), "w", encoding="utf-8") as file:
                for step, value in loss:
                    file.write(f"step {step}/{steps} loss {value:.4f} lr 1.0e-03 {1 / step_seconds:.1f} steps/s\n")
                    if step % 400 == 1:
                        file.write("warning: the data loader waited 0.3 s\n")
                if status == "failed":
                    file.write("error: the loss became NaN; the batch has samples 8123, 8190\n")

    def system(self, row, began, seconds, ranks, memory, count=240):
        """Readings of the machine, named as runner/devices/system_reader.cpp names them."""
        rnd = self.random
        for i in range(count):
            time_, part = began + i * seconds / count, i / count
            values = {"cpu/percent": 35 + 10 * math.sin(i / 9) + rnd.gauss(0, 3), "cpu/run_percent": 100 * ranks + rnd.gauss(0, 12), "memory/used_bytes": (210 + 20 * part) * GIB,
                      "memory/run_bytes": ranks * 6.5 * GIB, "disk/free_bytes": (900 - 40 * part) * GIB, "disk/run_read_bytes_per_s": max(0, rnd.gauss(2e7, 5e6)),
                      "disk/run_write_bytes_per_s": 1.2e9 if i % 48 == 47 else 2e4, "network/received_bytes_per_s": max(0, rnd.gauss(4e8, 6e7)), "network/sent_bytes_per_s": max(0, rnd.gauss(4e8, 6e7))}
            for gpu in range(min(4, ranks)):
                values |= {f"gpu/{gpu}/utilization_percent": min(100, max(0, rnd.gauss(94, 3))), f"gpu/{gpu}/memory_used_bytes": memory, f"gpu/{gpu}/power_watts": rnd.gauss(610, 25),
                           f"gpu/{gpu}/temperature_celsius": 38 + 30 * (1 - math.exp(-8 * part)) + gpu, f"gpu/{gpu}/clock_mhz": 1980 - 15 * (i % 40 > 35), f"gpu/{gpu}/throttled": float(i % 60 > 56)}
            self.database.executemany("INSERT INTO system_sample VALUES (?, ?, ?, ?)", ((row, self.key(key), time_, float(value)) for key, value in values.items()))

    def file(self, folder, name, text):
        path = os.path.join(self.home, folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def patch(self, folder, name):
        self.file(folder, "code.patch", f"diff --git a/recipes/{name}.toml b/recipes/{name}.toml\n--- a/recipes/{name}.toml\n+++ b/recipes/{name}.toml\n@@ -4,3 +4,3 @@ [train]\n max_steps = 2000\n-warmup_steps = 50\n+warmup_steps = 100\n log_every_n_steps = 10\n")

    def sweep(self, trials, age):
        parameters = ["optimizer.lr", "model.dim", "model.dropout", "optimizer.name"]
        space = {"method": "tpe", "metric": "val_loss", "goal": "min", "trials": trials, "source": SWEEP, "file": "sweeps/lr.toml"}
        row = self.database.execute("INSERT INTO sweep (id, name, status, seed, started, ended, space, recipe, folder, seconds) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?)",
                                    (time.strftime("%Y%m%d-%H%M%S-sw33", time.gmtime(self.now - age)), "lr_and_width", "finished", self.now - age, self.now - age + 5000, self.text(json.dumps(space)), self.text("[run]\n"), "sweeps/demo", 5000.0)).lastrowid
        for i in range(trials):
            lr = 10 ** self.random.uniform(-4, -1.5)
            point = dict(zip(parameters, (lr, self.random.choice([256, 512, 768, 1024]), round(self.random.uniform(0, 0.3), 3), self.random.choice(["adamw", "adamw", "lion"]))))
            value = 2.1 + 0.45 * abs(math.log10(lr / 2e-3)) + 80 / point["model.dim"] + abs(point["model.dropout"] - 0.1) + self.random.gauss(0, 0.03)
            self.run(100000 + i, 60, age - i * 200, status="failed" if lr > 0.02 else "finished", name=f"lr_and_width-{i:03d}", lr=lr, sweep=(row, i, point, value), tags=[])

    def finish(self):
        if self.database.execute("SELECT 1 FROM sqlite_master WHERE name = 'config_key'").fetchone():
            self.database.execute("INSERT OR IGNORE INTO config_key (name, path, numeric) SELECT replace(substr(fullkey, 3), '\"', ''), fullkey, max(tree.type IN ('integer', 'real')) FROM "
                                  "(SELECT DISTINCT config AS hash FROM run ORDER BY run DESC LIMIT 200) JOIN config USING (hash), json_tree(config.content) AS tree WHERE tree.type NOT IN ('object', 'null') AND "
                                  "instr(fullkey, '[') = 0 GROUP BY 1")
        self.database.execute("COMMIT")
        self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.database.close()


def make(home, runs=40, points=400, long=0, sweep=24, seed=7, long_points=10_000):
    demo = Demo(home, seed)
    demo.database.execute("BEGIN")
    newest = None
    if sweep:
        demo.sweep(sweep, 6 * 86400)
    for i in range(runs):
        age = (runs - i) * min(40000, 60 * 86400 / runs) + 5000
        left = runs - i
        newest = demo.run(i, points, age if left > 2 else 600.0 * left, status="running" if left <= 2 and not long else "finished" if left <= long else None, cheap=points < 50)
        if left <= long:
            demo.lengthen(newest[0], long_points)
    demo.finish()
    return newest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home")
    for option, default in (("runs", 40), ("points", 400), ("long", 0), ("long-points", 10_000), ("sweep", 24), ("seed", 7)):
        parser.add_argument(f"--{option}", type=int, default=default)
    print(make(**vars(parser.parse_args())))
