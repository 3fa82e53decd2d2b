"""scripts/bench/train with a fake runner: its calls of runner, and its figures from the timed steps."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Logs its command line and its inputs. Step i takes i seconds.
FAKE = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["FAKE_LOG"], "a") as log: log.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "run":
    recipe = open(sys.argv[2]).read()
    tokens = open(os.path.join(os.path.dirname(sys.argv[2]), "tokens.bin"), "rb").read()
    with open(os.environ["FAKE_LOG"], "a") as log: log.write(json.dumps([recipe, len(tokens), list(tokens[:8])]) + "\\n")
    print("talk")
    print(json.dumps({"schema": 1, "run": "id", "final_loss": 2.5, "peak_resident_bytes_per_rank": [3 << 20, 2 << 20], "time_to_first_step_s": 0.25}))
    sys.exit(int(os.environ.get("FAKE_EXIT", 0)))
print(json.dumps({"schema": 1, "points": [[step, float(step)] for step in range(1, 7)]}))
"""


class Bench(unittest.TestCase):
    def train(self, *arguments, **variables):
        with tempfile.TemporaryDirectory() as folder:
            runner, log = os.path.join(folder, "runner"), os.path.join(folder, "log")
            with open(runner, "w", encoding="utf-8") as file:
                file.write(FAKE)
            os.chmod(runner, 0o755)
            done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts/bench/train"), "--runner", runner, "--steps", "6", "--warmup", "2", *arguments],
                                  env=os.environ | {"FAKE_LOG": log} | variables, capture_output=True, text=True, timeout=60)
            with open(log, encoding="utf-8") as file:
                return done, [json.loads(line) for line in file]

    def test_figures_are_those_of_the_timed_steps(self):
        done, calls = self.train("--strategy", "fsdp", "--set", "train.max_restarts=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        tokens = 8 * 128 * 2  # per step, over both ranks
        self.assertEqual(json.loads(done.stdout), {
            "impl": "runner", "strategy": "fsdp", "mesh": None, "size": "tiny", "world": 2, "threads": 1, "tokens_per_s": round(tokens * 4 / (3 + 4 + 5 + 6), 1),
            "tokens_per_s_median": round(tokens / 5, 1), "peak_rss_mb": [3, 2], "time_to_first_step_s": 0.25, "final_loss": 2.5})
        (run, *options), (recipe, size, first), metrics, show = calls
        self.assertEqual((run, options[1:]), ("run", ["--json", "--set", "train.max_restarts=1"]))
        self.assertEqual(metrics, ["metrics", "id", "--name", "step_seconds", "--json"])
        self.assertEqual(show, ["show", "id", "--json"])
        self.assertEqual(size, 2 * (6 * tokens + 1))
        self.assertEqual(first, [0, 0, 8, 0, 18, 0, 30, 0])  # (7 i + i*i mod 13) mod 256
        for line in ("vocab_size = 256", "max_seq_len = 128", "cpu_processes = 2", "global_batch_size = 16", "max_steps = 6", 'name = "fsdp"'):
            self.assertIn(line + "\n", recipe)

    def test_ranks_along_an_axis_read_the_same_data(self):
        done, calls = self.train("--strategy", "single", "--mesh", "pipeline")
        self.assertEqual(done.returncode, 0, done.stderr)
        (_, *options), (recipe, _, _), _, _ = calls
        self.assertEqual(options[1:], ["--json", "--set", "devices.mesh={pipeline = 2}"])
        for line in ("cpu_processes = 2", "global_batch_size = 16", "micro_batch_size = 2"):  # 8 micro-batches
            self.assertIn(line + "\n", recipe)

    def test_a_run_that_fails_is_shown(self):
        done, _ = self.train(FAKE_EXIT="1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ended with 1", done.stderr)


if __name__ == "__main__":
    unittest.main()
