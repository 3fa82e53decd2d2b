"""What the server of `runner ui` refuses, how much it takes, and who may read, change and reach what.

    server_protection_test.py RUNNER [unittest's arguments]
"""
import http.client
import json
import os
import socket
import subprocess
import time
import unittest
import zlib

from ui_server import Server, listen
from with_server import RUNNER, WithServer


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

    def exchange(self, data):
        """What the server sends on a connection of its own: (status, headers in lower case, body)."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=8) as one:
            one.sendall(data)
            answer = http.client.HTTPResponse(one)
            answer.begin()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            body = answer.read()
            self.assertEqual(one.recv(1), b"", "the connection goes on")
        return answer.status, headers, body

    def test_what_the_server_refuses_has_the_form_of_other_errors(self):
        host = f"Host: 127.0.0.1:{self.server.port}\r\n"
        post, lines = f"POST /api/1/runs/x/edit HTTP/1.1\r\n{host}X-Runner-Token: {self.server.token}\r\n", "X-%d: " + "v" * 1000 + "\r\n"
        requests = {
            400: "nonsense\r\n\r\n",
            413: f"{post}Content-Length: 99999999\r\n\r\n",
            414: f"GET /{'a' * 3000} HTTP/1.1\r\n{host}\r\n",
            415: f"{post}Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 3\r\n\r\nabc",
            431: f"GET / HTTP/1.1\r\n{host}" + "".join(lines % i for i in range(40)) + "\r\n",
        }
        for status, text in requests.items():
            began = time.monotonic()
            found, headers, body = self.exchange(text.encode())
            self.assertEqual(found, status)
            self.assertLess(time.monotonic() - began, 5, status)
            self.assertIn("default-src 'none'", headers["content-security-policy"], status)
            self.assertEqual(headers["x-content-type-options"], "nosniff", status)
            self.assertEqual(headers["content-type"], "application/json", status)
            self.assertIn("error", json.loads(body), status)
        self.assertEqual(self.exchange(f"{post}Content-Length: -1\r\n\r\n".encode())[0], 400)

    def test_heads_and_bodies_have_limits(self):
        def with_head(size):
            head = f"GET /api/1/nothing HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\nConnection: close\r\n"
            while len(head) < size - 200:
                head += "X: " + "v" * min(1000, size - len(head) - 100) + "\r\n"
            return (head + "\r\n").encode()

        self.assertEqual(self.exchange(with_head(31 << 10))[0], 404)
        self.assertEqual(self.exchange(with_head(33 << 10))[0], 431)
        token = {"X-Runner-Token": self.server.token}
        path = f"/api/1/runs/{self.some_run('status:finished -name:lr_and*')}/edit"
        for length, status in ((1 << 20, 200), ((1 << 20) + 1, 413)):
            rest = length - len(json.dumps({"notes": ""}))
            self.assertEqual(self.server.ask(path, "POST", {"notes": "n" * rest}, token)[0], status)

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
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            self.assertEqual(self.server.ask("/api/1/runs", headers=headers)[0], 403, headers)

    def test_changes_need_the_token(self):
        id_ = self.some_run()
        for headers in ({"X-Runner-Token": ""}, {"X-Runner-Token": "0" * 32}):
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

    def test_only_files_that_a_run_recorded_below_its_folder_are_sent(self):
        id_ = self.some_run("status:finished -name:lr_and*")
        folder, outside, large = os.path.join(self.home, "runs", id_), os.path.join(self.folder.name, "outside.txt"), os.urandom(1_000_000)
        for path, content in ((os.path.join(folder, "artifacts/large.bin"), large), (outside, b"secret")):
            with open(path, "wb") as file:
                file.write(content)
        os.symlink(outside, os.path.join(folder, "artifacts/link.txt"))
        os.symlink(self.folder.name, os.path.join(folder, "linked"))
        sizes = {"artifacts/large.bin": len(large), **dict.fromkeys(("artifacts/link.txt", "linked/outside.txt", "../../ledger.db", "artifacts/../code.patch", outside, "artifacts", "artifacts/gone", ""))}
        with self.server.ledger() as database:
            database.executemany("INSERT INTO artifact (run, time, kind, path, fields) SELECT run, 1, 'artifact', ?, '{}' FROM run WHERE id = ?", ((path, id_) for path in sizes))
        files = {file["path"]: file["bytes"] for file in self.get(f"runs/{id_}")["files"]}
        self.assertEqual({path: files[path] for path in sizes}, sizes)
        for path, size in sizes.items():
            self.assertEqual(self.server.ask(f"/api/1/runs/{id_}/file", path_=path)[0], 404 if size is None else 200, path)
        self.assertEqual(self.server.ask(f"/api/1/runs/{id_}/file", path_="logs/rank-0.log")[0], 404, "not recorded")
        _, headers, body = self.server.ask(f"/api/1/runs/{id_}/file", path_="artifacts/large.bin")
        self.assertEqual(body, large)
        self.assertEqual((headers["Content-Type"], headers["Content-Disposition"]), ("application/octet-stream", "attachment"))
        self.assertEqual(self.server.ask(f"/api/1/runs/{id_}/file", headers={"X-Runner-Token": ""}, path_="artifacts/large.bin")[0], 403)
        traces = self.get(f"runs/{id_}/plan")["traces"]
        self.assertEqual([(one["path"], one["bytes"]) for one in traces], [("trace-rank-0.json", 19)])

    def test_read_only(self):
        with Server(RUNNER, self.home, "--read-only") as server:
            self.assertTrue(server.get("runs", limit=1)["runs"])
            self.assertEqual(server.ask(f"/api/1/runs/{self.some_run()}/edit", "POST", {})[0], 403)
            self.assertFalse(server.get("")["may_write"])

    def test_reading_needs_the_token_unless_it_is_open(self):
        nothing = {"X-Runner-Token": ""}
        reading = [route["path"].replace("*", self.some_run()) for route in self.get("")["api"] if route["method"] == "GET"]
        self.assertGreater(len(reading), 12)
        for path in reading:
            self.assertEqual(self.server.ask(path, headers=nothing)[0], 200 if path == "/api/1/" else 403, path)
            self.assertEqual(self.server.ask(path + "?token=" + "0" * 32, headers=nothing)[0], 200 if path == "/api/1/" else 403, path)
        self.assertEqual(self.server.ask("/", headers=nothing)[0], 200)  # the page has nothing of the ledger
        index = json.loads(self.server.ask("/api/1", headers=nothing)[2])
        self.assertEqual((index["may_read"], index["may_write"], index["token_valid"]), (False, False, False))
        self.assertNotIn("home", index)
        with Server(RUNNER, self.home, "--open-read") as server:
            self.assertEqual(server.ask("/api/1/devices", headers=nothing)[0], 200)
            self.assertEqual(server.ask(f"/api/1/runs/{self.some_run()}/edit", "POST", {"notes": "x"}, nothing)[0], 403)

    def test_a_tunnel_may_have_another_port(self):
        self.assertEqual(self.server.ask("/api/1/devices", headers={"Host": "localhost:9000", "Origin": "http://localhost:9000"})[0], 200)
        self.assertEqual(self.server.ask("/api/1/devices", headers={"Origin": "http://localhost:9000"})[0], 403)

    def test_a_long_word_is_answered_at_once(self):
        began = self.server.cpu_seconds()
        self.assertEqual(self.server.ask("/api/1/runs", filter="x" * 7000 + ":1")[0], 400)
        self.assertLess(self.server.cpu_seconds() - began, 0.5)

    def test_steps_at_both_ends_of_the_integers(self):
        table = os.path.join(self.folder.name, "steps.csv")
        with open(table, "w", encoding="utf-8") as file:
            file.write(f"step,loss\n{-2**62},1\n0,2\n{2**62},3\n")
        run = self.runner("import", "csv", table).split()[0]
        curve = self.get("curves", runs=run, metric="loss", pixels=10)["curves"][0]
        self.assertEqual(curve["y"], [1, 2, 3])
        row = self.get("runs", runs=run, sparkline="loss")["runs"][0]
        self.assertEqual(row["id"], run)
        self.runner("rm", run)

    def test_a_plan_of_a_record_from_elsewhere_loads_nothing_that_it_names(self):
        with self.server.ledger() as database:
            run, id_ = database.execute("SELECT run, id FROM run WHERE status = 'finished' LIMIT 1").fetchone()
            config, origins = {"model": {"name": "plugin", "plugin": "runs/x.so"}}, {"model.name": "r.toml:1", "model.plugin": "r.toml:2"}
            for column, value in (("config", config), ("origins", origins)):
                database.execute("INSERT INTO config VALUES (?, ?)", (f"hash of {column}", json.dumps(value)))
            before = database.execute("SELECT config, origins FROM run WHERE run = ?", (run,)).fetchone()
            database.execute("UPDATE run SET config = 'hash of config', origins = 'hash of origins' WHERE run = ?", (run,))
            database.execute("INSERT INTO imported (run, time, kind, source, origin, digest) VALUES (?, 1, 'bundle', 'a.bundle', 'x', 'y')", (run,))
        try:
            status, _, body = self.server.ask(f"/api/1/runs/{id_}/recommend", device_kind="h100-80g")
            self.assertEqual(status, 400)
            self.assertIn(f'run {id_} was imported from bundle (a.bundle), so its model.plugin = "runs/x.so" is not used here', json.loads(body)["error"])
        finally:
            self.server.sql("UPDATE run SET config = ?, origins = ? WHERE run = ?", *before, run)
            self.server.sql("DELETE FROM imported WHERE source = 'a.bundle'")

    def test_more_streams_than_allowed_may_ask_again(self):
        with Server(RUNNER, self.home) as server:
            streams = [listen(server)[0] for _ in range(64)]
            status, headers, _ = server.ask("/api/1/events")
            self.assertEqual((status, headers.get("Retry-After")), (503, "1"))
            for stream in streams:
                stream.close()

    def test_all_addresses_of_the_machine(self):
        wrong = subprocess.run([RUNNER, "ui", "--host", ""], capture_output=True, text=True, env={**os.environ, "RUNNER_HOME": self.home}, timeout=20)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("0.0.0.0 for all", wrong.stderr)
        with Server(RUNNER, self.home, "--host", "0.0.0.0") as server:
            name = socket.gethostname().lower()
            self.assertEqual(server.url, f"http://{name}:{server.port}")
            server.url = f"http://127.0.0.1:{server.port}"
            self.assertTrue(server.get("")["api"])
            for host, status in ((name, 200), (name.split(".")[0], 200), ("evil.example", 403)):
                found, _, body = server.ask("/api/1/runs", headers={"Host": f"{host}:{server.port}"}, limit=1)
                self.assertEqual(found, status, host)
            self.assertIn(f"{name}:{server.port}", json.loads(body)["error"])

    def test_the_index_tells_whether_a_token_is_valid(self):
        for token, valid in ((self.server.token, True), ("0" * 32, False), ("", False)):
            self.assertEqual(json.loads(self.server.ask("/api/1", headers={"X-Runner-Token": token})[2])["may_write"], valid)

    def test_memory_of_imagined_hosts_needs_imagined_devices(self):
        status, _, body = self.server.ask(f"/api/1/runs/{self.some_run()}/recommend", host_memory="abc")
        self.assertEqual(status, 400)
        self.assertIn("device_kind", json.loads(body)["error"])

    def test_two_servers_do_not_share_a_port(self):
        with Server(RUNNER, self.home) as other:
            self.assertNotEqual(other.port, self.server.port)
        taken = subprocess.run([RUNNER, "ui", "--port", str(self.server.port)], capture_output=True, text=True, env={**os.environ, "RUNNER_HOME": self.home}, timeout=20)
        self.assertEqual(taken.returncode, 4)
        self.assertIn(f"cannot listen on 127.0.0.1:{self.server.port}", taken.stderr)


if __name__ == "__main__":
    unittest.main()
