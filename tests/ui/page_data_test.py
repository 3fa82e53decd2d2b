"""The page of `runner ui` shows what is in the ledger: runs, plans, sweeps and running trainings against the ledger and against `runner`.

    page_data_test.py RUNNER [unittest's arguments]
"""
import json
import os
import subprocess
import tempfile
import time
import unittest

from in_chromium import CHOOSE, ROOT, RUNNER, InChromium
from ui_server import Server


class OneRun(InChromium):
    def test_what_links_it_to_other_runs(self):
        run, source, checked = [one["id"] for one in self.server.get("runs", filter="status:finished -name:lr_and*", limit=3)["runs"]]
        for source_id, target, kind in ((source, run, "rerun"), (run, checked, "evaluated")):
            self.server.sql("INSERT INTO edge (source, target, kind) SELECT a.run, b.run, ? FROM run AS a, run AS b WHERE a.id = ? AND b.id = ?", kind, source_id, target)
        for id_, name, other in ((run, "Rerun of", source), (source, "Reruns", run), (run, "Evaluations", checked), (checked, "Evaluation of", run)):
            page = self.page(f"/run/{id_}", "document.querySelector('.facts')")
            facts = page.run("[...document.querySelectorAll('.facts dt')].map((e) => [e.innerText, [...e.nextElementSibling.querySelectorAll('a')].map((a) => a.pathname)])")
            self.assertIn([name, ["/run/" + other]], facts)
            page.close()

    def test_the_time_it_took_is_the_same_everywhere(self):
        run = next(one for one in self.server.get("runs", filter="status:finished -name:lr_and*", limit=50)["runs"] if one["attempts"] == 2)
        page = self.page(f"/?filter=id:{run['id']}", "document.querySelectorAll('tr[data-id]').length == 1")
        took = page.run("document.querySelector('tr[data-id] td:last-child').innerText")
        page.press("j")
        page.press("Enter")
        page.wait("[...document.querySelectorAll('#drawer dt')].some((e) => e.innerText == 'Took')")
        self.assertEqual(page.run("[...document.querySelectorAll('#drawer dt')].find((e) => e.innerText == 'Took').nextElementSibling.innerText"), took)
        page = self.page(f"/run/{run['id']}", "document.querySelector('.headline')")
        self.assertIn(took, page.run("document.querySelector('.headline').innerText"))
        self.assert_clean(page)

    def test_a_run_of_another_program(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "other.csv")
            with open(file, "w", encoding="utf-8") as out:
                out.write("step,loss\n1,3.5\n2,2.5\n3,1.5\n")
            subprocess.run([RUNNER, "import", file], check=True, capture_output=True, env={**os.environ, "RUNNER_HOME": self.home})
        run = self.server.get("runs", filter="name:other", limit=1)["runs"][0]["id"]
        subprocess.run([RUNNER, "archive", run], check=True, capture_output=True, env={**os.environ, "RUNNER_HOME": self.home})
        for tab, text in (("", "none here: imported from"), ("logs", "without the files of its folder"), ("recipe", "This run has no recipe"), ("code", "Not known")):
            page = self.page(f"/run/{run}?tab={tab}", f"document.querySelector('main').innerText.includes({json.dumps(text)})")
            said = page.run("document.querySelector('main').innerText")
            for wrong in ("deleted", "runner rerun", "not in a git repository"):
                self.assertNotIn(wrong, said)
            self.assertTrue(page.run("[...document.querySelectorAll('dd')].every((e) => e.innerText)"))
            self.assert_clean(page)
            page.close()

        self.assertNotIn("", [row["key"] for row in self.server.get("compare", runs=f"{run},{self.names['run']}")["config"]])

    def test_the_samples_of_a_bad_batch(self):
        run = self.names["run"]
        fields = json.dumps({"message": "the loss is NaN", "samples": [769, 286]})
        self.server.sql("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'nonfinite', ? FROM run WHERE id = ?", time.time(), fields, run)
        page = self.page(f"/run/{run}?tab=events", "document.querySelector('tbody')?.innerText.includes('the loss is NaN (samples 769, 286)')")

    def test_events_have_units(self):
        run = self.names["run"]
        fields = json.dumps({"rank": 0, "step": 40, "final_loss": 1.7746127201960638, "train_seconds": 0.11537182900019616})
        self.server.sql("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'finished', ? FROM run WHERE id = ?", time.time(), fields, run)
        page = self.page(f"/run/{run}?tab=events", "document.querySelectorAll('tbody tr').length > 3")
        rows = page.run("[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].slice(1).map((cell) => cell.innerText))")
        self.assertIn(["finished", "0", "final_loss 1.77461, step 40, train_seconds 0.12 s"], rows)
        self.assertNotIn("sample", [row[0] for row in rows], "they have a tab")
        self.assert_clean(page)

    def test_samples_keep_their_lines_and_stay_text(self):
        run, other = [one["id"] for one in self.server.get("runs", filter="status:finished -name:lr_and*", limit=2)["runs"]]
        text = "<img src=x onerror=alert(1)> \u202e&amp;\n\n    indented"
        for fields in ({"step": 7000, "prompt": "<b>", "text": f"\n{text}\n"}, {"step": 8000, "prompt": [1, 2], "tokens": [1, 2, 30]}):
            self.server.sql("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'sample', ? FROM run WHERE id = ?", time.time(), json.dumps(fields), run)
        self.server.sql("DELETE FROM event WHERE kind = 'sample' AND run = (SELECT run FROM run WHERE id = ?)", other)
        page = self.page(f"/run/{run}?tab=samples", "document.querySelectorAll('.samples tbody tr').length == 3")
        rows = page.run("[...document.querySelectorAll('.samples tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))")
        self.assertEqual(rows[:2], [["8,000", "1 2", "1 2 30"], ["7,000", "<b>", text]])
        self.assertEqual(rows[2][1:], ["ROMEO.", "ROMEO.\nWhat light through yonder window breaks?"])
        self.assert_clean(page)
        page = self.page(f"/run/{other}", "document.querySelector('[data-tab=samples]')?.hidden")

    def test_files_are_saved_with_the_token(self):
        run = self.names["run"]
        with Server(RUNNER, self.home) as server:
            page = self.page_of(server, f"/run/{run}?tab=files", "document.querySelectorAll('.files button').length == 2 && document.querySelectorAll('.files tbody tr').length == 6", write=True)
            save = "[...document.querySelectorAll('main button')].find((e) => e.innerText == '{}').click()"
            name, content = self.download(page, save.format("artifacts/samples.txt"))
            self.assertEqual((name, content), ("samples.txt", b"ROMEO.\nWhat light through yonder window breaks?"))
            page = self.page_of(server, f"/plan/{run}", "document.querySelectorAll('main button.link').length == 1")
            self.assertEqual(self.download(page, save.format("trace-rank-0.json")), ("trace-rank-0.json", b'{"traceEvents": []}'))
            self.assert_clean(page)

    def test_a_run_that_can_go_on_says_how(self):
        run = self.server.get("runs", filter="status:failed -name:lr_and*", limit=1)["runs"][0]["id"]
        resume = f"[...document.querySelectorAll('.command code')].some((e) => e.innerText == 'runner resume {run}')"
        page = self.page(f"/run/{run}", "document.querySelector('.headline')")
        self.assertFalse(page.run(resume))
        os.makedirs(os.path.join(self.home, "runs", run, self.server.get(f"runs/{run}")["checkpoints"][0]["path"]))
        self.page(f"/run/{run}").wait(resume)

    def test_the_diff_to_another_run(self):
        one, other = [run["id"] for run in self.server.get("runs", filter="status:finished -name:lr_and*", limit=2)["runs"]]
        page = self.page(f"/run/{one}?tab=diff&with={other}", "document.querySelectorAll('.diff td.before').length > 3")
        shown = page.run("[...document.querySelectorAll('.diff tbody tr')].filter((e) => e.querySelector('td')).map((e) => [...e.cells].map((c) => c.title || c.innerText))")
        answer = self.server.get("compare", runs=f"{other},{one}")
        keys = [row["key"] for part in ("config", "code", "environment") for row in answer[part]]
        self.assertEqual([row[0] for row in shown[:len(keys)]], keys)
        results = shown[len(keys):]
        self.assertEqual([row[0] for row in results if "loss" in row[0]], ["last(val_loss)", "best(val_loss)", "last(loss)", "best(loss)"])
        self.assertTrue(all(a != b for _, a, b in results), "what is equal is hidden")
        self.assertEqual(page.run("document.querySelectorAll('.diff td.before, .diff td.after').length"), 2 * len(answer["config"]), "only keys of the recipe have colours")
        rate = next(row for row in shown if row[0] == "optimizer.lr")
        exact = next(row for row in answer["config"] if row["key"] == "optimizer.lr")["values"]
        for text, value in zip(rate[1:], exact):
            self.assertAlmostEqual(float(text), value, delta=1e-5 * value)
        third = self.server.get("runs", filter="status:failed -name:lr_and*", limit=1)["runs"][0]["id"]
        page.run(CHOOSE.format("Compare with", third))
        page.wait(f"location.search.includes('with={third}') && document.querySelector('.command code').innerText == 'runner diff {third} {one}'")
        self.assert_clean(page)

    def test_the_patch_of_the_working_tree(self):
        run = next(id_ for id_ in sorted(os.listdir(os.path.join(self.home, "runs"))) if os.path.exists(os.path.join(self.home, "runs", id_, "code.patch")))
        page = self.page(f"/run/{run}?tab=code", "document.querySelector('.source .add')")
        with open(os.path.join(self.home, "runs", run, "code.patch"), encoding="utf-8") as file:
            self.assertEqual(page.run("document.querySelector('.source').textContent").strip(), file.read().strip())
        self.assertEqual(page.run("[...document.querySelectorAll('.source .cut')].map((e) => e.innerText)[1]"), "-warmup_steps = 50")
        self.assert_clean(page)

    def test_tables_of_the_plan(self):
        pipeline = {"schedule": "1f1b", "micro_batches": 4, "wait_share": 0.2, "ranks": [{"blocks": "embedding, blocks.0", "work_share": 0.4, "memory_bytes": 2**20}, {"blocks": "blocks.1, head", "work_share": 0.6, "memory_bytes": 2**21}]}
        self.server.sql("UPDATE config SET content = json_set(content, '$.pipeline', json(?)) WHERE hash = (SELECT plan FROM run WHERE id = ?)", json.dumps(pipeline), self.names["run"])
        page = self.view("plan")
        tables = page.run("[...document.querySelectorAll('main table')].map((t) => [...t.rows].map((row) => [...row.cells].map((cell) => cell.innerText)))")
        self.assertIn([["Blocks", "Rank", "Work", "Memory"], ["embedding, blocks.0", "0", "40 %", "1.00 MiB"], ["blocks.1, head", "1", "60 %", "2.00 MiB"]], tables)
        self.assertIn(["blocks.0", "100 ms", "200 ms", "30.0 %"], next(table for table in tables if table[0][0] == "Block"))
        self.assertIn([["Outside of steps", "Times", "Total"], ["validation", "10", "4.2 s"]], tables)
        labels = page.run("[...document.querySelectorAll('.parts span')].map((e) => e.innerText).filter(Boolean)")
        self.assertTrue(len(labels) > 8 and all(label[0].isupper() for label in labels), labels)
        self.assert_clean(page)

    def test_predicted_beside_measured(self):
        run = self.names["run"]
        page, answer = self.view("plan"), self.server.get(f"runs/{run}/plan")
        label = page.run("document.querySelector('.bars').getAttribute('aria-label')")
        predicted, measured = answer["plan"]["memory_bytes_per_rank"] / 2**30, max(answer["measured"]["peak_memory_bytes_per_rank"]) / 2**30
        self.assertEqual(label, f"Memory per rank: predicted {predicted:.1f} GiB, measured {measured:.1f} GiB")
        self.assertIn(f"{'+' if measured > predicted else '−'}{abs(measured / predicted - 1) * 100:.1f} %", page.run("document.querySelector('.bars').innerText"))
        widths = page.run("[...document.querySelectorAll('.bars')[0].querySelectorAll('.stack')[0].children].map((e) => e.getBoundingClientRect().width)")
        shares = [value for value in answer["plan"]["memory_parts"].values() if value > 0]
        for width, share in zip(widths, shares):
            self.assertAlmostEqual(width / sum(widths), share / sum(shares), delta=0.02)
        rows = self.table(page, "Memory per rank")
        self.assertEqual(rows[0], ["bar", "part", "bytes"])
        self.assertEqual([float(row[2]) for row in rows[1:]], [*shares, max(answer["measured"]["peak_memory_bytes_per_rank"])])


class Sweep(InChromium):
    def test_axes_are_those_of_the_space(self):
        page = self.view("sweep")
        texts = self.texts(page, "Parallel coordinates")
        for choice in ("256", "512", "768", "1024", "adamw", "lion"):  # each choice has a place of its own
            self.assertEqual(texts.count(choice), 1, texts)
        self.assertNotIn("640", texts)
        self.assertIn("0.001", texts)  # the learning rate is logarithmic
        self.assertIn("0.01", texts)
        self.assert_clean(page)

    def test_the_best_so_far_counts_as_trials_are_numbered(self):
        for ended, name in (("number", "trial"), ("-number", "trials finished")):
            self.server.sql(f"UPDATE trial SET ended = started + {ended} * 1e6")
            self.assertIn(name, self.texts(self.view("sweep"), "Best so far"))


class Live(InChromium):
    """What a training writes appears while it goes on, also when something changes every second."""

    step, value = 1_000_000, 1.5

    def setUp(self):
        Live.value += 1
        self.run_id = self.server.get("runs", filter="status:running", limit=1)["runs"][0]["id"]

    def write(self, *metrics):
        """A step with a value of the loss, and of further metrics."""
        Live.step += 1
        with self.server.ledger() as database:
            row = database.execute("SELECT run FROM run WHERE id = ?", (self.run_id,)).fetchone()[0]
            for name in ("loss", *metrics):
                database.execute("INSERT OR IGNORE INTO key (name) VALUES (?)", (name,))
                key = database.execute("SELECT key FROM key WHERE name = ?", (name,)).fetchone()[0]
                database.execute("INSERT INTO metric VALUES (?, ?, ?, ?)", (row, key, self.step, self.value))
                database.execute("INSERT INTO metric_last VALUES (?1, ?2, ?3, ?4, ?4, ?4) ON CONFLICT DO UPDATE SET step = excluded.step, value = excluded.value", (row, key, self.step, self.value))
            database.execute("UPDATE run SET steps = ? WHERE run = ?", (self.step, row))

    def shows(self, page, condition):
        """Writes each second until the page shows it."""
        page.wait("document.querySelector('#live').classList.contains('on')")
        page.settle(2.2)
        for _ in range(10):
            self.write("brand_new_metric")
            page.settle(0.8)
            if page.run(condition):
                return
        self.fail(f"not shown: {condition}")

    def test_curves_of_compare(self):
        page = self.page(f"/compare?runs={self.run_id}&metrics=loss", "document.querySelector('.chart canvas')")
        self.shows(page, f"document.querySelector('.plot').getAttribute('aria-label').includes('last {self.value:.3f}')")
        self.assert_clean(page)

    def test_a_run_that_fails_is_told_in_every_view(self):
        page = self.view("sweep")
        self.shows(page, "true")
        page.settle(1.5)
        self.server.sql("UPDATE run SET status = 'failed' WHERE id = ?", self.run_id)
        page.wait(f"document.querySelector('#toasts a')?.innerText == 'Run {self.run_id} has failed'")
        self.server.sql("UPDATE run SET status = 'running' WHERE id = ?", self.run_id)
        self.assert_clean(page)

    def test_a_metric_that_a_run_did_not_have_before(self):
        page = self.page(f"/run/{self.run_id}", "document.querySelectorAll('.chart canvas').length > 3")
        page.run("document.querySelector('.head .button').focus()")
        self.shows(page, "[...document.querySelectorAll('.chart')].some((e) => e.dataset.metric == 'brand_new_metric')")
        self.assertTrue(page.run("document.activeElement.matches('.head .button')"), "the focus stays")
        page.run("document.activeElement.blur()")
        self.shows(page, "document.querySelector('.headline').innerText.includes('1,000,')")
        self.assert_clean(page)

    def test_charts_that_are_not_on_the_screen_are_not_asked_for(self):
        page = self.page(f"/run/{self.run_id}", "document.querySelectorAll('.chart canvas').length > 3", height=500)
        before = len(page.requests)
        self.shows(page, f"document.querySelector('.plot').getAttribute('aria-label').includes('last {self.value:.3f}')")
        asked = {url.split("metric=")[1].split("&")[0] for url in page.requests[before:] if "/curves" in url}
        self.assertIn("loss", asked)
        self.assertNotIn("step_seconds", asked)
        page.run("[...document.querySelectorAll('.chart')].find((e) => e.dataset.metric == 'step_seconds').scrollIntoView()")
        page.settle(1)
        self.assertTrue(any("metric=step_seconds" in url for url in page.requests[before:]))


class RealRun(InChromium):
    """A training that really runs, of the tabular recipe."""

    def train(self, *options):
        return subprocess.Popen([RUNNER, "run", os.path.join(ROOT, "recipes/tabular.toml"), *options], env={**os.environ, "RUNNER_HOME": self.home}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def newest(self, status, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            runs = self.server.get("runs", filter=f"name:tabular status:{status}", limit=1)["runs"]
            if runs and runs[0]["steps"] > 20:
                return runs[0]["id"]
            time.sleep(0.3)
        self.fail(f"no run became {status}")

    def test_a_running_run_is_stopped(self):
        training = self.train("--set", "train.max_epochs=1000000", "--set", "train.log_every_n_steps=50", "--set", "train.val_check_interval=2000")
        try:
            run = self.newest("running")
            page = self.page(f"/run/{run}", "document.querySelectorAll('.chart canvas').length > 1", write=True)
            before = page.run("document.querySelector('.headline').innerText")
            page.wait(f"document.querySelector('.headline').innerText != {json.dumps(before)}", 20)  # it counts while the run goes on
            page.run("[...document.querySelectorAll('button')].find((e) => e.innerText == 'Stop…').click()")
            page.wait("document.querySelector('.popover .danger')")
            page.run("document.querySelector('.popover .danger').click()")
            page.wait("document.querySelector('#toasts').innerText.includes('asked to stop')")
            self.assertEqual(training.wait(60), 130)
            page.wait("document.querySelector('.head .status').title == 'interrupted' && ![...document.querySelectorAll('button')].some((e) => e.innerText == 'Stop…')", 20)
            record = json.loads(subprocess.run([RUNNER, "show", run, "--json"], capture_output=True, text=True, check=True, env={**os.environ, "RUNNER_HOME": self.home}).stdout)
            self.assertEqual((record["status"], record["message"]), ("interrupted", "stopped on the web page"))
            self.assertGreater(len(record["checkpoints"]), 0, "it wrote a checkpoint")
            self.assertEqual(record["checkpoints"][-1]["step"], record["steps"])
            self.assert_clean(page)
        finally:
            if training.poll() is None:
                training.kill()
            training.stderr.close()

    def test_what_if_the_devices_were_others(self):
        with self.train("--set", "train.max_epochs=5") as training:
            self.assertEqual(training.wait(100), 0)
        run = self.newest("finished")
        kind = next(name for name in self.server.get("devices")["devices"] if "h100" in name)
        page = self.page(f"/plan/{run}", "document.querySelector('select[aria-label=\"Device kind\"]').options.length > 1")
        page.run(CHOOSE.format("Device kind", kind))
        page.run("document.querySelector('input[aria-label=\"Devices of a node\"]').value = 4")
        page.run("document.querySelector('form button[type=submit]').click()")
        page.wait("document.querySelectorAll('tr.chosen').length == 1", 30)
        wanted = json.loads(subprocess.run([RUNNER, "recommend", os.path.join(ROOT, "recipes/tabular.toml"), "--device-kind", kind, "--devices", "4", "--json", "--set", "train.max_epochs=5"], capture_output=True, text=True, check=True).stdout)
        chosen = next(one for one in wanted["candidates"] if one["verdict"] == "chosen")
        self.assertEqual(page.run("document.querySelector('tr.chosen td').firstChild.data"), chosen["label"])
        self.assertEqual(page.run("document.querySelector('tr.chosen').closest('table').querySelector('th:nth-child(4) .unit').innerText"), "samples/s")
        self.assertRegex(page.run("document.querySelector('tr.chosen td:nth-child(4)').innerText"), r"^[\d.]+( [kMG])?$")
        self.assertEqual("of context" in page.run("document.querySelector('main').innerText"), chosen["memory_parts"]["context"] > 0)
        self.assertEqual(page.run("document.querySelectorAll('tr.chosen')[0].closest('tbody').rows.length"), len(wanted["candidates"]))
        self.assertIn(f"device={kind}", page.run("location.search"))
        again = self.page(page.run("location.pathname + location.search"))
        again.wait("document.querySelectorAll('tr.chosen').length == 1", 30)
        self.assert_clean(page)


if __name__ == "__main__":
    unittest.main()
