"""The server of `runner ui`: its API, what it refuses, and that hostile clients do no harm.

    server_test.py RUNNER [unittest's arguments]
"""
import http.client
import json
import os
import random
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

import demo_ledger
from ui_server import Server

RUNNER = ""


class WithServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = os.path.join(cls.folder.name, "home")
        demo_ledger.make(cls.home, runs=30, points=300, sweep=16)
        cls.server = Server(RUNNER, cls.home)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def get(self, path, **parameters):
        return self.server.get(path, **parameters)

    def some_run(self, filter_="status:finished"):
        return self.get("runs", filter=filter_, limit=1)["runs"][0]["id"]

    def runner(self, *arguments):
        return subprocess.run([RUNNER, *arguments], capture_output=True, text=True, env={**os.environ, "RUNNER_HOME": self.home}, check=True).stdout


class Api(WithServer):
    def test_runs_are_filtered_sorted_and_paged(self):
        everything = self.get("runs", limit=500)
        self.assertEqual(everything["matching"], 46)
        self.assertEqual(sum(everything["statuses"].values()), 46)
        starts = [run["started"] for run in everything["runs"]]
        self.assertEqual(starts, sorted(starts, reverse=True))
        page = self.get("runs", offset=10, limit=5)
        self.assertEqual([run["id"] for run in page["runs"]], [run["id"] for run in everything["runs"][10:15]])
        failed = self.get("runs", filter="status:failed")
        self.assertTrue(all(run["status"] == "failed" for run in failed["runs"]))
        best = self.get("runs", filter="status:finished sort:best(val_loss)", columns="best(val_loss),optimizer.lr,tag", limit=500)
        values = [run["cells"][0] for run in best["runs"]]
        self.assertEqual(values, sorted(values))
        self.assertTrue(all(isinstance(run["cells"][1], float) and isinstance(run["cells"][2], list) for run in best["runs"]))
        listed = {run["id"] for run in json.loads(self.runner("ls", "--json"))["runs"]}
        self.assertEqual(listed, {run["id"] for run in everything["runs"]})

    def test_a_row_has_what_the_table_shows(self):
        run = self.get("runs", filter="status:running", limit=1)["runs"][0]
        self.assertGreater(run["eta_s"], 0)
        self.assertGreater(run["max_steps"], run["steps"])
        self.assertEqual(run["memory_limit"], 80 * 2**30)
        self.assertLessEqual(len(run["sparkline"]), 48)
        self.assertGreater(len(run["sparkline"]), 30)

    def test_a_mistake_in_a_filter_has_its_place(self):
        status, _, body = self.server.ask("/api/1/runs", filter="tag:x lr>fast")
        answer = json.loads(body)
        self.assertEqual(status, 400)
        self.assertEqual((answer["offset"], answer["length"]), (9, 4))
        self.assertIn("fast", answer["error"])

    def test_a_run_is_what_show_prints(self):
        id_ = self.some_run()
        ours, theirs = self.get(f"runs/{id_}"), json.loads(self.runner("show", id_, "--json"))
        for key in theirs:
            self.assertEqual(ours[key], theirs[key], key)
        self.assertEqual(self.get("runs/last")["id"], theirs["id"] if False else json.loads(self.runner("show", "last", "--json"))["id"])

    def test_curves_as_text_and_as_bytes_are_equal(self):
        ids = ",".join(run["id"] for run in self.get("runs", limit=5)["runs"])
        text = self.get("curves", runs=ids, metric="loss", pixels=50, smoothing=0.6)
        _, headers, body = self.server.ask("/api/1/curves", runs=ids, metric="loss", pixels=50, smoothing=0.6, format="binary")
        self.assertEqual(headers["Content-Type"], "application/vnd.runner.curves")
        length = struct.unpack("<Q", body[:8])[0]
        head, at = json.loads(body[8:8 + length]), 8 + length
        self.assertEqual(at % 8, 0)
        for curve, same in zip(head["curves"], text["curves"]):
            for name, count in (("x", "count"), ("y", "count"), ("sx", "smooth_count"), ("sy", "smooth_count")):
                values = list(struct.unpack(f"<{curve[count]}d", body[at:at + 8 * curve[count]]))
                at += 8 * curve[count]
                self.assertEqual(values, same[name] if len(name) == 1 else same["smooth"][name[1]])
        self.assertEqual(at, len(body))

    def test_a_zoom_shows_every_point(self):
        id_ = self.some_run("status:finished -name:lr_and*")
        points = json.loads(self.runner("metrics", id_, "--name", "loss", "--json"))["points"]
        low, high = points[50][0], points[90][0]
        curve = self.get("curves", runs=id_, metric="loss", from_=low, to=high, pixels=400)["curves"][0]
        self.assertTrue(curve["complete"])
        self.assertEqual(list(zip(curve["x"], curve["y"])), [(step, value) for step, value in points if low <= step <= high])

    def test_nan_is_a_mark(self):
        id_ = self.some_run("status:failed -name:lr_and*")
        curve = self.get("curves", runs=id_, metric="loss")["curves"][0]
        self.assertGreater(curve["nonfinite"]["count"], 0)
        self.assertGreater(len(curve["nonfinite"]["nan"]), 0)

    def test_the_x_axis_may_be_a_metric(self):
        id_ = self.some_run()
        curve = self.get("curves", runs=id_, metric="loss", x="tokens")["curves"][0]
        self.assertEqual(curve["x"], sorted(curve["x"]))
        self.assertGreater(curve["x"][-1], 60_000)
        self.assertEqual(self.get("curves", runs=id_, metric="loss", x="furlongs")["missing"], [id_])

    def test_runs_are_compared(self):
        ids = [run["id"] for run in self.get("runs", filter="-name:lr_and*", limit=4)["runs"]]
        answer = self.get("compare", runs=",".join(ids))
        self.assertTrue(all(not row["same"] and len(row["values"]) == 4 for row in answer["config"]))
        self.assertIn("optimizer.lr", [row["key"] for row in answer["config"]])
        self.assertIn("last(loss)", [row["key"] for row in answer["results"]])

    def test_logs_have_pages_and_search(self):
        id_ = self.some_run("status:failed -name:lr_and*")
        everything = self.get(f"runs/{id_}/logs", file="rank-0.log", lines=2000)
        page = self.get(f"runs/{id_}/logs", file="rank-0.log", from_=10, lines=5)
        self.assertEqual(page["lines"], everything["lines"][10:15])
        last = self.get(f"runs/{id_}/logs", file="rank-0.log", from_=-3)
        self.assertEqual(last["lines"], everything["lines"][-3:])
        found = self.get(f"runs/{id_}/logs", file="rank-0.log", search="ERROR: the loss")
        self.assertEqual([line["line"] for line in found["lines"]], [everything["total"]])

    def test_sweeps(self):
        sweep = self.get("sweeps")["sweeps"][0]
        answer = self.get(f"sweeps/{sweep['id']}")
        self.assertEqual(len(answer["trials"]), 16)
        values = [trial["value"] for trial in answer["trials"] if trial["status"] == "finished"]
        self.assertEqual(answer["best"]["value"], min(values))
        self.assertTrue(answer["best"]["command"].startswith("runner run"))
        self.assertIn("optimizer.lr", answer["importance"])

    def test_every_address_of_the_index_exists(self):
        for route in self.get("")["api"]:
            if route["method"] == "GET" and "*" not in route["path"] and not route["path"].endswith("events"):
                self.assertNotIn(self.server.ask(route["path"].rstrip("/"))[0], (404, 405, 500), route)

    def test_events_tell_of_changes(self):
        id_ = self.some_run("status:running")
        stream = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        stream.request("GET", "/api/1/events")
        answer = stream.getresponse()
        self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
        lines = iter(lambda: answer.fp.readline().decode(), "")
        self.assertIn("event: hello", next(line for line in lines if line.startswith("event")))
        time.sleep(2.2)  # the first look at the ledger is the one that later ones are compared with
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET steps = steps + 10 WHERE id = ?", (id_,))
        began = time.monotonic()
        data = next(line for line in lines if line.startswith("data: {\"new\"") or line.startswith("data: {\"removed\"") or (line.startswith("data:") and id_ in line))
        self.assertLess(time.monotonic() - began, 4)
        self.assertEqual([run["id"] for run in json.loads(data[5:])["runs"]], [id_])
        stream.close()


class Protection(WithServer):
    def test_every_answer_has_the_headers(self):
        index = self.server.ask("/")[2].decode()
        script = index.split('src="')[1].split('"')[0]
        for path in ("/", "/run/x", script, "/api/1/runs", "/api/1/nothing", "/static/x/y"):
            headers = self.server.ask(path)[1]
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"], path)
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertIn("immutable", self.server.ask(script)[1]["Cache-Control"])
        self.assertNotIn("http://", index.replace(self.server.url, ""))

    def test_files_are_compressed_if_the_client_can_read_that(self):
        index = self.server.ask("/")[2].decode()
        script = index.split('data-echarts="')[1].split('"')[0]
        _, headers, body = self.server.ask(script, headers={"Accept-Encoding": "gzip"})
        self.assertEqual(headers["Content-Encoding"], "gzip")
        plain = self.server.ask(script)[2]
        self.assertEqual(zlib.decompress(body, 31), plain)
        self.assertLess(len(body), len(plain) / 2.5)
        self.assertEqual(self.server.ask("/", headers={"If-None-Match": self.server.ask("/")[1]["ETag"]})[0], 304)

    def test_foreign_hosts_and_origins_are_refused(self):
        for headers in ({"Host": "evil.example"}, {"Origin": "http://" + "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            self.assertEqual(self.server.ask("/api/1/runs", headers=headers)[0], 403, headers)

    def test_changes_need_the_token(self):
        id_ = self.some_run()
        for headers in ({}, {"X-Runner-Token": "0" * 32}):
            for path in (f"/api/1/runs/{id_}/stop", f"/api/1/runs/{id_}/edit"):
                self.assertEqual(self.server.ask(path, "POST", {"archived": True}, headers)[0], 403)
        self.assertEqual(self.server.ask(f"/api/1/runs/{id_}/edit")[0], 405)
        self.assertEqual(self.server.ask("/", "POST", {})[0], 405)

    def test_edits_and_their_audit_trail(self):
        id_, token = self.some_run("status:finished -name:lr_and*"), {"X-Runner-Token": self.server.token}

        def edit(**change):
            status, _, body = self.server.ask(f"/api/1/runs/{id_}/edit", "POST", change, token)
            return status, json.loads(body)

        self.assertEqual(edit(add_tags=["chosen"], notes="the one"), (200, {"schema": 1, "changed": 1, "run": id_}))
        run = self.get(f"runs/{id_}")
        self.assertIn("chosen", run["tags"])
        self.assertEqual(run["notes"], "the one")
        self.assertEqual({change["what"] for change in run["changes"]}, {"tags", "notes"})
        edit(remove_tags=["chosen"], archived=True)
        self.assertNotIn(id_, [one["id"] for one in self.get("runs", limit=500)["runs"]])
        self.assertEqual([one["id"] for one in self.get("runs", filter="archived:yes")["runs"]], [id_])
        edit(archived=False)
        for wrong in ({"tags": ["x"]}, {"notes": 3}, {"archived": "yes"}, [], {"add_tags": "x"}):
            status, answer = edit(**wrong) if isinstance(wrong, dict) else (self.server.ask(f"/api/1/runs/{id_}/edit", "POST", wrong, token)[0], {"error": ""})
            self.assertEqual(status, 400, wrong)
            self.assertIn("error", answer)

    def test_only_a_run_of_this_machine_can_be_stopped(self):
        token = {"X-Runner-Token": self.server.token}
        for filter_, words in (("status:finished", "is not running"), ("status:running", "stop it there")):
            status, _, body = self.server.ask(f"/api/1/runs/{self.some_run(filter_)}/stop", "POST", {}, token)
            self.assertEqual(status, 409)
            self.assertIn(words, json.loads(body)["error"])

    def test_no_file_outside_of_a_runs_folder(self):
        id_ = self.some_run("status:finished -name:lr_and*")
        logs = os.path.join(self.home, "runs", id_, "logs")
        os.symlink("/etc/passwd", os.path.join(logs, "link.log"))
        for name in ("../../../ledger.db", "/etc/passwd", "link.log", "..", ".", "", "rank-0.log\0", "../logs/rank-0.log", "....//ledger.db"):
            self.assertEqual(self.server.ask(f"/api/1/runs/{id_}/logs", file=name)[0], 404, name)
        for path in ("/static/../../etc/passwd", "/..%2f..%2fetc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"):
            body = self.server.ask(path)[2]
            self.assertNotIn(b"root:", body)

    def test_read_only(self):
        with Server(RUNNER, self.home, "--read-only") as server:
            self.assertEqual(server.token, "")
            self.assertEqual(server.ask(f"/api/1/runs/{self.some_run()}/edit", "POST", {}, {"X-Runner-Token": ""})[0], 403)

    def test_two_servers_do_not_share_a_port(self):
        with Server(RUNNER, self.home) as other:
            self.assertNotEqual(other.port, self.server.port)
        taken = subprocess.run([RUNNER, "ui", "--port", str(self.server.port)], capture_output=True, text=True, env={**os.environ, "RUNNER_HOME": self.home}, timeout=20)
        self.assertEqual(taken.returncode, 4)
        self.assertIn(f"cannot listen on 127.0.0.1:{self.server.port}", taken.stderr)


class Life(unittest.TestCase):
    def test_an_empty_folder_becomes_a_ledger_later(self):
        with tempfile.TemporaryDirectory() as folder:
            home = os.path.join(folder, "home")
            with Server(RUNNER, home) as server:
                self.assertEqual(server.get("runs")["matching"], 0)
                self.assertEqual(server.get("sweeps")["sweeps"], [])
                self.assertEqual(server.ask("/api/1/runs/x")[0], 404)
                demo_ledger.make(home, runs=3, points=20, sweep=0)
                self.assertEqual(server.get("runs")["matching"], 3)

    def test_an_interrupt_ends_it_also_with_open_streams(self):
        with tempfile.TemporaryDirectory() as folder:
            demo_ledger.make(folder, runs=3, points=20, sweep=0)
            server = Server(RUNNER, folder)
            streams = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(5)]
            for stream in streams:
                stream.request("GET", "/api/1/events")
                stream.getresponse()
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 3)
            for stream in streams:
                stream.close()

    def test_the_programs_load_no_library_of_the_server(self):
        libraries = subprocess.run(["ldd", RUNNER], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(libraries, "httplib|ssl|brotli")


class HostileClients(WithServer):
    """1,000 requests that no browser sends. None may end the server, block it, or leave memory, threads or descriptors behind."""

    def head(self, *lines):
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def request(self, rnd, host):
        id_ = self.id_
        path = rnd.choice(["/", "/api/1/runs", "/api/1/curves", "/static/x", f"/api/1/runs/{id_}", f"/api/1/runs/{id_}/logs", "/api/1/compare"])
        junk = lambda size: bytes(rnd.randrange(256) for _ in range(size))  # noqa: E731
        letters = lambda size: "".join(rnd.choice("abc%./\\?&=+;~'\"<>{}") for _ in range(size))  # noqa: E731
        kind = rnd.randrange(24)
        host = f"Host: {host}"
        if kind == 0:
            return junk(rnd.choice([1, 20, 500, 5000]))
        if kind == 1:
            return self.head(f"GET {path}/../../../../etc/passwd HTTP/1.1", host)
        if kind == 2:
            return self.head(f"GET /{'%2e%2e/' * rnd.randrange(1, 60)}etc/passwd HTTP/1.1", host)
        if kind == 3:
            return self.head(f"GET /{'a' * rnd.choice([1000, 2100, 8000, 9000, 100000])} HTTP/1.1", host)
        if kind == 4:
            return self.head(f"GET {path}?filter={letters(rnd.choice([10, 200, 4000]))} HTTP/1.1", host)
        if kind == 5:
            return self.head(f"GET {path} HTTP/1.1", host, *(f"X-{i}: {'v' * rnd.choice([1, 100, 4000])}" for i in range(rnd.choice([50, 500]))))
        if kind == 6:
            return self.head(f"GET {path} HTTP/1.1", host, f"X: {'y' * rnd.choice([8000, 9000, 70000])}")
        if kind == 7:
            return self.head(f"POST {path} HTTP/1.1", host, f"Content-Length: {rnd.choice([-1, 2**31, 2**63, 2**64, 10**30, 99999999])}") + junk(100)
        if kind == 8:
            return self.head("POST /api/1/runs/x/edit HTTP/1.1", host, "Content-Length: x1")
        if kind == 9:
            return self.head("POST /api/1/runs/x/edit HTTP/1.1", host, "Transfer-Encoding: chunked") + rnd.choice([b"zz\r\n", b"FFFFFFFFFFFFFFFF\r\n" + b"a" * 1000, b"-5\r\nab", b"5\r\nab"])
        if kind == 10:
            bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
            body = bomb.compress(b"\0" * (8 << 20)) + bomb.flush()
            return self.head(f"POST /api/1/runs/{id_}/edit HTTP/1.1", host, "Content-Encoding: gzip", f"Content-Length: {len(body)}", f"X-Runner-Token: {self.server.token}") + body
        if kind == 11:
            return self.head(f"GET {path} HTTP/1.1", host, "Range: bytes=" + ",".join(["0-"] * rnd.choice([1, 100, 1300])))
        if kind == 12:
            return self.head(f"{rnd.choice(['DELETE', 'PUT', 'TRACE', 'CONNECT', 'PROPFIND', 'get', 'G' * 300, ''])} {path} HTTP/1.1", host)
        if kind == 13:
            return self.head(f"GET {path} HTTP/{rnd.choice(['0.9', '1.0', '2.0', '9.9', 'x'])}", host)
        if kind == 14:
            return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + junk(500)  # the start of TLS
        if kind == 15:
            return self.head(f"GET {path}?runs={','.join([id_] * rnd.choice([1, 50, 300]))}&metric=loss&pixels=4000 HTTP/1.1", host)
        if kind == 16:
            return self.head(f"GET {path}?from={rnd.choice(['nan', 'inf', '1e999', '-1', '9' * 400])}&lines={rnd.choice(['0', '-1', '999999999999999999999'])}&offset=-5 HTTP/1.1", host)
        if kind == 17:
            return self.head(f"GET /api/1/runs/{rnd.choice(['%00', '%ff%fe', '..', '%2f', letters(100).replace('?', ''), '*'])} HTTP/1.1", host)
        if kind == 18:
            return self.head(f"GET {path} HTTP/1.1", host, host, "Host: evil.example")
        if kind == 19:
            return self.head(f"POST /api/1/runs/{id_}/edit HTTP/1.1", host, "Content-Type: multipart/form-data; boundary=x", "Content-Length: 100000", f"X-Runner-Token: {self.server.token}") + junk(5000)
        if kind == 20:
            deep = b"[" * 200000
            return self.head(f"POST /api/1/runs/{id_}/edit HTTP/1.1", host, f"Content-Length: {len(deep)}", f"X-Runner-Token: {self.server.token}") + deep
        if kind == 21:
            return self.head(f"GET {path} HTTP/1.1", host, "Connection: keep-alive") * rnd.choice([2, 30])
        if kind == 22:
            return self.head("GET /api/1/events HTTP/1.1", host)
        return self.head(f"GET {path} HTTP/1.1\0", host, "\0: \0", ": empty", "no colon", " folded")

    def send(self, data, patience):
        """Sends, reads a little, and goes away; some never read."""
        try:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=patience) as one:
                one.sendall(data)
                if patience > 0.3:
                    try:
                        while one.recv(65536):
                            pass
                    except TimeoutError:
                        pass
        except OSError:
            pass

    def attack(self, count, seed):
        rnd = random.Random(seed)
        requests = [(self.request(rnd, f"127.0.0.1:{self.server.port}"), rnd.choice([0.1, 0.2, 0.5])) for _ in range(count)]
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    if not requests:
                        return
                    data, patience = requests.pop()
                self.send(data, patience)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def calm(self):
        """(threads, descriptors, resident kB) when all connections have ended."""
        end = time.monotonic() + 60
        while self.server.status_of("Threads") > self.threads and time.monotonic() < end:
            time.sleep(0.2)
        return self.server.status_of("Threads"), self.server.descriptors(), self.server.status_of("VmRSS")

    def test_a_thousand_hostile_requests(self):
        self.id_ = self.some_run("status:finished -name:lr_and*")
        for path in ("runs", "words", f"runs/{self.id_}", "sweeps"):
            self.get(path)
        time.sleep(1)
        self.threads = self.server.status_of("Threads")
        self.attack(500, 1)
        self.get("runs")
        threads, descriptors, memory = self.calm()
        self.attack(500, 2)
        self.assertIsNone(self.server.process.poll(), "the server has ended")
        self.get("runs")
        after = self.calm()
        self.assertLessEqual(after[0], threads)
        self.assertLessEqual(after[1], descriptors + 2)
        self.assertLess(after[2], memory + 20_000, "resident memory grew from one half of the requests to the other")
        self.assertLess(after[2], 150_000)

    def test_slow_clients_are_disconnected_and_block_nobody(self):
        slow = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(100)]
        began, gone = time.monotonic(), 0
        for one in slow:
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")
            one.setblocking(False)
        while slow and time.monotonic() - began < 25:
            asked = time.monotonic()
            self.assertEqual(self.server.ask("/api/1/runs", limit=1)[0], 200)
            self.assertLess(time.monotonic() - asked, 3)
            for one in list(slow):
                try:
                    one.send(b"1")  # a byte now and then does not give more time
                    if one.recv(1000) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    continue
                except OSError:
                    slow.remove(one)
                    one.close()
                    gone += 1
            time.sleep(0.5)
        self.assertEqual(gone, 100)
        self.assertLess(time.monotonic() - began, 20)

    def test_more_connections_than_allowed_are_refused_at_once(self):
        crowd = [socket.create_connection(("127.0.0.1", self.server.port), timeout=5) for _ in range(128)]
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=5) as one:
            self.assertIn(b"503", one.recv(1000))
        for one in crowd:
            one.close()
        end = time.monotonic() + 10
        while self.server.ask("/api/1/runs", limit=1)[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)


if __name__ == "__main__":
    RUNNER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
