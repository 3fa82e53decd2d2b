"""scripts/gpu_check with fake programs: its table, what it does after a failure, and what it needs."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# A variable FAKE_NAME replaces the behaviour named in it.
RUNNER = """#!/usr/bin/env python3
import json, os, sys
def fake(name, value): return json.loads(os.environ.get("FAKE_" + name, "null")) or value
with open(os.environ["FAKE_LOG"], "a") as log: log.write(json.dumps(sys.argv[1:]) + "\\n")
verb, settings = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if verb == "doctor":
    print(json.dumps({"facts": {"cuda": fake("GPUS", []), "cuda_module": fake("MODULE", True), "cuda_problem": "no NVIDIA driver"}}))
elif verb == "run":
    if settings.get("strategy") == fake("BROKEN", ""):
        print("error: this strategy is broken", file=sys.stderr)
        sys.exit(1)
    on = settings["devices.accelerator"]
    print("progress")
    print(json.dumps({"run": on, "final_loss": fake("LOSS", 3.5), "steps": 100, "tokens_per_s": 12345.6}))
elif verb == "resume":
    print(json.dumps({"final_loss": fake("RESUMED", 3.5)}))
elif verb == "metrics":
    print(json.dumps({"points": [[1, 5.0], [2, 4.0 if sys.argv[2] == "cpu" else fake("ON_GPU", 4.0)]]}))
elif verb == "show":
    work = {"product FLOPs": 3e12, "attention FLOPs": 1e12}
    print(json.dumps({"predicted": fake("PREDICTED", {"memory_bytes_per_rank": 1000 << 20, "step_seconds": 0.1, "step": {"load": {"work": work}}}),
                      "measured": fake("MEASURED", {"memory_bytes_per_rank": 950 << 20, "step_seconds": 0.1})}))
"""
TESTS = """#!/usr/bin/env python3
import os, sys, time
if "--list-tests" in sys.argv:
    print("strategies train, all of them\\nmemory [of a rank]")
    sys.exit(int(os.environ.get("FAKE_LIST", 0)))
name = sys.argv[1]
assert name in ("strategies train\\\\, all of them", "memory \\\\[of a rank\\\\]"), name
if name.startswith("memory"):
    how = os.environ.get("FAKE_TEST", "")
    if how == "skip": print("x.cpp:1: SKIPPED:\\nexplicitly with message:\\n  no CUDA device here\\n"); sys.exit(4)
    if how == "crash": os.abort()
    if how == "fail": print("CHECK( 1 == 2 )\\nassertions: 3 | 2 passed | 1 failed"); sys.exit(1)
    if how == "none": print("No test cases matched"); sys.exit(0)
print("All tests passed (7 assertions in 1 test case)")
"""
PRODUCTS = """#!/usr/bin/env python3
import json, os
for dtype, rate in (("fp32", 5e13), ("fp16", 7e13), ("bf16", 8e13)):
    print(json.dumps({"dtype": dtype, "flops_per_s": rate, "fraction_of_peak": float(os.environ.get("FAKE_FRACTION", 0.7))}))
"""
GPU = [{"name": "NVIDIA H100"}]


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.programs = os.path.join(self.folder, "bin")
        os.mkdir(self.programs)
        for name, text in (("runner", RUNNER), ("test_cuda", TESTS), ("test_device", TESTS), ("bench_products", PRODUCTS)):
            path = os.path.join(self.programs, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)

    def check(self, *arguments, gpus=GPU, **fakes):
        variables = {f"FAKE_{name}": value if isinstance(value, str) else json.dumps(value) for name, value in fakes.items()}
        variables |= {"FAKE_GPUS": json.dumps(gpus), "FAKE_LOG": os.path.join(self.folder, "calls")}
        return subprocess.run([sys.executable, os.path.join(ROOT, "scripts/gpu_check"), "--programs", self.programs, *arguments],
                              env=os.environ | variables, cwd=self.folder, capture_output=True, text=True, timeout=100)

    def rows(self, *arguments, **fakes):
        done = self.check("--json", *arguments, **fakes)
        result = json.loads(done.stdout)
        return done.returncode, {row["check"]: (row["result"], row["figure"]) for row in result["checks"]}

    def failures(self, *arguments, **fakes):
        code, rows = self.rows(*arguments, **fakes)
        self.assertEqual(code, 1)
        return {name: figure for name, (result, figure) in rows.items() if result != "passed"}

    def test_everything_passes(self):
        done = self.check()
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, "devices: NVIDIA H100"), done.stderr)
        code, rows = self.rows()
        self.assertEqual(code, 0)
        self.assertEqual(rows["test: strategies train, all of them"], ("passed", "7 assertions"))
        self.assertEqual(rows["training: the shipped recipe, 100 steps"], ("passed", "loss 3.500, 12.3 ktokens/s"))
        self.assertEqual(rows["prediction: memory of a rank"], ("passed", "950 MiB measured, 1000 MiB predicted"))
        self.assertEqual(rows["speed: matrix products in bf16"], ("passed", "80 TFLOP/s, 70 % of the peak"))
        self.assertEqual(rows["speed: training, fraction of the products' rate"], ("passed", "40 TFLOP/s, 50 %"))
        for name, (result, figure) in rows.items():
            self.assertRegex(done.stdout, f"(?m)^{re.escape(name)} +{result} +{re.escape(figure[:70])}")

    def test_trainings_run_on_the_gpu_and_on_the_cpu_for_comparison(self):
        self.check()
        with open(os.path.join(self.folder, "calls"), encoding="utf-8") as file:
            runs = [call for call in map(json.loads, file) if call[0] == "run"]
        on_cpu = [call for call in runs if "devices.accelerator=cpu" in call]
        self.assertEqual(len(on_cpu), 1)
        self.assertEqual(len([call for call in runs if "devices.accelerator=cuda" in call]), len(runs) - 1)
        larger = [call for call in runs if "model.dim=1024" in call]
        self.assertEqual(len(larger), 1)  # three checks share it

    def test_each_failure_is_reported_and_the_other_checks_still_run(self):
        self.assertEqual(self.failures(TEST="crash", RESUMED=3.6), {
            "test: memory [of a rank]": "test_cuda was killed by signal 6", "training: resumed from a checkpoint": "loss 3.60000 instead of 3.50000"})

    def test_what_counts_as_a_failure(self):
        memory, fraction = "test: memory [of a rank]", "speed: training, fraction of the products' rate"
        same, bytes_, seconds = "training: the same losses as on the CPU", "prediction: memory of a rank", "prediction: time of a step"
        for name, figure, fakes in (
                (memory, "skipped: no CUDA device here", dict(TEST="skip")),
                (memory, "test_cuda ended with 1: assertions: 3 | 2 passed | 1 failed", dict(TEST="fail")),
                (memory, "the program ran no test of that name", dict(TEST="none")),
                ("speed: ddp", "runner ended with 1: error: this strategy is broken", dict(BROKEN=json.dumps("ddp"))),
                ("training: the shipped recipe, 100 steps", "loss 5.000 after 100 steps", dict(LOSS=5.0)),
                (same, "the losses differ by up to 5 %", dict(ON_GPU=4.2)),
                (same, "the losses differ by up to nan %", dict(ON_GPU=float("nan"))),
                (bytes_, "2000 MiB measured, 1000 MiB predicted", dict(MEASURED={"memory_bytes_per_rank": 2000 << 20})),
                (bytes_, "there is no prediction", dict(PREDICTED={"step_seconds": 0.1})),
                (seconds, "1000 ms measured, 100 ms predicted", dict(MEASURED={"step_seconds": 1.0})),
                (seconds, "there is no measurement", dict(MEASURED={"memory_bytes_per_rank": 950 << 20})),
                (fraction, "4 TFLOP/s, 5 %", dict(MEASURED={"step_seconds": 1.0})),
                (fraction, "unexpected output: KeyError 'step'", dict(PREDICTED={"step_seconds": 0.1})),
                ("speed: matrix products in fp16", "70 TFLOP/s, 20 % of the peak", dict(FRACTION="0.2"))):
            with self.subTest(name=name, figure=figure):
                self.assertEqual(self.failures("--only", name, **fakes), {name: figure})

    def test_a_failure_names_the_file_with_the_output(self):
        done = self.check("--only", "memory [", TEST="fail")
        self.assertEqual(done.returncode, 1)
        self.assertIn("\nfailed: test: memory [of a rank]: test_cuda ended with 1: assertions", done.stdout)
        with open(os.path.join(self.folder, done.stdout.split("output: ")[1].strip()), encoding="utf-8") as file:
            self.assertIn("CHECK( 1 == 2 )", file.read())

    def test_programs_that_cannot_list_or_start(self):
        self.assertEqual(self.failures(LIST="3"), {"list of the tests": "test_cuda ended with 3: memory [of a rank]"})
        os.remove(os.path.join(self.programs, "bench_products"))
        self.assertIn(f"cannot start {self.programs}/bench_products: No such file or directory", self.failures("--only", "speed: matrix").values())

    def test_the_time_limit_ends_the_check_that_runs_and_leaves_out_the_others(self):
        failures = self.failures("--minutes", "0")
        self.assertEqual(set(failures.values()), {"no time left"})

    def test_only_runs_the_named_checks(self):
        code, rows = self.rows("--only", "speed: matrix")
        self.assertEqual((code, list(rows)), (0, [f"speed: matrix products in {dtype}" for dtype in ("fp32", "fp16", "bf16")]))
        self.assertEqual(self.rows("--only", "no such check"), (1, {}))

    def test_without_a_gpu_or_the_module_it_says_so(self):
        done = self.check(gpus=[])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (4, "",
            "scripts/gpu_check: there is no GPU: no NVIDIA driver. scripts/gpu_check --simulate runs the checks without one\n"))
        os.remove(os.path.join(self.programs, "runner"))
        with open(os.path.join(self.programs, "runner"), "w", encoding="utf-8") as file:
            file.write(RUNNER.replace('fake("MODULE", True)', "False"))
        os.chmod(os.path.join(self.programs, "runner"), 0o755)
        done = self.check()
        self.assertEqual((done.returncode, done.stderr), (5, "scripts/gpu_check: this build has no CUDA module; run scripts/setup --cuda and build again\n"))

    def test_the_simulation_runs_the_same_checks_without_a_gpu(self):
        code, rows = self.rows("--simulate", gpus=[])
        self.assertEqual((code, len(rows)), (0, 15))
        done = self.check("--simulate", gpus=[], PREDICTED={"memory_bytes_per_rank": 1000 << 20, "step": {"load": {"work": {"product FLOPs": 1e9, "attention FLOPs": 0}}}})
        self.assertRegex(done.stdout, r"(?m)^prediction: time of a step +passed +not predicted here")
        with open(os.path.join(self.folder, "calls"), encoding="utf-8") as file:
            self.assertTrue(any("devices.accelerator=cpu" in line for line in file))


if __name__ == "__main__":
    unittest.main()
