"""The API of the server of `runner ui`.

    server_test.py RUNNER [unittest's arguments]
"""
import json
import os
import struct
import time
import unittest

from ui_server import listen
from with_server import WithServer


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

    def test_runs_are_grouped(self):
        for by in ("strategy", "status", "optimizer.lr", "data.shuffle", "group"):
            answer = self.get("groups", by=by)
            self.assertEqual(sum(group["runs"] for group in answer["groups"]), 46, by)
            self.assertEqual(answer["left_out"], 0)
            for group in answer["groups"]:  # the filter of a group finds its runs
                found = self.get("runs", filter=group["filter"], columns=by, limit=500)
                self.assertEqual((found["matching"], found["statuses"]), (group["runs"], group["statuses"]), group)
                losses = [run["loss"] for run in found["runs"] if isinstance(run["loss"], float)]
                self.assertEqual(group["loss"] and group["loss"]["runs"], len(losses) or None)
                if losses:
                    self.assertAlmostEqual(group["loss"]["mean"], sum(losses) / len(losses))
                    self.assertEqual([group["loss"]["least"], group["loss"]["greatest"]], [min(losses), max(losses)])
        tags = {group["value"]: group["runs"] for group in self.get("groups", by="tag", filter="status:finished")["groups"]}
        for tag, runs in tags.items():
            self.assertEqual(self.get("runs", filter=f"status:finished tag:{tag or 'none'}")["matching"], runs)
        for wrong, message in (({"by": "no_such_key"}, "by: "), ({"by": "name,status"}, "by: "), ({"by": "name", "filter": "statu:failed"}, "statu")):
            status, _, body = self.server.ask("/api/1/groups", **wrong)
            self.assertEqual(status, 400, wrong)
            self.assertIn(message, json.loads(body)["error"])

    def test_a_row_has_what_the_table_shows(self):
        run = self.get("runs", filter="status:running", limit=1)["runs"][0]
        self.assertGreater(run["eta_s"], 0)
        self.assertGreater(run["max_steps"], run["steps"])
        self.assertEqual(run["memory_limit"], 80 * 2**30)
        self.assertLessEqual(len(run["sparkline"]), 48)
        self.assertGreater(len(run["sparkline"]), 30)

    def test_columns_have_the_values_of_ls(self):
        id_ = self.some_run("status:failed -name:lr_and*")  # its last loss is NaN
        before = self.server.sql("SELECT name FROM run WHERE id = ?", id_)[0][0]
        self.server.sql("UPDATE run SET name = '[1,2]' WHERE id = ?", id_)
        columns = "id,name,data.shuffle,optimizer.betas,last(loss),best(val_loss),tag,archived,started,strategy,optimizer.lr"
        shown = {run["id"]: dict(zip(columns.split(","), run["cells"])) for run in self.get("runs", filter="-status:running", columns=columns, limit=500)["runs"]}
        listed = json.loads(self.runner("ls", "-status:running", "--columns", columns, "--json"))["runs"]
        self.assertEqual(shown, {run["id"]: run["cells"] for run in listed})
        self.assertEqual([shown[id_][name] for name in ("name", "data.shuffle", "optimizer.betas", "last(loss)")], ["[1,2]", True, [0.9, 0.95], "NaN"])
        self.server.sql("UPDATE run SET name = ? WHERE id = ?", before, id_)

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
        id_, started = self.server.sql("SELECT id, started FROM run WHERE status = 'finished' ORDER BY started DESC LIMIT 1")[0]
        self.server.sql("UPDATE run SET started = ? WHERE id = ?", time.time() - 57, id_)
        for filter_, matches in (("since:1m", True), ("before:1m", False)):
            self.assertEqual(id_ in [run["id"] for run in self.get("runs", filter=filter_, limit=500)["runs"]], matches)
        time.sleep(4.5)  # nothing is written meanwhile
        for filter_, matches in (("since:1m", False), ("before:1m", True)):
            self.assertEqual(id_ in [run["id"] for run in self.get("runs", filter=filter_, limit=500)["runs"]], matches, filter_)
        self.server.sql("UPDATE run SET started = ? WHERE id = ?", started, id_)

    def test_a_small_curve_of_huge_values(self):
        id_ = self.some_run("name:lr_and_width-000")
        place = "WHERE run = (SELECT run FROM run WHERE id = ?) AND key = (SELECT key FROM key WHERE name = 'loss') AND step = 1"
        before = self.server.sql(f"SELECT value FROM metric {place}", id_)[0][0]
        self.server.sql(f"UPDATE metric SET value = 1e300 {place}", id_)
        self.assertEqual(self.get("runs", filter=f"id:{id_}")["runs"][0]["sparkline"][0], 1e300)
        self.server.sql(f"UPDATE metric SET value = ? {place}", before, id_)

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

    def test_runs_are_named_in_all_addresses_as_on_the_command_line(self):
        run = self.get("runs", filter="status:finished", limit=1)["runs"][0]
        names = [run["id"], run["id"].split("-")[-1], run["name"]]
        found = json.loads(self.runner("show", run["name"], "--json"))["id"]
        for name, id_ in zip(names, (run["id"], run["id"], found)):
            self.assertEqual([one["id"] for one in self.get("compare", runs=name)["runs"]], [id_])
            self.assertEqual([one["run"] for one in self.get("curves", runs=name, metric="loss")["curves"]], [id_])
            self.assertEqual(self.get("metrics", runs=name)["runs"], 1)
            self.assertEqual([one["id"] for one in self.get("runs", runs=name)["runs"]], [id_])
        self.assertEqual(self.get("runs", runs="nobody")["unknown_runs"], ["nobody"])

    def test_without_a_file_the_log_is_what_the_terminal_showed(self):
        id_ = self.some_run()
        logs = os.path.join(self.get(f"runs/{id_}")["run_dir"], "logs")
        self.assertEqual(self.get(f"runs/{id_}/logs")["file"], "rank-0.log")
        with open(os.path.join(logs, "run.log"), "w", encoding="utf-8") as file:
            file.write("step 1  loss 2\n")
        try:
            answer = self.get(f"runs/{id_}/logs")
            self.assertEqual((answer["file"], [line["text"] for line in answer["lines"]]), ("run.log", ["step 1  loss 2"]))
        finally:
            os.remove(os.path.join(logs, "run.log"))

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
        with self.server.ledger() as database:
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
        with self.server.ledger() as database:
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
        fields = json.dumps({"message": "the loss is NaN", "samples": [769, 286, 5]})
        self.server.sql("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'nonfinite', ? FROM run WHERE id = ?", time.time(), fields, id_)
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
        self.server.sql("UPDATE run SET steps = steps + 10 WHERE id = ?", id_)
        began = time.monotonic()
        data = next(line for line in lines if line.startswith("data: {\"new\"") or line.startswith("data: {\"removed\"") or (line.startswith("data:") and id_ in line))
        self.assertLess(time.monotonic() - began, 4)
        self.assertEqual([run["id"] for run in json.loads(data[5:])["runs"]], [id_])
        stream.close()


if __name__ == "__main__":
    unittest.main()
