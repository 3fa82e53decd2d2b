"""The same runs as a ledger's in TensorBoard and MLflow, and their servers, for scripts/bench/ui."""
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, ".deps/peers/bin/python")
BEGIN_MLFLOW = """
import sys, mlflow
client = mlflow.tracking.MlflowClient("sqlite:///" + sys.argv[1])
print(client.create_experiment("bench", sys.argv[2]))
"""


def quiet(command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more).stdout


def fill_tensorboard(runner, home, folder):
    """A folder of event files for each run, by `runner export`."""
    quiet([runner, "export", "--metrics", "tensorboard", "-o", folder, "limit:1000000"], env={**os.environ, "RUNNER_HOME": home})


def fill_mlflow(home, file):
    """MLflow makes its tables; runs and points are copied by SQL, because its interface would take many minutes. Returns (experiment, ids of the
    runs, newest first)."""
    experiment = int(quiet([PYTHON, "-c", BEGIN_MLFLOW, file, "file://" + os.path.dirname(file)], cwd=os.path.dirname(file)).split()[-1])
    database = sqlite3.connect(file)
    database.execute("ATTACH ? AS ledger", (os.path.join(home, "ledger.db"),))
    runs = [(row, uuid.uuid4().hex, *rest) for row, *rest in database.execute(
        "SELECT run, name, started, ended, json_extract(content, '$.optimizer.lr') FROM ledger.run JOIN ledger.config ON hash = config ORDER BY started DESC")]
    database.execute("CREATE TEMP TABLE ids (row INTEGER PRIMARY KEY, id TEXT)")
    database.executemany("INSERT INTO ids VALUES (?, ?)", ((row, id_) for row, id_, *_ in runs))
    database.executemany(
        "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id) "
        "VALUES (?, ?, 'UNKNOWN', '', '', 'bench', 'FINISHED', ?, ?, '', 'active', ?, ?)",
        ((id_, name, int(1000 * began), int(1000 * (ended or began)), f"file://{os.path.dirname(file)}/{id_}/artifacts", experiment) for _, id_, name, began, ended, _ in runs))
    database.executemany("INSERT INTO params VALUES ('lr', ?, ?)", ((str(lr), id_) for _, id_, _, _, _, lr in runs))
    database.executemany("INSERT INTO tags VALUES ('mlflow.runName', ?, ?)", ((name, id_) for _, id_, name, *_ in runs))
    database.execute("INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) SELECT name, ifnull(value, 0), 1700000000000 + step, id, step, value IS NULL "
                     "FROM ledger.metric JOIN ledger.key USING (key) JOIN ids ON ids.row = run")
    database.execute("INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) SELECT name, ifnull(value, 0), 1700000000000 + step, step, value IS NULL, id "
                     "FROM ledger.metric_last JOIN ledger.key USING (key) JOIN ids ON ids.row = run")
    database.commit()
    database.close()
    return experiment, [id_ for _, id_, *_ in runs]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class PeerServer:
    """A server in a process group of its own."""

    def __init__(self, command, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = open(os.path.join(folder, "server.log"), "w", encoding="utf-8")
        self.process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(self.port)], cwd=folder, stdout=self.log, stderr=self.log, start_new_session=True)
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(self.url, timeout=5).read()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise AssertionError(f"{command[:4]} does not answer; see {self.log.name}") from None
                time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.log.close()

    def memory_mb(self):
        """The memory of its processes now; what they share counts once."""
        total = 0
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.getpgid(int(name)) == self.process.pid:
                    with open(f"/proc/{name}/smaps_rollup", encoding="utf-8") as file:
                        total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            except (OSError, StopIteration):
                pass
        return total / 1024


def tensorboard(folder):
    return PeerServer([PYTHON, "-m", "tensorboard.main", "--logdir", folder, "--load_fast", "true"], os.path.dirname(folder))


def mlflow(file):
    return PeerServer([PYTHON, "-m", "mlflow", "server", "--workers", "1", "--backend-store-uri", "sqlite:///" + file], os.path.dirname(file))


def tensorboard_runs(url, tag):
    """The number of runs that have the tag, as the server knows it by now."""
    with urllib.request.urlopen(url + "/data/plugin/scalars/tags", timeout=60) as answer:
        return sum(tag in tags for tags in json.load(answer).values())
