"""The server of `runner ui`: its API, and what it refuses.

    server_test.py RUNNER [unittest's arguments]
"""
import http.client
import json
import os
import socket
import sqlite3
import struct
import subprocess
import time
import unittest
import zlib

from ui_server import Server, listen
from with_server import RUNNER, WithServer


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

    def test_columns_have_the_values_of_ls(self):
        id_ = self.some_run("status:failed -name:lr_and*")  # its last loss is NaN
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            before = database.execute("SELECT name FROM run WHERE id = ?", (id_,)).fetchone()[0]
            database.execute("UPDATE run SET name = '[1,2]' WHERE id = ?", (id_,))
        columns = "id,name,data.shuffle,optimizer.betas,last(loss),best(val_loss),tag,archived,started,strategy,optimizer.lr"
        shown = {run["id"]: dict(zip(columns.split(","), run["cells"])) for run in self.get("runs", filter="-status:running", columns=columns, limit=500)["runs"]}
        listed = json.loads(self.runner("ls", "-status:running", "--columns", columns, "--json"))["runs"]
        self.assertEqual(shown, {run["id"]: run["cells"] for run in listed})
        self.assertEqual([shown[id_][name] for name in ("name", "data.shuffle", "optimizer.betas", "last(loss)")], ["[1,2]", True, [0.9, 0.95], "NaN"])
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET name = ? WHERE id = ?", (before, id_))

    def test_a_column_that_no_run_has_is_empty(self):
        answer = self.get("runs", columns="last(\"my metric\"),name,no_such_key", limit=3)
        self.assertEqual([run["cells"] for run in answer["runs"]], [[None, run["name"], None] for run in answer["runs"]])
        self.assertEqual([one["column"] for one in answer["unknown_columns"]], ["last(my metric)", "no_such_key"])
        self.assertIn("my metric", answer["unknown_columns"][0]["error"])
        status, _, body = self.server.ask("/api/1/runs", columns="last(my metric)")
        self.assertEqual(status, 400)
        self.assertIn("columns: ", json.loads(body)["error"])
        self.assertNotIn("offset", json.loads(body), "that would be a place in the filter")

    def test_a_filter_of_the_last_minutes_is_asked_again(self):
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            id_, started = database.execute("SELECT id, started FROM run WHERE status = 'finished' ORDER BY started DESC LIMIT 1").fetchone()
            database.execute("UPDATE run SET started = ? WHERE id = ?", (time.time() - 57, id_))
        for filter_, matches in (("since:1m", True), ("before:1m", False)):
            self.assertEqual(id_ in [run["id"] for run in self.get("runs", filter=filter_, limit=500)["runs"]], matches)
        time.sleep(4.5)  # nothing is written meanwhile
        for filter_, matches in (("since:1m", False), ("before:1m", True)):
            self.assertEqual(id_ in [run["id"] for run in self.get("runs", filter=filter_, limit=500)["runs"]], matches, filter_)
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET started = ? WHERE id = ?", (started, id_))

    def test_a_small_curve_of_huge_values(self):
        id_ = self.some_run("name:lr_and_width-000")
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            place = "WHERE run = (SELECT run FROM run WHERE id = ?) AND key = (SELECT key FROM key WHERE name = 'loss') AND step = 1"
            before = database.execute(f"SELECT value FROM metric {place}", (id_,)).fetchone()[0]
            database.execute(f"UPDATE metric SET value = 1e300 {place}", (id_,))
        self.assertEqual(self.get("runs", filter=f"id:{id_}")["runs"][0]["sparkline"][0], 1e300)
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute(f"UPDATE metric SET value = ? {place}", (before, id_))

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
        self.assertIn("loss_spike", ours["trouble"])
        self.assertNotIn("note", ours["trouble"])
        self.assertEqual(self.get("runs/last")["id"], json.loads(self.runner("show", "last", "--json"))["id"])

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

    def test_a_log_is_read_from_where_it_was(self):
        id_ = self.some_run("status:running")
        log = os.path.join(self.home, "runs", id_, "logs", "rank-1.log")

        def read(**parameters):
            answer = self.get(f"runs/{id_}/logs", file="rank-1.log", **parameters)
            return [(line["line"], line["text"], line.get("unfinished", False)) for line in answer["lines"]], answer

        with open(log, "w", encoding="utf-8") as file:
            file.writelines(f"line {i} {'x' * (i % 90)}\n" for i in range(1, 20001))
            file.write("half")
        lines, answer = read(from_=-3)
        self.assertEqual([(number, unfinished) for number, _, unfinished in lines], [(19999, False), (20000, False), (20001, True)])
        self.assertEqual((answer["total"], answer["bytes"], answer["appended"]), (20001, os.path.getsize(log), False))
        with open(log, "a", encoding="utf-8") as file:
            file.write(" a line\nand another\n")
        lines, answer = read(after=answer["next"])
        self.assertEqual(lines, [(20001, "half a line", False), (20002, "and another", False)])
        self.assertTrue(answer["appended"])
        self.assertEqual(read(after=answer["next"])[0], [])
        for first in (0, 1, 777, 12345, 19990):  # pages in the middle
            lines, page = read(from_=first, lines=5)
            self.assertEqual([(number, text.split()[1]) for number, text, _ in lines], [(first + i, str(first + i)) for i in range(1, 6)])
            self.assertEqual(read(after=page["next"], lines=1)[0][0][0], first + 6)
        lines, found = read(search="line 777 ")
        self.assertEqual(([number for number, _, _ in lines], found["matching"]), ([777], 1))
        with open(log, "a", encoding="utf-8") as file:
            file.write("LINE 777 again\nno\n")
        lines, found = read(search="line 777 ", after=found["next"])
        self.assertEqual([(number, text) for number, text, _ in lines], [(20003, "LINE 777 again")])
        with open(log, "w", encoding="utf-8") as file:  # rewritten: what was read before means nothing now
            file.write("anew\n")
        lines, answer = read(after=found["next"], from_=-10)
        self.assertEqual((lines, answer["appended"], answer["total"]), ([(1, "anew", False)], False, 1))
        for wrong in ("x", "1", "1-2-3", "-1-2", "1-x", "0-99999999999999999999"):
            self.assertEqual(self.server.ask(f"/api/1/runs/{id_}/logs", file="rank-1.log", after=wrong)[0], 400, wrong)
        self.assertEqual(read(after="0-99999999999")[1]["appended"], False)

    def test_sweeps(self):
        sweep = self.get("sweeps")["sweeps"][0]
        answer = self.get(f"sweeps/{sweep['id']}")
        self.assertEqual(len(answer["trials"]), 16)
        values = [trial["value"] for trial in answer["trials"] if trial["status"] == "finished"]
        self.assertEqual(answer["best"]["value"], min(values))
        self.assertTrue(answer["best"]["command"].startswith("runner run"))
        self.assertIn("optimizer.lr", answer["importance"])

    def test_the_scales_of_a_sweep_are_those_of_its_space(self):
        answer = self.get(f"sweeps/{self.get('sweeps')['sweeps'][0]['id']}")
        self.assertEqual(answer["scales"], {"optimizer.lr": "log", "model.dim": "category", "model.dropout": "value", "optimizer.name": "category"})

    def test_pauses_take_no_points_of_the_readings(self):
        """Two attempts of 100 s, with a pause of a day between them, and a reading each second."""
        id_ = self.some_run("status:preempted,lost,interrupted")
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            run, began = database.execute("SELECT run, started FROM run WHERE id = ?", (id_,)).fetchone()
            database.execute("DELETE FROM attempt WHERE run = ? AND number > 1", (run,))
            first = database.execute("SELECT * FROM attempt WHERE run = ?", (run,)).fetchone()
            names = [row[1] for row in database.execute("PRAGMA table_info(attempt)")]
            second = {**dict(zip(names, first)), "number": 2, "started": began + 86400, "ended": began + 86500}
            second.pop("attempt", None)
            database.execute("UPDATE attempt SET started = ?, ended = ? WHERE run = ?", (began, began + 100, run))
            database.execute(f"INSERT INTO attempt ({', '.join(second)}) VALUES ({', '.join('?' * len(second))})", list(second.values()))
            database.execute("DELETE FROM system_sample WHERE run = ?", (run,))
            key = database.execute("SELECT key FROM key WHERE name = 'cpu/percent'").fetchone()[0]
            database.executemany("INSERT INTO system_sample VALUES (?, ?, ?, ?)", ((run, key, began + start + i, i) for start in (0, 86400) for i in range(100)))
        series = self.get(f"runs/{id_}/system", points=20)["series"]["cpu/percent"]
        self.assertEqual(len(series["time"]), 20)
        for passed, wanted in zip(series["seconds"], (10 * i + 4.5 for i in range(20))):
            self.assertAlmostEqual(passed, wanted, delta=1)
        self.assertLess(series["time"][9], began + 100)
        self.assertGreater(series["time"][10], began + 86399)
        metrics = json.loads(self.runner("metrics", id_, "--system", "--json"))
        self.assertIn("cpu/percent", json.dumps(metrics))
        self.assertAlmostEqual(self.get(f"runs/{id_}")["seconds"], 200, delta=0.1)

    def test_points_without_an_x_value_are_counted(self):
        id_ = self.some_run("status:finished -name:lr_and*")
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            run = database.execute("SELECT run FROM run WHERE id = ?", (id_,)).fetchone()[0]
            key = database.execute("INSERT INTO key (name) VALUES ('seldom')").lastrowid
            steps = [row[0] for row in database.execute("SELECT step FROM metric JOIN key USING (key) WHERE run = ? AND name = 'loss' ORDER BY step", (run,))]
            database.executemany("INSERT INTO metric VALUES (?, ?, ?, ?)", ((run, key, step, 2 * step) for step in (steps[3], steps[-1])))
            database.execute("INSERT INTO metric_last VALUES (?, ?, ?, ?, ?, ?)", (run, key, steps[-1], 2 * steps[-1], 2 * steps[3], 2 * steps[-1]))
        curve = self.get("curves", runs=id_, metric="loss", x="seldom", pixels=1000)["curves"][0]
        self.assertEqual((curve["without_x"], curve["complete"]), (3, False))
        self.assertEqual(curve["x"], [2 * step for step in steps[3:]])

    def test_the_samples_of_a_bad_batch_are_told(self):
        id_ = self.some_run("status:failed -name:lr_and*")
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'nonfinite', ? FROM run WHERE id = ?", (time.time(), json.dumps({"message": "the loss is NaN", "samples": [769, 286, 5]}), id_))
        run = self.get(f"runs/{id_}")
        self.assertEqual(len(run["event_texts"]), len(run["events"]))
        text = "the loss is NaN (samples 769, 286, 5)"
        self.assertEqual(run["event_texts"][-1], text)
        self.assertIn(text, self.runner("show", id_))

    def test_every_address_of_the_index_exists(self):
        for route in self.get("")["api"]:
            if route["method"] == "GET" and "*" not in route["path"] and not route["path"].endswith("events"):
                self.assertNotIn(self.server.ask(route["path"].rstrip("/"))[0], (404, 405, 500), route)

    def test_events_tell_of_changes(self):
        id_ = self.some_run("status:running")
        stream, lines = listen(self.server)
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
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
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
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
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
            with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
                database.execute("UPDATE run SET config = ?, origins = ? WHERE run = ?", (*before, run))
                database.execute("DELETE FROM imported WHERE source = 'a.bundle'")

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
