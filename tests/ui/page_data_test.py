"""The page of `runner ui` shows what is in the ledger: values of charts, tables and files against the ledger and against `runner`.

    page_data_test.py RUNNER [unittest's arguments]
"""
import json
import os
import re
import sqlite3
import statistics
import struct
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

import demo_ledger
from in_chromium import ROOT, RUNNER, InChromium
from ui_server import Server

CHOOSE = "(() => {{ const e = document.querySelector('select[aria-label=\"{}\"]'); e.value = '{}'; e.dispatchEvent(new Event('change')); }})()"


class Exports(InChromium):
    def test_every_chart_of_every_view_is_saved_as_png_svg_and_csv(self):
        for name, charts in (("compare", 4), ("compare_many", 4), ("run", 7), ("system", 9), ("sweep", 3), ("plan", 2)):
            page = self.view(name)
            titles = page.run("[...document.querySelectorAll('main button')].map((e) => e.getAttribute('aria-label')).filter((e) => e?.startsWith('Export ')).map((e) => e.slice(7))")
            self.assertGreaterEqual(len(titles), charts, name)
            for title in titles:
                with self.subTest(f"{name}: {title}"):
                    png = self.export(page, title, "png")
                    self.assertTrue(png.startswith(b"\x89PNG"))
                    width, height = struct.unpack(">II", png[16:24])
                    box = page.run(f"(() => {{ const r = [...document.querySelectorAll('.chart')].find((e) => e.innerText.startsWith({json.dumps(title)}))?.querySelector('.plot').getBoundingClientRect(); return r && [r.width, r.height]; }})()")
                    if box:  # bars of HTML have no plot
                        self.assertAlmostEqual(width, 2 * box[0], delta=2)
                        self.assertAlmostEqual(height, 2 * box[1], delta=2)
                    svg = xml.etree.ElementTree.fromstring(self.export(page, title, "svg"))
                    self.assertTrue(svg.tag.endswith("svg"))
                    self.assertGreater(len(list(svg.iter())), 10)
                    rows = self.table(page, title)
                    self.assertGreater(len(rows), 3)
                    self.assertEqual({len(row) for row in rows}, {len(rows[0])})
            self.assert_clean(page)
            page.close()


class Curves(InChromium):
    """A ledger in which two runs have more points than a chart has columns."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.skipped:
            return
        cls.long_folder = tempfile.TemporaryDirectory()
        demo_ledger.make(cls.long_folder.name, runs=6, points=60, long=2, sweep=0)
        cls.long_server = Server(RUNNER, cls.long_folder.name, "--open-read")

    @classmethod
    def tearDownClass(cls):
        if not cls.skipped:
            cls.long_server.stop()
            cls.long_folder.cleanup()
        super().tearDownClass()

    def points(self, home, run, name):
        with sqlite3.connect(os.path.join(home, "ledger.db")) as database:
            return database.execute("SELECT step, value FROM metric JOIN run USING (run) JOIN key USING (key) WHERE run.id = ? AND key.name = ? AND value IS NOT NULL ORDER BY step", (run, name)).fetchall()

    def test_a_zoom_shows_every_point(self):
        run = self.long_server.get("runs", limit=1)["runs"][0]["id"]
        page = self.page_of(self.long_server, f"/compare?runs={run}&metrics=loss")
        page.wait("document.querySelector('.chart canvas')")
        page.settle(0.5)
        everything = self.points(self.long_folder.name, run, "loss")
        self.assertEqual(len(everything), 10_000)
        drawn = self.long_server.get("curves", runs=run, metric="loss", pixels=page.run("document.querySelector('.plot').clientWidth"))["curves"][0]
        self.assertLess(len(drawn["x"]), 2_000, "the whole curve is reduced")
        self.assertEqual(max(drawn["y"]), max(value for _, value in everything), "but keeps its greatest value")
        whole = [(int(float(row[2])), float(row[3])) for row in self.table(page, "loss")[1:]]
        self.assertEqual(whole, everything, "the file has all points")
        left, top, width, height = page.run("(() => { const r = document.querySelector('.plot').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
        page.drag(left + width * 0.5, top + height * 0.5, left + width * 0.53, top + height * 0.5)
        page.settle(1)
        request = [url for url in page.requests if "/curves" in url][-1]
        low, high = (float(request.split(name + "=")[1].split("&")[0]) for name in ("from", "to"))
        self.assertTrue(200 < high - low < 400, (low, high))
        shown = [(int(float(row[2])), float(row[3])) for row in self.table(page, "loss")[1:]]
        self.assertEqual(shown, [(step, value) for step, value in everything if low <= step <= high])
        self.assert_clean(page)

    def test_a_line_goes_on_to_its_neighbours_outside_of_a_zoom(self):
        run = self.names["run"]
        points = self.points(self.home, run, "val_loss")
        (x0, y0), (x1, y1) = points[3:5]
        low, high = x0 + (x1 - x0) // 4, x1 - (x1 - x0) // 4  # no validation is between them
        page = self.page(f"/compare?runs={run}&metrics=val_loss&from={low}&to={high}")
        page.wait("document.querySelector('.chart canvas')")
        option = "echarts.getInstanceByDom(document.querySelector('.plot > div')).getOption()"
        self.assertEqual(page.run(f"[...{option}.series[0].data].slice(0, 4)"), [x0, y0, x1, y1])
        self.assertEqual(page.run(f"[{option}.xAxis[0].min, {option}.xAxis[0].max]"), [low, high])
        ends = [y0 + (y1 - y0) * (x - x0) / (x1 - x0) for x in (low, high)]
        least, greatest = page.run(f"[{option}.yAxis[0].min, {option}.yAxis[0].max]")
        self.assertTrue(least <= min(ends) and max(ends) <= greatest, (least, ends, greatest))
        self.assertLess(greatest - least, 3 * (max(ends) - min(ends)), "the axis fits what is seen")
        self.assertEqual(self.table(page, "val_loss"), [["run", "name", "step", "val_loss"]], "the file has the points of the range")
        self.assert_clean(page)

    def test_texts_of_axes(self):
        """The first and the last step, round numbers of one unit, nothing that is cut."""
        run = self.names["run"]
        page = self.page(f"/compare?runs={run}&metrics=loss,memory_bytes,tokens_per_s,lr")
        page.wait("document.querySelectorAll('.chart canvas').length == 4")
        page.settle(0.3)
        for name, unit in (("loss", r""), ("memory_bytes", r" GiB"), ("tokens_per_s", r" k"), ("lr", r"(e-\d+)?")):
            svg = xml.etree.ElementTree.fromstring(self.export(page, name, "svg"))
            texts = [(one, "".join(one.itertext())) for one in svg.iter() if one.tag.endswith("text")]
            said = [text for _, text in texts]
            steps = [step for step, _ in self.points(self.home, run, name)]
            for step in (steps[0], steps[-1]):
                self.assertIn(f"{step:,}", said)
            self.assertEqual(said.count("step"), 1)
            values = [text for element, text in texts if element.get("text-anchor") == "end" and text not in (f"{steps[-1]:,}",)]
            self.assertGreater(len(values), 2, said)
            for text in values:
                self.assertRegex(text, rf"^(0|[\d.]{{1,6}}{unit})$")
            numbers = sorted(float(text.removesuffix(" GiB").removesuffix(" k")) for text in values)
            self.assertEqual(len({round(b - a, 9) for a, b in zip(numbers, numbers[1:])}), 1, numbers)
        self.assert_clean(page)

    def test_the_x_axis_is_tokens_time_or_epochs(self):
        run = self.names["run"]
        page = self.page(f"/compare?runs={run}&metrics=loss")
        page.wait("document.querySelector('.chart canvas')")
        self.assertEqual(page.run("[...document.querySelector('select[aria-label=\"x axis\"]').options].map((e) => e.innerText)"), ["step", "tokens", "time", "epoch"])
        losses = dict(self.points(self.home, run, "loss"))
        for x in ("tokens", "seconds", "epoch"):
            page.run(CHOOSE.format("x axis", x))
            page.wait(f"document.querySelector('.plot').getAttribute('aria-label').includes('by {x}, 1 curve')")
            rows = self.table(page, "loss")
            self.assertEqual(rows[0], ["run", "name", x, "loss"])
            self.assertEqual([(float(a), float(b)) for _, _, a, b in rows[1:]], [(value, losses[step]) for step, value in self.points(self.home, run, x)])
        self.assertIn("x=epoch", page.run("location.search"), "the axis is kept in the address")
        self.assert_clean(page)

    def test_marks_and_missing_points_are_explained(self):
        run = self.server.get("runs", filter="status:failed -name:lr_and*", limit=1)["runs"][0]["id"]
        page = self.page(f"/compare?runs={run}&metrics=loss")
        page.wait("document.querySelector('.chart-foot')?.innerText.includes('◆ NaN')")
        count = self.server.get("curves", runs=run, metric="loss")["curves"][0]["nonfinite"]["count"]
        self.assertIn(f"{count} value", page.run("document.querySelector('.chart-foot').innerText"))
        self.assertEqual([row[3] for row in self.table(page, "loss")].count("NaN"), count)
        run = self.names["run"]
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            row, key = database.execute("SELECT run, key FROM run, key WHERE id = ? AND key.name = 'tokens'", (run,)).fetchone()
            gone = database.execute("SELECT step, value FROM metric WHERE run = ? AND key = ? ORDER BY step LIMIT 5", (row, key)).fetchall()
            database.execute("DELETE FROM metric WHERE run = ? AND key = ? AND step <= ?", (row, key, gone[-1][0]))
        page = self.page(f"/compare?runs={run}&metrics=loss&x=tokens")
        page.wait("document.querySelector('.chart-foot')?.innerText.startsWith('5 points are left out')")
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.executemany("INSERT INTO metric VALUES (?, ?, ?, ?)", ((row, key, *point) for point in gone))
        self.assert_clean(page)

    def test_no_two_runs_of_a_chart_have_the_same_colour(self):
        runs = [run["id"] for run in self.server.get("runs", filter="status:finished -name:lr_and*", limit=8)["runs"]]
        colours = "[...document.querySelectorAll('{} .swatch')].map((e) => e.style.getPropertyValue('--colour'))"
        of_run = {}
        for order in (list(reversed(runs)), runs[::2] + runs[1::2], runs):  # the colours are those of the runs, whatever was seen before
            page = self.page(f"/compare?runs={','.join(order)}&metrics=loss")
            page.wait("document.querySelectorAll('.legend button').length == 8 && document.querySelectorAll('thead .swatch').length == 8")
            legend = page.run(colours.format(".legend"))
            names = page.run("[...document.querySelectorAll('thead a')].map((e) => e.pathname)")
            heads = dict(zip(names, page.run(colours.format("thead"))))
            self.assertEqual(of_run or heads, heads)
            of_run = heads
        self.assertEqual(len(set(legend)), 8)
        self.assertEqual(page.run(colours.format("thead")), legend)
        page.run(CHOOSE.format("Group by", "strategy"))
        page.wait("document.querySelectorAll('.legend button').length < 8")
        heads = page.run(colours.format("thead"))
        self.assertNotEqual(heads, legend, "the heads have the colours of the groups")
        self.assertTrue(set(page.run(colours.format(".legend"))) <= set(heads))
        name, text = self.download(page, "[...document.querySelectorAll('button')].find((e) => e.innerText == 'Save as CSV').click()")
        self.assertEqual(name, "differences.csv")
        self.assertEqual(text.decode().splitlines()[0], ",".join(["key", *runs]))
        self.assertTrue(all("%2C" not in url for url in page.requests), "commas take three bytes of an address that has a greatest length")
        self.assert_clean(page)

    def test_bands_are_the_quantiles_of_the_curves(self):
        runs = [run["id"] for run in self.server.get("runs", filter="status:finished -name:lr_and*", limit=9)["runs"]]
        page = self.page(f"/compare?runs={','.join(runs)}&metrics=loss&bands=1")
        page.wait("document.querySelector('.chart canvas') && document.querySelector('.legend')")
        page.settle(0.5)
        rows = self.table(page, "loss")
        self.assertEqual(rows[0], ["group", "step", "p10", "median", "p90"])
        curves = [self.points(self.home, run, "loss") for run in runs]
        low, high, columns = min(c[0][0] for c in curves), max(c[-1][0] for c in curves), 120
        width = (high - low) / columns
        self.assertEqual(len(rows), columns + 1)

        def column(curve, number):
            """The mean of the points in a column of the range; between two points, on the line between them."""
            inside = [value for step, value in curve if low + number * width <= step < low + (number + 1) * width or (number == columns - 1 and step == high)]
            if inside:
                return statistics.fmean(inside)
            middle = low + (number + 0.5) * width
            before, after = [p for p in curve if p[0] < middle], [p for p in curve if p[0] > middle]
            if not before or not after:
                return None
            (x0, y0), (x1, y1) = before[-1], after[0]
            return y0 + (y1 - y0) * (middle - x0) / (x1 - x0)

        for number, (group, x, *values) in enumerate(rows[1:]):
            self.assertEqual(group, "all")
            self.assertAlmostEqual(float(x), low + (number + 0.5) * width, places=6)
            present = [value for value in (column(curve, number) for curve in curves) if value is not None]
            # numpy.quantile's default is the method that the statistics module names inclusive.
            wanted = [*([present[0]] * 3 if len(present) == 1 else [statistics.quantiles(present, n=10, method="inclusive")[at] for at in (0, 4, 8)])]
            for value, exact in zip(map(float, values), wanted):
                self.assertAlmostEqual(value, exact, places=9, msg=f"column {number}")
        self.assert_clean(page)

    def test_curves_are_grouped_and_coloured_by_a_key(self):
        runs = self.server.get("runs", filter="limit:12 -name:lr_and*", columns="lr_scheduler.name")["runs"]
        values = {run["id"]: run["cells"][0] for run in runs}
        self.assertEqual(set(values.values()), {"cosine", "linear"})
        page = self.page(f"/compare?runs={','.join(values)}&metrics=loss")
        page.wait("document.querySelectorAll('.legend button').length == 12 && [...document.querySelector('select[aria-label=\"Group by\"]').options].some((e) => e.value == 'lr_scheduler.name')")
        page.run(CHOOSE.format("Group by", "lr_scheduler.name"))
        page.wait("document.querySelectorAll('.legend button').length == 2")
        self.assertEqual(page.run("[...document.querySelectorAll('.legend button')].map((e) => e.innerText)"), ["cosine", "linear"])
        swatches = page.run("[...document.querySelectorAll('.legend .swatch')].map((e) => e.style.getPropertyValue('--colour'))")
        page.settle(0.3)
        svg = self.export(page, "loss", "svg").decode()
        strokes = {colour for colour in svg.split('stroke="')[1:] for colour in [colour.split('"')[0]]}
        self.assertTrue(set(swatches) <= strokes, (swatches, strokes))
        page.run("document.querySelectorAll('.legend button')[0].click()")  # hides one group
        page.wait(f"document.querySelector('.plot').getAttribute('aria-label').includes('{sum(value == 'linear' for value in values.values())} curves')")
        self.assertEqual({row[0] for row in self.table(page, "loss")[1:]}, {run for run, value in values.items() if value == "linear"})
        again = self.page(page.run("location.pathname + location.search"))
        again.wait("document.querySelectorAll('.legend button').length == 2")
        self.assert_clean(page)

    def test_smoothing_keeps_the_raw_curve(self):
        page = self.page(f"/compare?runs={self.names['run']}&metrics=loss&smoothing=0.8")
        page.wait("document.querySelector('.chart canvas')")
        page.settle(0.3)
        svg = self.export(page, "loss", "svg").decode()
        self.assertIn('stroke-opacity="0.25"', svg)
        self.assertEqual([float(row[3]) for row in self.table(page, "loss")[1:]], [value for _, value in self.points(self.home, self.names["run"], "loss")])


class System(InChromium):
    def test_readings_of_the_machine_and_its_gpus(self):
        run = next(one["id"] for one in self.server.get("runs", filter="status:finished strategy:fsdp -name:lr_and*", limit=50)["runs"] if one["ranks"] >= 4)
        page = self.page(f"/run/{run}?tab=system")
        page.wait("document.querySelectorAll('.chart canvas').length == 15")
        titles = page.run("[...document.querySelectorAll('.chart h3')].map((e) => e.firstChild.data)")
        self.assertEqual(titles[:6], ["GPU utilization", "GPU memory", "GPU power", "GPU temperature", "GPU clock", "GPU throttled"])
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            readings = database.execute("SELECT name, time, value FROM system_samples WHERE run = ? AND name LIKE 'gpu/%/power_watts' ORDER BY name, time", (run,)).fetchall()
        rows = self.table(page, "GPU power")
        self.assertEqual(rows[0], ["time", "series", "mean", "least", "greatest"])
        self.assertEqual([(f"gpu/{row[1].split()[1]}/power_watts", float(row[0]), float(row[2])) for row in rows[1:]], readings)
        last = page.run("[...document.querySelectorAll('.plot')][2].getAttribute('aria-label')")
        for gpu in range(4):
            self.assertRegex(last, rf"GPU {gpu} \d{{3}} W")
        left, top, width, height = page.run("(() => { const r = document.querySelectorAll('.plot')[0].getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
        page.mouse("mouseMoved", left + width / 2, top + height / 2)
        page.wait("!document.querySelector('.readout').hidden && document.querySelectorAll('.readout div').length == 4 && document.querySelector('.readout').innerText.includes('%')")
        self.assert_clean(page)

    def test_a_short_peak_of_many_readings_is_kept(self):
        run = self.names["run"]
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            row, key = database.execute("SELECT run FROM run WHERE id = ?", (run,)).fetchone()[0], database.execute("INSERT INTO key (name) VALUES ('test/many_percent')").lastrowid
            start = database.execute("SELECT min(time) FROM system_sample WHERE run = ?", (row,)).fetchone()[0]
            database.executemany("INSERT INTO system_sample VALUES (?, ?, ?, ?)", ((row, key, start + i / 10, 99.5 if i == 7777 else 10.0) for i in range(20_000)))
        series = self.server.get(f"runs/{run}/system")["series"]["test/many_percent"]
        self.assertLessEqual(len(series["time"]), 600)
        self.assertEqual((max(series["high"]), min(series["low"])), (99.5, 10.0))
        self.assertEqual(series["time"], sorted(series["time"]))


    def test_one_reading_and_two_attempts(self):
        """The axis is the time that the run took: it has no pauses, and begins with zero."""
        run = self.server.get("runs", filter="status:lost,preempted,interrupted", limit=1)["runs"][0]["id"]
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            row, key = database.execute("SELECT run, key FROM run, key WHERE id = ? AND key.name = 'cpu/percent'", (run,)).fetchone()
            database.execute("DELETE FROM system_sample WHERE run = ?", (row,))
            began = database.execute("SELECT min(started) FROM attempt WHERE run = ?", (row,)).fetchone()[0]
            database.execute("INSERT INTO system_sample VALUES (?, ?, ?, 50)", (row, key, began + 30))
        page = self.page(f"/run/{run}?tab=system")
        page.wait("document.querySelectorAll('.chart canvas').length == 1")
        svg = xml.etree.ElementTree.fromstring(self.export(page, "CPU of the machine", "svg"))
        texts = ["".join(one.itertext()) for one in svg.iter() if one.tag.endswith("text")]
        times = [text for text in texts if re.fullmatch(r"\d+ ?s", text)]
        self.assertTrue(times and all(float(text.rstrip(" s")) <= 30 for text in times), texts)
        self.assert_clean(page)


class OneRun(InChromium):
    def test_what_links_it_to_other_runs(self):
        run, source, checked = [one["id"] for one in self.server.get("runs", filter="status:finished -name:lr_and*", limit=3)["runs"]]
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            for source_id, target, kind in ((source, run, "rerun"), (run, checked, "evaluated")):
                database.execute("INSERT INTO edge (source, target, kind) SELECT a.run, b.run, ? FROM run AS a, run AS b WHERE a.id = ? AND b.id = ?", (kind, source_id, target))
        for id_, name, other in ((run, "Rerun of", source), (source, "Reruns", run), (run, "Evaluations", checked), (checked, "Evaluation of", run)):
            page = self.page(f"/run/{id_}")
            page.wait("document.querySelector('.facts')")
            facts = page.run("[...document.querySelectorAll('.facts dt')].map((e) => [e.innerText, [...e.nextElementSibling.querySelectorAll('a')].map((a) => a.pathname)])")
            self.assertIn([name, ["/run/" + other]], facts)
            page.close()

    def test_the_time_it_took_is_the_same_everywhere(self):
        run = next(one for one in self.server.get("runs", filter="status:finished -name:lr_and*", limit=50)["runs"] if one["attempts"] == 2)
        page = self.page(f"/?filter=id:{run['id']}")
        page.wait("document.querySelectorAll('tr[data-id]').length == 1")
        took = page.run("document.querySelector('tr[data-id] td:last-child').innerText")
        page.press("j")
        page.press("Enter")
        page.wait("[...document.querySelectorAll('#drawer dt')].some((e) => e.innerText == 'Took')")
        self.assertEqual(page.run("[...document.querySelectorAll('#drawer dt')].find((e) => e.innerText == 'Took').nextElementSibling.innerText"), took)
        page = self.page(f"/run/{run['id']}")
        page.wait("document.querySelector('.headline')")
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
            page = self.page(f"/run/{run}?tab={tab}")
            page.wait(f"document.querySelector('main').innerText.includes({json.dumps(text)})")
            said = page.run("document.querySelector('main').innerText")
            for wrong in ("deleted", "runner rerun", "not in a git repository"):
                self.assertNotIn(wrong, said)
            self.assertTrue(page.run("[...document.querySelectorAll('dd')].every((e) => e.innerText)"))
            self.assert_clean(page)
            page.close()

        self.assertNotIn("", [row["key"] for row in self.server.get("compare", runs=f"{run},{self.names['run']}")["config"]])

    def test_the_samples_of_a_bad_batch(self):
        run = self.names["run"]
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'nonfinite', ? FROM run WHERE id = ?", (time.time(), json.dumps({"message": "the loss is NaN", "samples": [769, 286]}), run))
        page = self.page(f"/run/{run}?tab=events")
        page.wait("document.querySelector('tbody')?.innerText.includes('the loss is NaN (samples 769, 286)')")

    def test_events_have_units(self):
        run = self.names["run"]
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'finished', ? FROM run WHERE id = ?",
                             (time.time(), json.dumps({"rank": 0, "step": 40, "final_loss": 1.7746127201960638, "train_seconds": 0.11537182900019616}), run))
        page = self.page(f"/run/{run}?tab=events")
        page.wait("document.querySelectorAll('tbody tr').length > 3")
        rows = page.run("[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].slice(1).map((cell) => cell.innerText))")
        self.assertIn(["finished", "0", "final_loss 1.77461, step 40, train_seconds 0.12 s"], rows)
        self.assertNotIn("sample", [row[0] for row in rows], "they have a tab")
        self.assert_clean(page)

    def test_samples_keep_their_lines_and_stay_text(self):
        run, other = [one["id"] for one in self.server.get("runs", filter="status:finished -name:lr_and*", limit=2)["runs"]]
        text = "<img src=x onerror=alert(1)> \u202e&amp;\n\n    indented"
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            for fields in ({"step": 7000, "prompt": "<b>", "text": f"\n{text}\n"}, {"step": 8000, "prompt": [1, 2], "tokens": [1, 2, 30]}):
                database.execute("INSERT INTO event (run, time, kind, fields) SELECT run, ?, 'sample', ? FROM run WHERE id = ?", (time.time(), json.dumps(fields), run))
            database.execute("DELETE FROM event WHERE kind = 'sample' AND run = (SELECT run FROM run WHERE id = ?)", (other,))
        page = self.page(f"/run/{run}?tab=samples")
        page.wait("document.querySelectorAll('.samples tbody tr').length == 3")
        rows = page.run("[...document.querySelectorAll('.samples tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))")
        self.assertEqual(rows[:2], [["8,000", "1 2", "1 2 30"], ["7,000", "<b>", text]])
        self.assertEqual(rows[2][1:], ["ROMEO.", "ROMEO.\nWhat light through yonder window breaks?"])
        self.assert_clean(page)
        page = self.page(f"/run/{other}")
        page.wait("document.querySelector('[data-tab=samples]')?.hidden")

    def test_files_are_saved_with_the_token(self):
        run = self.names["run"]
        with Server(RUNNER, self.home) as server:
            page = self.page_of(server, f"/run/{run}?tab=files", write=True)
            page.wait("document.querySelectorAll('.files button').length == 2 && document.querySelectorAll('.files tbody tr').length == 6")
            save = "[...document.querySelectorAll('main button')].find((e) => e.innerText == '{}').click()"
            name, content = self.download(page, save.format("artifacts/samples.txt"))
            self.assertEqual((name, content), ("samples.txt", b"ROMEO.\nWhat light through yonder window breaks?"))
            page = self.page_of(server, f"/plan/{run}")
            page.wait("document.querySelectorAll('main button.link').length == 1")
            self.assertEqual(self.download(page, save.format("trace-rank-0.json")), ("trace-rank-0.json", b'{"traceEvents": []}'))
            self.assert_clean(page)

    def test_a_run_that_can_go_on_says_how(self):
        run = self.server.get("runs", filter="status:failed -name:lr_and*", limit=1)["runs"][0]["id"]
        resume = f"[...document.querySelectorAll('.command code')].some((e) => e.innerText == 'runner resume {run}')"
        page = self.page(f"/run/{run}")
        page.wait("document.querySelector('.headline')")
        self.assertFalse(page.run(resume))
        os.makedirs(os.path.join(self.home, "runs", run, self.server.get(f"runs/{run}")["checkpoints"][0]["path"]))
        self.page(f"/run/{run}").wait(resume)

    def test_the_diff_to_another_run(self):
        one, other = [run["id"] for run in self.server.get("runs", filter="status:finished -name:lr_and*", limit=2)["runs"]]
        page = self.page(f"/run/{one}?tab=diff&with={other}")
        page.wait("document.querySelectorAll('.diff td.before').length > 3")
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
        page = self.page(f"/run/{run}?tab=code")
        page.wait("document.querySelector('.source .add')")
        with open(os.path.join(self.home, "runs", run, "code.patch"), encoding="utf-8") as file:
            self.assertEqual(page.run("document.querySelector('.source').textContent").strip(), file.read().strip())
        self.assertEqual(page.run("[...document.querySelectorAll('.source .cut')].map((e) => e.innerText)[1]"), "-warmup_steps = 50")
        self.assert_clean(page)

    def test_tables_of_the_plan(self):
        pipeline = {"schedule": "1f1b", "micro_batches": 4, "wait_share": 0.2, "ranks": [{"blocks": "embedding, blocks.0", "work_share": 0.4, "memory_bytes": 2**20}, {"blocks": "blocks.1, head", "work_share": 0.6, "memory_bytes": 2**21}]}
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE config SET content = json_set(content, '$.pipeline', json(?)) WHERE hash = (SELECT plan FROM run WHERE id = ?)", (json.dumps(pipeline), self.names["run"]))
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
    def texts(self, page, title):
        svg = xml.etree.ElementTree.fromstring(self.export(page, title, "svg"))
        return ["".join(one.itertext()) for one in svg.iter() if one.tag.endswith("text")]

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
            with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
                database.execute(f"UPDATE trial SET ended = started + {ended} * 1e6")
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
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
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
        page = self.page(f"/compare?runs={self.run_id}&metrics=loss")
        page.wait("document.querySelector('.chart canvas')")
        self.shows(page, f"document.querySelector('.plot').getAttribute('aria-label').includes('last {self.value:.3f}')")
        self.assert_clean(page)

    def test_a_run_that_fails_is_told_in_every_view(self):
        page = self.view("sweep")
        self.shows(page, "true")
        page.settle(1.5)
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET status = 'failed' WHERE id = ?", (self.run_id,))
        page.wait(f"document.querySelector('#toasts a')?.innerText == 'Run {self.run_id} has failed'")
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET status = 'running' WHERE id = ?", (self.run_id,))
        self.assert_clean(page)

    def test_a_metric_that_a_run_did_not_have_before(self):
        page = self.page(f"/run/{self.run_id}")
        page.wait("document.querySelectorAll('.chart canvas').length > 3")
        page.run("document.querySelector('.head .button').focus()")
        self.shows(page, "[...document.querySelectorAll('.chart')].some((e) => e.dataset.metric == 'brand_new_metric')")
        self.assertTrue(page.run("document.activeElement.matches('.head .button')"), "the focus stays")
        page.run("document.activeElement.blur()")
        self.shows(page, "document.querySelector('.headline').innerText.includes('1,000,')")
        self.assert_clean(page)

    def test_charts_that_are_not_on_the_screen_are_not_asked_for(self):
        page = self.page(f"/run/{self.run_id}", height=500)
        page.wait("document.querySelectorAll('.chart canvas').length > 3")
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
            page = self.page(f"/run/{run}", write=True)
            page.wait("document.querySelectorAll('.chart canvas').length > 1")
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
        page = self.page(f"/plan/{run}")
        page.wait("document.querySelector('select[aria-label=\"Device kind\"]').options.length > 1")
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
