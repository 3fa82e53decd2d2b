"""`runner doctor` as a process: doctor_test.py RUNNER FAKE_NFS. Each problem that a test creates must be reported with a fix."""
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

RUNNER = os.path.abspath(sys.argv.pop(1))
FAKE_NFS = os.path.abspath(sys.argv.pop(1))


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        # A copy of runner, so that a test can replace the worker in its folder.
        self.runner = shutil.copy(RUNNER, os.path.join(self.folder, "runner"))
        self.worker('echo "runner-worker 1, LibTorch 2"')

    def worker(self, script):
        path = os.path.join(self.folder, "runner-worker")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)

    def call(self, *arguments, limit_files=None, **variables):
        def before():
            if limit_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit_files if isinstance(limit_files, tuple) else (limit_files, limit_files))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RUNNER_")}
        environment |= {"RUNNER_HOME": os.path.join(self.folder, "home"), "RUNNER_FAKE_FACTS": self.facts()} | variables
        return subprocess.run([self.runner, "doctor", *arguments], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60,
                              preexec_fn=before)

    def facts(self, **changes):
        path = os.path.join(self.folder, f"facts{len(os.listdir(self.folder))}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"cores": 8, "cpu": "Fast", "avx2": True, "memory_bytes": 8 << 30, "memory_free_bytes": 4 << 30} | changes, file)
        return path

    def check(self, subject, expected_code, **options):
        """The finding about `subject`. Also checks the structure of the complete output."""
        done = self.call("--json", **options)
        answer = json.loads(done.stdout)
        self.assertEqual(done.returncode, expected_code, done.stdout)
        self.assertEqual(answer["schema"], 1)
        self.assertEqual(answer["ok"], expected_code == 0)
        for finding in answer["checks"]:
            self.assertEqual(finding["status"] == "ok", finding["fix"] == "", finding)
        return next((finding["status"], finding["message"]) for finding in answer["checks"] if finding["name"] == subject)

    def test_no_problems(self):
        done = self.call()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual([line for line in lines if not line.startswith("ok ") and "disk" not in line and "make room" not in line], [])
        self.assertRegex(lines[0], r"^ok  LibTorch +runner-worker 1, LibTorch 2 loads in ")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "home")))  # doctor creates no files

    def test_a_worker_that_is_missing_or_does_not_start(self):
        self.worker("echo libgone.so: cannot open >&2; exit 127")
        self.assertEqual(self.check("LibTorch", 4), ("fail", "runner-worker does not start: libgone.so: cannot open"))
        os.remove(os.path.join(self.folder, "runner-worker"))
        self.assertEqual(self.check("LibTorch", 4), ("fail", os.path.join(self.folder, "runner-worker") + " is not there"))
        self.assertIn("fix: build it: scripts/runner does", self.call().stdout)

    def test_devices_that_this_build_cannot_use(self):
        devices = self.facts(cuda=[{"name": "A", "memory_bytes": 1 << 30}])
        self.assertEqual(self.check("CUDA", 0, RUNNER_FAKE_FACTS=devices),
                         ("warn", "1 CUDA device (0: A, 1.00 GiB, 1.00 GiB free), but this build cannot use them"))

    def test_little_memory_and_an_old_cpu(self):
        self.assertEqual(self.check("memory", 0, RUNNER_FAKE_FACTS=self.facts(memory_free_bytes=512 << 20))[0], "warn")
        self.assertEqual(self.check("memory", 4, RUNNER_FAKE_FACTS=self.facts(memory_free_bytes=100 << 20))[0], "fail")
        self.assertEqual(self.check("cores", 0, RUNNER_FAKE_FACTS=self.facts(avx2=False)), ("warn", "8 of Fast, which has no AVX2"))

    def test_a_file_that_is_not_a_ledger(self):
        home = os.path.join(self.folder, "home")
        os.mkdir(home)
        with open(os.path.join(home, "ledger.db"), "w", encoding="utf-8") as file:
            file.write("not a database, but long enough to be taken for one" * 100)
        status, message = self.check("ledger", 4)
        self.assertEqual(status, "fail")
        self.assertIn("ledger.db", message)

    def test_a_ledger_on_a_network_file_system(self):
        status, message = self.check("ledger", 0, LD_PRELOAD=FAKE_NFS, ASAN_OPTIONS="verify_asan_link_order=0")
        self.assertEqual(status, "ok")
        self.assertEqual(re.sub(r"SQLite [0-9.]+", "SQLite N", message),
                         f"{self.folder} can be written, SQLite N; on a network file system, with a rollback journal: safe as long as "
                         "file locks work there")

    def test_a_low_limit_of_open_files(self):
        self.assertEqual(self.check("open files", 0, limit_files=512), ("warn", "at most 512; each local rank takes about 20"))
        self.assertEqual(self.check("open files", 4, limit_files=128)[0], "fail")

    def test_the_limit_of_open_files_is_raised_as_far_as_allowed(self):
        self.assertEqual(self.check("open files", 0, limit_files=(128, 1500)), ("ok", "at most 1500"))

    def test_a_plugin_of_xla_that_does_not_load(self):
        plugin = os.path.join(self.folder, "libpjrt_cpu.so")
        with open(plugin, "w", encoding="utf-8") as file:
            file.write("not a library")
        status, message = self.check("XLA", 0)
        if "not in this program" in message:  # which was built without XLA
            return
        self.assertEqual(status, "warn")
        self.assertTrue(message.startswith(f"cannot load the PJRT plug-in {plugin}: "), message)
        shutil.copy(self.runner, plugin)
        os.truncate(plugin, os.path.getsize(plugin) // 2)
        self.assertIn("is incomplete", self.check("XLA", 0)[1])

    def test_no_git(self):
        self.assertEqual(self.check("git", 0, PATH=self.folder)[0], "warn")


if __name__ == "__main__":
    unittest.main()
