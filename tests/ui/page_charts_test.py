"""The charts of the page of `runner ui`: what they draw, and the files saved from them, against the ledger.

    page_charts_test.py RUNNER [unittest's arguments]
"""
import json
import re
import statistics
import struct
import tempfile
import unittest
import xml.etree.ElementTree

import demo_ledger
from in_chromium import CHOOSE, RUNNER, InChromium
from ui_server import Server


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

    def points(self, server, run, name):
        return server.sql("SELECT step, value FROM metric JOIN run USING (run) JOIN key USING (key) WHERE run.id = ? AND key.name = ? AND value IS NOT NULL ORDER BY step", run, name)

    def test_a_zoom_shows_every_point(self):
        run = self.long_server.get("runs", limit=1)["runs"][0]["id"]
        page = self.page_of(self.long_server, f"/compare?runs={run}&metrics=loss", "document.querySelector('.chart canvas')")
        page.settle(0.5)
        everything = self.points(self.long_server, run, "loss")
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
        points = self.points(self.server, run, "val_loss")
        (x0, y0), (x1, y1) = points[3:5]
        low, high = x0 + (x1 - x0) // 4, x1 - (x1 - x0) // 4  # no validation is between them
        page = self.page(f"/compare?runs={run}&metrics=val_loss&from={low}&to={high}", "document.querySelector('.chart canvas')")
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
        page = self.page(f"/compare?runs={run}&metrics=loss,memory_bytes,tokens_per_s,lr", "document.querySelectorAll('.chart canvas').length == 4")
        page.settle(0.3)
        for name, unit in (("loss", r""), ("memory_bytes", r" GiB"), ("tokens_per_s", r" k"), ("lr", r"(e-\d+)?")):
            svg = xml.etree.ElementTree.fromstring(self.export(page, name, "svg"))
            texts = [(one, "".join(one.itertext())) for one in svg.iter() if one.tag.endswith("text")]
            said = [text for _, text in texts]
            steps = [step for step, _ in self.points(self.server, run, name)]
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
        page = self.page(f"/compare?runs={run}&metrics=loss", "document.querySelector('.chart canvas')")
        self.assertEqual(page.run("[...document.querySelector('select[aria-label=\"x axis\"]').options].map((e) => e.innerText)"), ["step", "tokens", "time", "epoch"])
        losses = dict(self.points(self.server, run, "loss"))
        for x in ("tokens", "seconds", "epoch"):
            page.run(CHOOSE.format("x axis", x))
            page.wait(f"document.querySelector('.plot').getAttribute('aria-label').includes('by {x}, 1 curve')")
            rows = self.table(page, "loss")
            self.assertEqual(rows[0], ["run", "name", x, "loss"])
            self.assertEqual([(float(a), float(b)) for _, _, a, b in rows[1:]], [(value, losses[step]) for step, value in self.points(self.server, run, x)])
        self.assertIn("x=epoch", page.run("location.search"), "the axis is kept in the address")
        self.assert_clean(page)

    def test_marks_and_missing_points_are_explained(self):
        run = self.server.get("runs", filter="status:failed -name:lr_and*", limit=1)["runs"][0]["id"]
        page = self.page(f"/compare?runs={run}&metrics=loss", "document.querySelector('.chart-foot')?.innerText.includes('◆ NaN')")
        count = self.server.get("curves", runs=run, metric="loss")["curves"][0]["nonfinite"]["count"]
        self.assertIn(f"{count} value", page.run("document.querySelector('.chart-foot').innerText"))
        self.assertEqual([row[3] for row in self.table(page, "loss")].count("NaN"), count)
        run = self.names["run"]
        row, key = self.server.sql("SELECT run, key FROM run, key WHERE id = ? AND key.name = 'tokens'", run)[0]
        gone = self.server.sql("SELECT step, value FROM metric WHERE run = ? AND key = ? ORDER BY step LIMIT 5", row, key)
        self.server.sql("DELETE FROM metric WHERE run = ? AND key = ? AND step <= ?", row, key, gone[-1][0])
        page = self.page(f"/compare?runs={run}&metrics=loss&x=tokens", "document.querySelector('.chart-foot')?.innerText.startsWith('5 points are left out')")
        with self.server.ledger() as database:
            database.executemany("INSERT INTO metric VALUES (?, ?, ?, ?)", ((row, key, *point) for point in gone))
        self.assert_clean(page)

    def test_no_two_runs_of_a_chart_have_the_same_colour(self):
        runs = [run["id"] for run in self.server.get("runs", filter="status:finished -name:lr_and*", limit=8)["runs"]]
        colours = "[...document.querySelectorAll('{} .swatch')].map((e) => e.style.getPropertyValue('--colour'))"
        of_run = {}
        for order in (list(reversed(runs)), runs[::2] + runs[1::2], runs):  # the colours are those of the runs, whatever was seen before
            page = self.page(f"/compare?runs={','.join(order)}&metrics=loss", "document.querySelectorAll('.legend button').length == 8 && document.querySelectorAll('thead .swatch').length == 8")
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
        page = self.page(f"/compare?runs={','.join(runs)}&metrics=loss&bands=1", "document.querySelector('.chart canvas') && document.querySelector('.legend')")
        page.settle(0.5)
        rows = self.table(page, "loss")
        self.assertEqual(rows[0], ["group", "step", "p10", "median", "p90"])
        curves = [self.points(self.server, run, "loss") for run in runs]
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
        again = self.page(page.run("location.pathname + location.search"), "document.querySelectorAll('.legend button').length == 2")
        self.assert_clean(page)

    def test_smoothing_keeps_the_raw_curve(self):
        page = self.page(f"/compare?runs={self.names['run']}&metrics=loss&smoothing=0.8", "document.querySelector('.chart canvas')")
        page.settle(0.3)
        svg = self.export(page, "loss", "svg").decode()
        self.assertIn('stroke-opacity="0.25"', svg)
        self.assertEqual([float(row[3]) for row in self.table(page, "loss")[1:]], [value for _, value in self.points(self.server, self.names["run"], "loss")])


class System(InChromium):
    def test_readings_of_the_machine_and_its_gpus(self):
        run = next(one["id"] for one in self.server.get("runs", filter="status:finished strategy:fsdp -name:lr_and*", limit=50)["runs"] if one["ranks"] >= 4)
        page = self.page(f"/run/{run}?tab=system", "document.querySelectorAll('.chart canvas').length == 15")
        titles = page.run("[...document.querySelectorAll('.chart h3')].map((e) => e.firstChild.data)")
        self.assertEqual(titles[:6], ["GPU utilization", "GPU memory", "GPU power", "GPU temperature", "GPU clock", "GPU throttled"])
        readings = self.server.sql("SELECT name, time, value FROM system_samples WHERE run = ? AND name LIKE 'gpu/%/power_watts' ORDER BY name, time", run)
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
        with self.server.ledger() as database:
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
        with self.server.ledger() as database:
            row, key = database.execute("SELECT run, key FROM run, key WHERE id = ? AND key.name = 'cpu/percent'", (run,)).fetchone()
            database.execute("DELETE FROM system_sample WHERE run = ?", (row,))
            began = database.execute("SELECT min(started) FROM attempt WHERE run = ?", (row,)).fetchone()[0]
            database.execute("INSERT INTO system_sample VALUES (?, ?, ?, 50)", (row, key, began + 30))
        page = self.page(f"/run/{run}?tab=system", "document.querySelectorAll('.chart canvas').length == 1")
        texts = self.texts(page, "CPU of the machine")
        times = [text for text in texts if re.fullmatch(r"\d+ ?s", text)]
        self.assertTrue(times and all(float(text.rstrip(" s")) <= 30 for text in times), texts)
        self.assert_clean(page)


if __name__ == "__main__":
    unittest.main()
