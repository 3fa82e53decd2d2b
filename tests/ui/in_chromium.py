"""What the tests of the page share: a demo ledger, its server, a browser, and what each view shows when it is ready."""
import csv
import io
import json
import os
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

import demo_ledger
from browser import Browser, find_chromium
from ui_server import Server

ROOT = demo_ledger.ROOT
RUNNER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""

# What each view shows when it is ready.
READY = {
    "runs": ("/", "document.querySelectorAll('.runs-table tr[data-id]').length > 5 && document.querySelector('.spark path')"),
    "groups": ("/?group=strategy", "document.querySelectorAll('.groups-table tbody tr').length > 1"),
    "compare": ("/compare?filter=limit:5", "document.querySelectorAll('.chart canvas').length >= 2 && document.querySelectorAll('td.best').length > 0"),
    "compare_many": ("/compare?filter=archived:any&smoothing=0.6", "document.querySelectorAll('.chart canvas').length >= 2 && document.querySelectorAll('td.best').length > 0"),
    "run": ("/run/{run}", "document.querySelectorAll('.chart canvas').length >= 4 && document.querySelector('.timeline .tick')"),
    "samples": ("/run/{run}?tab=samples", "document.querySelectorAll('.samples tbody tr').length > 0"),
    "files": ("/run/{run}?tab=files", "document.querySelectorAll('.files tbody tr').length > 2"),
    "recipe": ("/run/{run}?tab=recipe", "document.body.innerText.includes('optimizer.lr') && document.querySelector('.source .value')"),
    "logs": ("/run/{run}?tab=logs", "document.querySelectorAll('.logs div').length > 20"),
    "system": ("/run/{run}?tab=system", "document.querySelectorAll('.chart canvas').length >= 15 && document.querySelector('.charts').innerText.includes('GPU power')"),
    "code": ("/run/{run}?tab=code", "document.body.innerText.includes('Commit') && !document.body.innerText.includes('…')"),
    "diff": ("/run/{run}?tab=diff", "document.querySelectorAll('.diff td.before').length > 3"),
    "events": ("/run/{run}?tab=events", "document.querySelectorAll('tbody tr').length > 3"),
    "plan": ("/plan/{run}", "document.querySelectorAll('.stack i').length > 5"),
    "sweeps": ("/sweep", "document.querySelectorAll('tbody tr').length == 1"),
    "sweep": ("/sweep/{sweep}", "document.querySelectorAll('.chart canvas').length == 2 && document.querySelectorAll('.share i').length > 2"),
}

# JavaScript that chooses a value of the selection with a label: CHOOSE.format(label, value).
CHOOSE = "(() => {{ const e = document.querySelector('select[aria-label=\"{}\"]'); e.value = '{}'; e.dispatchEvent(new Event('change')); }})()"


@unittest.skipUnless(find_chromium(), "Chromium is not installed (scripts/setup --tests)")
class InChromium(unittest.TestCase):
    skipped = not find_chromium()

    @classmethod
    def setUpClass(cls):
        if cls.skipped:
            return
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = os.path.join(cls.folder.name, "home")
        demo_ledger.make(cls.home, runs=40, points=300)
        cls.server = Server(RUNNER, cls.home, "--open-read")
        cls.browser = Browser()
        cls.names = {"run": cls.server.get("runs", filter="status:finished -name:lr_and*", limit=1)["runs"][0]["id"], "sweep": cls.server.get("sweeps")["sweeps"][0]["id"]}

    @classmethod
    def tearDownClass(cls):
        if cls.skipped:
            return
        cls.browser.close()
        cls.server.stop()
        cls.folder.cleanup()

    def page(self, path="/", until=None, **options):
        return self.page_of(self.server, path, until, **options)

    def page_of(self, server, path="/", until=None, write=False, **shape):
        """The page after the condition `until` has become true."""
        page = self.browser.page(**shape)
        self.addCleanup(page.close)
        page.open(server.url + path + (f"#token={server.token}" if write else ""))
        if until:
            page.wait(until)
        return page

    def view(self, name, **shape):
        path, ready = READY[name]
        page = self.page(path.format(**self.names), ready, **shape)
        page.settle(0.4)
        return page

    def download(self, page, click):
        """What the page saves after the expression `click` has run: (name, bytes)."""
        with tempfile.TemporaryDirectory() as folder:
            self.browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
            page.run(click)
            end, size = time.monotonic() + 20, -1
            while time.monotonic() < end:
                page.settle(0.1)
                files = [name for name in os.listdir(folder) if not name.endswith(".crdownload") and not name.startswith(".")]
                if files and os.path.getsize(os.path.join(folder, files[0])) == size > 0:
                    with open(os.path.join(folder, files[0]), "rb") as file:
                        return files[0], file.read()
                size = os.path.getsize(os.path.join(folder, files[0])) if files else -1
        self.fail(f"nothing was saved by {click}; problems: {page.problems}")

    def export(self, page, title, kind):
        """The chart of that title as PNG, SVG or CSV."""
        page.run(f"[...document.querySelectorAll('button')].find((e) => e.getAttribute('aria-label') == 'Export ' + {json.dumps(title)}).click()")
        page.wait(f"document.querySelector('[data-export={kind}]')")
        return self.download(page, f"document.querySelector('[data-export={kind}]').click()")[1]

    def table(self, page, title):
        """The rows of the chart's CSV."""
        return list(csv.reader(io.StringIO(self.export(page, title, "csv").decode())))

    def texts(self, page, title):
        """The texts of the chart's SVG."""
        svg = xml.etree.ElementTree.fromstring(self.export(page, title, "svg"))
        return ["".join(one.itertext()) for one in svg.iter() if one.tag.endswith("text")]

    def assert_clean(self, page):
        self.assertEqual(page.problems, [])
        foreign = [url for url in page.requests if not url.startswith((page.run("location.origin"), "data:", "blob:", "about:"))]
        self.assertEqual(foreign, [], "the page asked another host")
