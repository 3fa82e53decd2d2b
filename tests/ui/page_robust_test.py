"""The page of `runner ui` when things go wrong or become many: files that do not arrive, a server that goes away, many tabs, long logs.

    page_robust_test.py RUNNER [unittest's arguments]
"""
import os
import sqlite3
import tempfile
import time
import unittest

import demo_ledger
from in_chromium import RUNNER, InChromium
from ui_server import Server

LIVE = "document.querySelector('#live').classList.contains('on')"
GO = "(() => {{ const link = document.createElement('a'); link.href = '{}'; document.body.append(link); link.click(); link.remove(); }})()"


class Modules(InChromium):
    def block(self, page, *patterns):
        page.call("Network.setBlockedURLs", urls=list(patterns))

    def test_a_module_that_did_not_arrive_is_asked_for_again(self):
        page = self.view("runs")
        self.block(page, "*/run.js*")
        page.run(GO.format("/run/" + self.names["run"]))
        page.settle(0.8)
        self.block(page)
        page.wait("document.querySelectorAll('.chart canvas').length > 3")  # by itself
        self.assertTrue(any("run.js?try=" in url for url in page.requests))
        self.assertTrue(all("ERR_BLOCKED" in one for one in page.problems), page.problems)

    def test_a_view_that_could_not_be_loaded_is_there_at_the_next_visit(self):
        page = self.view("runs")
        self.block(page, "*/sweep.js*")
        page.run(GO.format("/sweep"))
        page.wait("document.querySelector('main .empty')?.innerText.includes('could not be loaded')", 15)
        self.block(page)
        page.run(GO.format("/"))
        page.wait("document.querySelectorAll('tr[data-id]').length > 5")
        page.run(GO.format("/sweep"))
        page.wait("document.querySelectorAll('tbody tr').length == 1")

    def test_a_module_of_a_module(self):
        page = self.view("runs")
        self.block(page, "*/logs.js*")
        page.run(GO.format("/run/" + self.names["run"]))
        page.wait("document.querySelector('main .empty')?.innerText.includes('could not be loaded')", 15)
        self.block(page)
        page.run("[...document.querySelectorAll('main .empty button')].find((e) => e.innerText == 'Try again').click()")
        page.wait("document.querySelectorAll('.chart canvas').length > 3")

    def test_the_chart_library(self):
        page = self.browser.page()
        self.addCleanup(page.close)
        self.block(page, "*/echarts.min.js")
        page.open(f"{self.server.url}/run/{self.names['run']}")
        page.wait("document.querySelector('.plot')")
        page.settle(0.5)
        self.block(page)
        page.wait("document.querySelectorAll('.chart canvas').length > 3")


class Away(InChromium):
    """A server that ends and starts again on the same port."""

    def test_the_page_waits_for_its_server(self):
        page = self.browser.page()
        self.addCleanup(page.close)
        page.open(self.server.url)
        page.wait(f"{LIVE} && document.querySelectorAll('tr[data-id]').length > 5")
        self.assertTrue(page.run("document.querySelector('#away').hidden"))
        port = self.server.port
        self.server.stop()
        page.wait("!document.querySelector('#away').hidden && document.querySelector('#away').innerText.includes('does not answer')", 10)
        self.assertGreater(page.run("document.querySelectorAll('tr[data-id]').length"), 5, "what was known stays on the screen")
        page.run(GO.format("/run/" + self.names["run"]))
        page.wait("document.querySelector('main .empty button')", 15)  # after three further tries
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET name = 'renamed_meanwhile' WHERE id = ?", (self.names["run"],))
        Away.server = Server(RUNNER, self.home, "--open-read", "--port", str(port))
        page.wait("document.querySelector('#away').hidden", 15)
        page.wait("document.querySelector('h1').innerText == 'renamed_meanwhile'", 15)  # by itself
        page.run(GO.format("/"))
        page.wait("[...document.querySelectorAll('tr[data-id]')].some((e) => e.innerText.includes('renamed_meanwhile'))")
        page.wait(LIVE)

    def test_reading_is_tried_again_when_the_server_has_too_much_to_do(self):
        """The first two answers are 503 with Retry-After, as the server gives them for too many connections."""
        page = self.browser.page()
        self.addCleanup(page.close)
        page.call("Page.addScriptToEvaluateOnNewDocument", source="const real = window.fetch; let left = 2; window.fetch = (url, ...more) => String(url).includes('/runs?') && left-- > 0 "
                  "? Promise.resolve(new Response('too many connections', { status: 503, headers: { 'Retry-After': '1' } })) : real(url, ...more);")
        page.open(self.server.url)
        page.wait("document.querySelectorAll('tr[data-id]').length > 5")
        self.assertEqual(page.problems, [])


class Tabs(InChromium):
    def rename(self, name):
        with sqlite3.connect(os.path.join(self.home, "ledger.db")) as database:
            database.execute("UPDATE run SET name = ?, steps = steps + 1 WHERE run = (SELECT max(run) FROM run)", (name,))

    def test_ten_tabs_share_one_stream(self):
        # Seven windows, of which all are visible, and three tabs.
        pages = [self.page("/", window=True) for _ in range(7)] + [self.page("/") for _ in range(3)]
        for page in pages:
            page.wait(f"{LIVE} && document.querySelectorAll('tr[data-id]').length > 5")
        self.assertEqual(sum("/api/1/events" in url for page in pages for url in page.requests), 1)
        time.sleep(2.5)  # the server compares with its first look
        self.rename("seen_by_all_tabs")
        self.all_show(pages, "seen_by_all_tabs")
        leader = next(page for page in pages if any("/api/1/events" in url for url in page.requests))
        pages.remove(leader)
        leader.close()
        end = time.monotonic() + 10
        while sum("/api/1/events" in url for page in pages for url in page.requests) != 1 and time.monotonic() < end:
            pages[0].settle(0.1)
        self.assertEqual(sum("/api/1/events" in url for page in pages for url in page.requests), 1, "another tab listens now")
        for page in pages:
            page.wait(LIVE)
        time.sleep(2.5)
        self.rename("seen_after_the_first_left")
        self.all_show(pages, "seen_after_the_first_left")
        for page in pages:
            page.run(GO.format("/run/" + self.names["run"]))
        for page in pages:
            page.wait("document.querySelector('.timeline')")
            self.assert_clean(page)

    def all_show(self, pages, name):
        """Visible pages show it by themselves, hidden ones when they are looked at."""
        visible = [page for page in pages if page.run("document.visibilityState") == "visible"]
        self.assertGreaterEqual(len(visible), 6)
        for page in visible:
            page.wait(f"document.querySelector('tbody').innerText.includes('{name}')", 8)
        for page in pages:
            page.call("Page.bringToFront")
            page.wait(f"document.querySelector('tbody').innerText.includes('{name}')", 8)

    def test_without_locks_each_tab_listens_by_itself(self):
        """A page of another machine without TLS has no navigator.locks."""
        page = self.browser.page()
        self.addCleanup(page.close)
        page.call("Page.addScriptToEvaluateOnNewDocument", source="Object.defineProperty(navigator, 'locks', { value: undefined })")
        page.open(self.server.url)
        page.wait(f"{LIVE} && document.querySelectorAll('tr[data-id]').length > 5")
        time.sleep(2.5)
        self.rename("seen_without_locks")
        page.wait("document.querySelector('tbody').innerText.includes('seen_without_locks')", 8)
        self.assert_clean(page)

    def test_a_hidden_tab_asks_for_nothing_and_catches_up(self):
        page = self.view("runs")
        page.wait(LIVE)
        time.sleep(2.5)
        page.run("Object.defineProperty(document, 'visibilityState', { get: () => window.shown ?? 'hidden', configurable: true }), document.dispatchEvent(new Event('visibilitychange'))")
        before = len(page.requests)
        self.rename("while_hidden")
        page.settle(3)
        self.assertEqual([url for url in page.requests[before:] if "/api/" in url], [])
        page.run("window.shown = 'visible', document.dispatchEvent(new Event('visibilitychange'))")
        page.wait("document.querySelector('tbody').innerText.includes('while_hidden')", 8)
        self.assert_clean(page)


class LongLogs(InChromium):
    def test_only_what_was_appended_is_read(self):
        run = self.server.get("runs", filter="status:running", limit=1)["runs"][0]["id"]
        log = os.path.join(self.home, "runs", run, "logs", "rank-0.log")
        with open(log, "w", encoding="utf-8") as file:
            file.writelines(f"step {i} loss {8 / (1 + i / 1e5):.6f} of the long training that writes a lot\n" for i in range(1_000_000))
        size = os.path.getsize(log)
        self.assertGreater(size, 60 << 20)
        page = self.page(f"/run/{run}?tab=logs")
        page.wait("document.querySelector('.logs').lastElementChild.innerText.includes('step 999999 ')")
        page.wait("document.querySelector('[role=status].muted').innerText.startsWith('1,000,000 lines')")
        page.settle(2.5)
        before = self.read_by_server()
        for i in range(5):
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"appended line {i}\nunfinished")
                file.flush()
                page.wait(f"document.querySelector('.logs').innerText.includes('appended line {i}')", 6)
                page.wait("document.querySelector('.logs').lastElementChild.innerText.endsWith('unfinished')", 6)
                file.write(" and now finished\n")
            page.wait("document.querySelector('.logs').lastElementChild.innerText.endsWith('unfinished and now finished')", 6)
        lines = page.run("[...document.querySelectorAll('.logs div')].slice(-10).map((e) => e.lastElementChild.textContent)")
        self.assertEqual(lines, [line for i in range(5) for line in (f"appended line {i}", "unfinished and now finished")])
        self.assertEqual(page.run("document.querySelector('.logs').lastElementChild.dataset.line"), "1000010")
        self.assertLess(self.read_by_server() - before, 8 << 20, "the log was read again")
        page.run("[...document.querySelectorAll('button')].find((e) => e.innerText == 'Earlier lines').click()")
        page.wait("document.querySelectorAll('.logs div').length > 900")
        numbers = page.run("[...document.querySelectorAll('.logs div')].map((e) => Number(e.dataset.line))")
        self.assertEqual(numbers, list(range(numbers[0], 1_000_011)))
        with open(log, "w", encoding="utf-8") as file:  # as when a log is too long: its middle is removed
            file.write("a short log now\n")
        page.run("(() => { const logs = document.querySelector('.logs'); logs.scrollTop = logs.scrollHeight; })()")
        page.wait("document.querySelector('.logs').innerText.trim().endsWith('a short log now') && document.querySelectorAll('.logs div').length == 1", 6)
        self.assert_clean(page)

    def read_by_server(self):
        with open(f"/proc/{self.server.process.pid}/io", encoding="ascii") as file:
            return int(file.readline().split()[1])


if __name__ == "__main__":
    unittest.main()
