"""The page of `runner ui` in headless Chromium: every view is drawn and usable, in light and dark and on a phone, and logs no error.

    page_test.py RUNNER [unittest's arguments]

UI_SHOTS=FOLDER keeps screenshots.
"""
import json
import os
import re
import sqlite3
import tempfile
import time
import unittest
import xml.etree.ElementTree

import demo_ledger
from in_chromium import READY, RUNNER, InChromium
from ui_server import Server

SHOTS = os.environ.get("UI_SHOTS")


class Views(InChromium):
    def test_every_view_in_light_and_dark_and_on_a_phone(self):
        for name in READY:
            for shape in ({}, {"dark": True}, {"width": 390, "height": 844, "phone": True, "scale": 2}):
                label = f"{name}{'-dark' if 'dark' in shape else '-phone' if 'phone' in shape else ''}"
                with self.subTest(label):
                    page = self.view(name, **{"width": 1280, "height": 800, **shape})
                    if SHOTS:
                        page.screenshot(os.path.join(SHOTS, f"{label}.png"))
                    self.assert_clean(page)
                    self.assertLessEqual(page.run("document.documentElement.scrollWidth"), page.run("innerWidth"), "the page is wider than the screen")
                    unnamed = page.run("""[...document.querySelectorAll('button, a[href], input, select, textarea, [role=img], [role=progressbar]')].filter((e) => e.checkVisibility()
                        && !(e.getAttribute('aria-label') || e.innerText?.trim() || e.title || e.labels?.[0]?.innerText.trim() || e.closest('label')?.innerText.trim())).map((e) => e.outerHTML.slice(0, 120))""")
                    self.assertEqual(unnamed, [], "elements without a name for screen readers")


class Use(InChromium):
    def test_a_filter_and_its_mistakes(self):
        page = self.view("runs")
        page.press("/")
        page.type("status:fai")
        page.wait("!document.querySelector('.suggestions').hidden && [...document.querySelectorAll('.suggestions code')].map((e) => e.innerText).join() == 'failed'")
        page.press("ArrowDown")
        page.press("Enter")
        page.press("Enter")
        page.wait("location.search.includes('status:failed') && [...document.querySelectorAll('tr[data-id] .status')].every((e) => e.title == 'failed')")
        self.assert_clean(page)
        page.click(".filter .clear")
        page.wait("!location.search.includes('status') && document.querySelectorAll('tr[data-id]').length > 5")
        page.click(".filter input")
        page.type("lr>fast")
        page.press("Enter")
        page.wait("!document.querySelector('.filter-error').hidden && document.querySelector('.filter-error mark').innerText == 'fast'")
        self.assertEqual([one for one in page.problems if "400" not in one], [])

    def test_runs_are_grouped_and_a_group_is_opened(self):
        page = self.view("runs")
        page.run("[...document.querySelectorAll('.head button')].find((e) => e.innerText == 'Group').click()")
        page.wait("document.querySelector('.popover input[type=search]')")
        page.type("strateg")
        page.run("[...document.querySelectorAll('.popover button')].find((e) => e.innerText == 'strategy').click()")
        page.wait("location.search.includes('group=strategy') && document.querySelectorAll('.groups-table tbody tr').length > 1")
        name, runs = page.run("(() => { const cells = document.querySelector('.groups-table tbody tr').cells; return [cells[0].innerText, Number(cells[1].innerText)]; })()")
        page.click(".groups-table tbody a")
        page.wait(f"!location.search.includes('group=') && location.search.includes('strategy') && document.querySelector('h1').innerText == 'Runs {runs}'")
        self.assert_clean(page)
        page.run("history.back()")
        page.wait("document.querySelectorAll('.groups-table tbody tr').length > 1")
        page.run("[...document.querySelectorAll('.head button')].find((e) => e.innerText == 'Grouped by strategy').click()")
        page.wait("document.querySelector('.popover button')")
        page.run("[...document.querySelectorAll('.popover button')].find((e) => e.innerText == 'Single runs').click()")
        page.wait("document.querySelectorAll('.runs-table tr[data-id]').length > 5")
        self.assert_clean(page)

    def test_columns_are_kept_in_the_address(self):
        page = self.view("runs")
        page.click(".head button")
        page.wait("document.querySelector('.popover input[type=search]')")
        page.type("weight_decay")
        page.wait("document.querySelector('.popover').innerText.includes('optimizer.weight_decay')")
        page.run("[...document.querySelectorAll('.popover label')].find((e) => e.innerText.includes('optimizer.weight_decay')).querySelector('input').click()")
        page.wait("location.search.includes('optimizer.weight_decay') && document.querySelector('thead').innerText.includes('optimizer.weight_decay')")
        page.wait("[...document.querySelectorAll('tr[data-id] td:last-child')].some((e) => /^0\\.0?1/.test(e.innerText))")
        again = self.page(page.run("location.pathname + location.search"))
        again.wait("document.querySelector('thead')?.innerText.includes('optimizer.weight_decay')")
        self.assert_clean(page)

    def test_sorting(self):
        page = self.view("runs")
        page.run("[...document.querySelectorAll('th button')].find((e) => e.innerText.startsWith('Took')).click()")
        page.wait("location.search.includes('sort:-took') && document.querySelector('th[aria-sort=descending]')?.innerText.startsWith('Took')")
        page.run("[...document.querySelectorAll('th button')].find((e) => e.innerText.startsWith('Took')).click()")
        page.wait("document.querySelector('th[aria-sort=ascending]')?.innerText.startsWith('Took')")
        self.assert_clean(page)

    def test_details_with_the_keyboard(self):
        page = self.view("runs")
        page.press("j")
        page.press("j")
        page.press("Enter")
        page.wait("!document.querySelector('#drawer').hidden && document.querySelectorAll('#drawer canvas').length >= 2")
        self.assertTrue(page.run("document.querySelector('#drawer').contains(document.activeElement)"))
        page.press("Escape")
        page.wait("document.querySelector('#drawer').hidden")
        page.press("x")
        page.wait("!document.querySelector('.selection').hidden && document.querySelector('.selection').innerText.startsWith('1 selected')")
        page.press("j")
        page.press("x")
        page.press("c")
        page.wait("location.pathname == '/compare' && document.querySelectorAll('.legend button').length == 2 && document.querySelectorAll('.chart canvas').length > 1")
        page.press("1")
        page.wait("location.pathname == '/' && document.querySelectorAll('tr[data-id]').length > 5")
        self.assert_clean(page)

    def test_hover_zoom_and_legend(self):
        page = self.view("compare")
        left, top, width, height = page.run("(() => { const r = document.querySelector('.chart .plot').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
        page.mouse("mouseMoved", left + width * 0.5, top + height * 0.5)
        page.wait("!document.querySelector('.readout').hidden && document.querySelectorAll('.readout div').length >= 1")
        self.assertEqual(page.run("[...document.querySelectorAll('.plot .line')].filter((e) => e.style.display == 'block').length"), page.run("document.querySelectorAll('.plot').length"), "the crosshair goes through all charts")
        before = len(page.requests)
        page.drag(left + width * 0.3, top + height * 0.5, left + width * 0.5, top + height * 0.5)
        page.settle(1)
        zoomed = [url for url in page.requests[before:] if "/curves" in url]
        self.assertTrue(zoomed and all("from=" in url and "to=" in url for url in zoomed), zoomed)
        asked = zoomed[-1].split("from=")[1].split("&")[0]
        self.assertRegex(asked, r"^\d+$", "a zoom ends at whole steps")
        self.assertIn(f"from={asked}&to=", page.run("location.search"))
        again = self.page(page.run("location.pathname + location.search"))
        again.wait("document.querySelectorAll('.chart canvas').length >= 2 && [...document.querySelectorAll('button')].find((e) => e.innerText == 'Whole range' && !e.hidden)")
        self.assertTrue(any(f"from={asked}" in url for url in again.requests if "/curves" in url))
        again.run("[...document.querySelectorAll('button')].find((e) => e.innerText == 'Whole range').click()")
        again.wait("!location.search.includes('from') && [...document.querySelectorAll('button')].find((e) => e.innerText == 'Whole range').hidden")
        again.close()
        page.click(".chart .plot", clicks=2)
        page.settle(1)
        self.assertNotIn("from=", [url for url in page.requests if "/curves" in url][-1])
        page.click(".legend button")
        page.wait("document.querySelector('.legend button').getAttribute('aria-pressed') == 'false' && document.querySelector('.plot').getAttribute('aria-label').includes('4 curves')")
        self.assert_clean(page)

    def test_back_leads_out_of_the_views_that_choose_a_run(self):
        page = self.view("runs")
        for key, view in (("3", "run"), ("4", "plan")):
            page.press(key)
            page.wait(f"location.pathname.startsWith('/{view}/')")  # its data may not be there yet
            page.run("history.back()")
            page.wait("location.pathname == '/' && document.querySelectorAll('tr[data-id]').length > 5")
        self.assert_clean(page)

    def test_compare_without_a_choice_shows_the_newest_runs(self):
        page = self.page("/compare")
        page.wait("document.querySelector('h1').innerText == 'Compare the newest 8 runs' && document.querySelectorAll('.legend button').length == 8 && document.querySelectorAll('.chart canvas').length > 1")
        page.wait("document.querySelectorAll('td.best').length > 0")
        self.assert_clean(page)

    def test_two_fingers_zoom_on_a_phone(self):
        page = self.view("compare", width=390, height=844, phone=True, scale=2)
        page.run("document.querySelector('.plot').scrollIntoView({block: 'center'})")
        page.settle(0.3)
        left, top, width, height = page.run("(() => { const r = document.querySelector('.plot').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")
        ends = page.run("(() => { const chart = echarts.getInstanceByDom(document.querySelector('.plot > div')), x = chart.getOption().xAxis[0]; return [x.min, x.max].map((end) => chart.convertToPixel({ xAxisIndex: 0 }, end)); })()")
        before = len(page.requests)
        page.pinch((left + 150, left + 200), (left + 100, left + 300), top + height / 2)
        page.settle(1)
        zoomed = [url for url in page.requests[before:] if "/curves" in url and "metric=loss" in url]
        self.assertEqual(len(set(zoomed)), 1, page.requests[before:])
        low, high = (float(zoomed[0].split(name + "=")[1].split("&")[0]) for name in ("from", "to"))
        # The range shrinks to a quarter, and what was at 150 is at 100.
        whole = self.server.get("curves", filter="limit:5", metric="loss", pixels=10)["range"]
        each = (whole[1] - whole[0]) / (ends[1] - ends[0])
        self.assertAlmostEqual(high - low, (whole[1] - whole[0]) / 4, delta=5 * each)
        self.assertAlmostEqual(low, whole[0] + (150 - ends[0]) * each - (100 - ends[0]) * each / 4, delta=5 * each)
        self.assert_clean(page)

    def test_axes_smoothing_groups_and_bands(self):
        page = self.view("compare")
        page.run("(() => { const x = document.querySelector('select[aria-label=\"x axis\"]'); x.value = 'tokens'; x.dispatchEvent(new Event('change')); })()")
        page.wait("location.search.includes('x=tokens') && document.querySelector('.plot').getAttribute('aria-label').includes('by tokens, 5 curves')")
        page.run("(() => { const s = document.querySelector('input[type=range]'); s.value = '0.9'; s.dispatchEvent(new Event('input')); })()")
        page.wait("location.search.includes('smoothing=0.9')")
        page.wait("document.querySelector('select[aria-label=\"Group by\"]').options.length > 3")
        page.run("(() => { const g = document.querySelector('select[aria-label=\"Group by\"]'); g.value = 'strategy'; g.dispatchEvent(new Event('change')); })()")
        page.wait("document.querySelectorAll('.legend button').length < 5")
        page.run("[...document.querySelectorAll('button')].find((e) => e.innerText == 'Bands').click()")
        page.wait("location.search.includes('bands=1')")
        end = time.monotonic() + 15  # until the curves of the groups have arrived
        while len(rows := self.table(page, "loss")) == 1 and time.monotonic() < end:
            page.settle()
        self.assertEqual(rows[0], ["group", "tokens", "p10", "median", "p90"])
        self.assertEqual({row[0] for row in rows[1:]}, set(page.run("[...document.querySelectorAll('.legend button')].map((e) => e.innerText)")))
        linear = self.values_of_y_axis(page)
        self.assertEqual(len({round(b - a, 6) for a, b in zip(linear, linear[1:])}), 1, linear)
        page.click(".chart-head button")
        page.wait("document.querySelector('.chart-head button').getAttribute('aria-pressed') == 'true'")
        logarithmic = self.values_of_y_axis(page)
        self.assertEqual(len({round(b / a, 6) for a, b in zip(logarithmic, logarithmic[1:])}), 1, logarithmic)
        self.assert_clean(page)

    def values_of_y_axis(self, page):
        """The labels of the y axis in the chart of the loss, as numbers in ascending order."""
        svg = xml.etree.ElementTree.fromstring(self.export(page, "loss", "svg"))
        texts = [one for one in svg.iter() if one.tag.endswith("text") and one.get("text-anchor") == "end"]
        return sorted(float("".join(one.itertext())) for one in texts if re.fullmatch(r"[\d.]+", "".join(one.itertext())))

    def test_columns_of_another_ledger_and_names_with_spaces(self):
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            key = database.execute("INSERT INTO key (name) VALUES ('my metric')").lastrowid
            run = database.execute("SELECT run FROM run WHERE id = ?", (self.names["run"],)).fetchone()[0]
            database.execute("INSERT INTO metric VALUES (?, ?, 1, 4.25)", (run, key))
            database.execute("INSERT INTO metric_last VALUES (?, ?, 1, 4.25, 4.25, 4.25)", (run, key))
        page = self.view("runs")
        page.run("localStorage.setItem('runner.columns', JSON.stringify(['progress', 'loss', 'last(reward)', 'took']))")
        self.addCleanup(lambda: self.page("/").run("localStorage.removeItem('runner.columns')"))
        page = self.view("runs")
        page.wait("document.querySelector('thead').innerText.includes('last(reward)')")
        page.wait("document.querySelector('main p[role=status]').innerText.includes('no run has a metric \"reward\"')")
        self.assertTrue(page.run("document.querySelector('.filter-error').hidden"), "the filter is not blamed")
        page.run("[...document.querySelectorAll('main p[role=status] button')].find((e) => e.innerText == 'Remove it').click()")
        page.wait("!document.querySelector('thead').innerText.includes('last(reward)') && document.querySelector('main p[role=status]').hidden")
        page.click(".head button")
        page.wait("document.querySelector('.popover input[type=search]')")
        page.type("my metric")
        page.wait("document.querySelector('.popover').innerText.includes('last(\"my metric\")')")
        page.run("[...document.querySelectorAll('.popover label')].find((e) => e.innerText.includes('last(\"my metric\")')).querySelector('input').click()")
        page.wait("document.querySelector('thead').innerText.includes('last(\"my metric\")')")
        page.run("[...document.querySelectorAll('th button')].find((e) => e.innerText.startsWith('last(')).click()")
        page.wait(f"document.querySelector('tr[data-id]').dataset.id == {json.dumps(self.names['run'])} && document.querySelector('tr[data-id] td:last-child').innerText.startsWith('4.25')")
        page.wait("document.querySelector('th[aria-sort=descending]')?.innerText.startsWith('last(')")
        self.assert_clean(page)

    def test_a_range_of_rows_that_were_scrolled_away(self):
        page = self.view("runs")
        total = self.server.get("runs")["matching"]
        page.click("tr[data-id] input")
        page.wait("document.querySelector('.selection').innerText.startsWith('1 selected')")
        page.run("(() => { const main = document.querySelector('#content'); main.scrollTop = main.scrollHeight; })()")
        page.wait(f"[...document.querySelectorAll('tr[data-id]')].some((e) => e.getAttribute('aria-rowindex') == {total + 1}) && document.querySelector('tr.space')")
        page.run("(() => { const box = [...document.querySelectorAll('tr[data-id] input')].at(-1); box.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, shiftKey: true })); })()")
        page.wait(f"document.querySelector('.selection').innerText.startsWith('{total} selected')")
        page.run("document.querySelector('#content').scrollTop = 0")
        page.wait("document.querySelector('tr[data-id]').getAttribute('aria-rowindex') == 2 && [...document.querySelectorAll('tr[data-id] input')].every((e) => e.checked)")
        self.assert_clean(page)

    def test_an_address_that_is_no_text(self):
        page = self.page("/run/%E0%A4%A")
        page.wait("document.querySelector('main').innerText.includes('There is no such page')")
        self.assert_clean(page)

    def test_a_tag_is_faded_only_if_it_is_cut(self):
        page = self.view("runs")
        page.wait("document.querySelector('.run-name .tag')")
        cut = page.run("""[...document.querySelectorAll('.run-name .tag:last-child')].filter((tag) => { const box = tag.closest('.small').getBoundingClientRect(), end = tag.getBoundingClientRect().right;
            return end > box.right - 20 && end < tag.closest('td').getBoundingClientRect().right - 40; }).map((tag) => tag.innerText)""")
        self.assertEqual(cut, [])

    def test_a_new_run_and_its_progress_appear_by_themselves(self):
        page = self.view("runs")
        page.wait("document.querySelector('#live').classList.contains('on')")
        page.settle(2.5)
        demo = sqlite3.connect(os.path.join(self.home, "ledger.db"))
        columns = [row[1] for row in demo.execute("PRAGMA table_info(run)") if row[1] not in ("run", "id", "name", "started")]
        demo.execute(f"INSERT INTO run (id, name, started, {', '.join(columns)}) SELECT '20990101-000000-neww', 'brand_new', {time.time()}, {', '.join(columns)} FROM run WHERE status = 'running' LIMIT 1")
        demo.execute("INSERT INTO attempt (run, number, reason, host, boot_id, pid_namespace, pid, process_start, started, heartbeat) SELECT max(run), 1, 'start', 'elsewhere', 'b', 'n', 1, 1, ?, ? FROM run", (time.time(), time.time() + 1e7))
        demo.commit()
        page.wait("document.querySelector('tr[data-id=\"20990101-000000-neww\"]')", 8)
        demo.execute("UPDATE run SET steps = 777 WHERE id = '20990101-000000-neww'")
        demo.commit()
        page.wait("document.querySelector('tr[data-id=\"20990101-000000-neww\"]').innerText.includes('777')", 8)
        demo.execute("DELETE FROM attempt WHERE run = (SELECT run FROM run WHERE id = '20990101-000000-neww')")
        demo.execute("DELETE FROM run WHERE id = '20990101-000000-neww'")
        demo.commit()
        demo.close()
        self.assert_clean(page)

    def test_tags_notes_and_archive(self):
        page = self.page("/run/" + self.names["run"], write=True)
        page.wait("document.querySelector('.headline') && document.querySelector('.notes')")
        self.assertEqual(page.run("location.hash"), "", "the token does not stay in the address")
        page.run("[...document.querySelectorAll('button')].find((e) => e.innerText == '+ Tag').click()")
        page.wait("document.querySelector('.popover input')")
        page.type("from_the_page")
        page.press("Enter")
        page.wait("[...document.querySelectorAll('.tag')].some((e) => e.innerText.startsWith('from_the_page'))")
        page.run("(() => { const n = document.querySelector('.notes'); n.value = 'a note'; n.dispatchEvent(new Event('change')); })()")
        page.wait("document.querySelector('#toasts').innerText.includes('notes saved')")
        run = self.server.get("runs/" + self.names["run"])
        self.assertIn("from_the_page", run["tags"])
        self.assertEqual(run["notes"], "a note")
        page.run("[...document.querySelectorAll('.tag button')].find((e) => e.getAttribute('aria-label').includes('from_the_page')).click()")
        page.wait("![...document.querySelectorAll('.tag')].some((e) => e.innerText.startsWith('from_the_page'))")
        self.assert_clean(page)

    def test_a_view_is_saved_with_its_address(self):
        page = self.view("compare")
        page.click("#save-view")
        page.wait("document.querySelector('.popover input')?.value == 'limit:5'")
        page.type("my <b>view</b>")
        page.press("Enter")
        page.wait("document.querySelector('#saved a')?.innerText == 'my <b>view</b>'")
        page = self.view("runs")
        page.click("#saved a")
        page.wait("location.pathname + location.search == '/compare?filter=limit:5' && document.querySelectorAll('.chart canvas').length > 1")
        page.run("document.querySelector('#saved button').click()")
        page.wait("!document.querySelector('#saved a')")
        self.assert_clean(page)

    def test_without_a_token_nothing_can_be_changed(self):
        with Server(RUNNER, self.home, "--open-read") as server:  # another origin, whose token the browser has not seen
            page = self.page_of(server, "/run/" + self.names["run"])
            page.wait(READY["run"][1])
            self.assertFalse(page.run("[...document.querySelectorAll('button')].some((e) => /\\+ Tag|Archive|Stop/.test(e.innerText))"))
            page.wait("document.querySelector('#live').innerText.includes('read only') && document.querySelector('#live').title.includes('runner ui')")

    def test_a_new_tab_may_write_too_but_not_with_an_old_token(self):
        writes = "[...document.querySelectorAll('button')].some((e) => e.innerText == '+ Tag')"
        with Server(RUNNER, self.home, "--open-read") as server:
            path = "/run/" + self.names["run"]
            self.page_of(server, path, write=True).wait(writes)
            page = self.page_of(server, path)
            page.wait(writes)
            page.run("localStorage.setItem('runner.token', '0'.repeat(32))")
            page = self.page_of(server, path)
            page.wait(f"document.querySelector('#live').innerText.includes('read only') && document.querySelector('.headline') && !{writes}")
            self.assertEqual(page.run("localStorage.getItem('runner.token')"), None)
            page = self.page_of(server, path + "#token=" + "0" * 32)
            page.wait("document.querySelector('#toasts').innerText == 'The token in this address is refused. runner ui prints the right address.'")
            page.wait(f"document.querySelector('#live').innerText.includes('read only') && document.querySelector('.headline') && !{writes}")

    def test_a_page_without_a_token_says_so_and_takes_the_address_with_one(self):
        def shows(word):
            return f"document.querySelector('#live').innerText == '{word}' && document.querySelector('#away').hidden"

        live = shows("live") + " && document.querySelectorAll('tr[data-id]').length > 5"
        with Server(RUNNER, self.home) as server:
            page = self.page_of(server, "/", "document.body.innerText.includes('this needs the token')")
            page.settle(2.5)
            self.assertTrue(page.run(shows("no token")), "the server does answer")
            page.run(f"location.hash = 'token={server.token}'")  # as when the address is pasted into the same tab
            page.wait(live)
            self.assertEqual(page.run("location.hash"), "")
        with Server(RUNNER, self.home, "--port", str(server.port)) as server:  # started anew, with another token
            page.wait(shows("no token"), 30)
            self.page_of(server, "/", live, write=True)
            page.wait(live, 30)

    def test_log_search(self):
        page = self.view("logs")
        page.run("(() => { const s = document.querySelector('input[type=search]'); s.value = 'data loader'; s.dispatchEvent(new Event('input')); })()")
        page.wait("document.querySelectorAll('.logs mark').length > 0 && [...document.querySelectorAll('.logs div')].every((e) => e.innerText.includes('data loader'))")
        self.assert_clean(page)

    def test_errors_and_empty_states_say_what_to_do(self):
        page = self.page("/run/no_such_run")
        page.wait("document.body.innerText.includes('there is no run \"no_such_run\"')")
        page = self.page("/nothing")
        page.wait("document.body.innerText.includes('There is no such page')")
        with tempfile.TemporaryDirectory() as folder, Server(RUNNER, os.path.join(folder, "home"), "--open-read") as server:
            for path, text in (("/", "runner run recipes/llm_fsdp.toml"), ("/compare", "No runs to compare"), ("/sweep", "runner sweep run"), ("/run", "runner run"), ("/plan", "runner recommend")):
                empty = self.browser.page()
                empty.open(server.url + path)
                empty.wait(f"document.querySelector('main').innerText.includes({json.dumps(text)})")
                self.assertEqual([one for one in empty.problems if "404" not in one], [])
                empty.close()

    def test_a_server_that_ends_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            demo_ledger.make(folder, runs=3, points=20, sweep=0)
            server = Server(RUNNER, folder, "--open-read")
            page = self.browser.page()
            page.open(server.url)
            page.wait("document.querySelector('#live').classList.contains('on')")
            server.stop()
            page.wait("!document.querySelector('#live').classList.contains('on')", 10)
            page.close()


if __name__ == "__main__":
    unittest.main()
