"""Starts `runner ui` on a ledger, for tests and benchmarks."""
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import urllib.error
import urllib.parse
import urllib.request


class Server:
    def __init__(self, runner, home, *arguments):
        self.home = str(home)
        environment = {**os.environ, "RUNNER_HOME": self.home}
        self.process = subprocess.Popen([runner, "ui", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.address = self.process.stdout.readline().strip()
        if not self.address.startswith("http://"):
            raise AssertionError(f"runner ui did not start: {self.address} {self.process.stderr.read()}")
        self.url, _, fragment = self.address.partition("/#")
        self.url = self.url.rstrip("/")
        self.token = fragment.removeprefix("token=")
        self.port = int(self.url.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, with_signal=signal.SIGINT):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("runner ui did not end within 10 s")
        finally:
            self.process.stdout.close()
            self.process.stderr.close()
        return self.process.returncode

    def ask(self, path, method="GET", body=None, headers=None, **parameters):
        """(status, headers, bytes)"""
        query = urllib.parse.urlencode({key.rstrip("_"): value for key, value in parameters.items()})
        request = urllib.request.Request(self.url + path + ("?" + query if query else ""), method=method, data=None if body is None else json.dumps(body).encode(),
                                         headers={"X-Runner-Token": self.token, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def get(self, path, **parameters):
        status, _, body = self.ask("/api/1/" + path, **parameters)
        answer = json.loads(body)
        if status != 200:
            raise AssertionError(f"{path}: {status} {answer}")
        return answer

    def ledger(self):
        """A connection to its ledger, which commits at the end of a `with`."""
        return sqlite3.connect(os.path.join(self.home, "ledger.db"))

    def sql(self, statement, *values):
        """The rows of one statement in its ledger."""
        with self.ledger() as database:
            return database.execute(statement, values).fetchall()

    def status_of(self, name):
        """A value of /proc/PID/status, e.g. VmRSS in kB, Threads."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        """Open descriptors, without the connections to the ledger: those are kept, and there is one for each request at a time."""
        folder, count = f"/proc/{self.process.pid}/fd", 0
        for name in os.listdir(folder):
            try:
                count += "/ledger.db" not in os.readlink(f"{folder}/{name}")
            except FileNotFoundError:  # closed meanwhile
                pass
        return count


def listen(server):
    """A stream of changes: its connection, and its lines behind the greeting."""
    stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    stream.request("GET", f"/api/1/events?token={server.token}")
    answer = stream.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream"
    lines = iter(lambda: answer.fp.readline().decode(), "")
    assert next(line for line in lines if line.startswith("event")) == "event: hello\n"
    return stream, lines
