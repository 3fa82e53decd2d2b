"""What the tests of the page share: a demo ledger, its server, a browser, and what each view shows when it is ready."""
import os
import sys
import tempfile
import unittest

import demo_ledger
from browser import Browser, find_chromium
from ui_server import Server

RUNNER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""

# What each view shows when it is ready.
READY = {
    "runs": ("/", "document.querySelectorAll('.runs-table tr[data-id]').length > 5 && document.querySelector('.spark path')"),
    "compare": ("/compare?filter=limit:5", "document.querySelectorAll('.chart canvas').length >= 2 && document.querySelectorAll('td.best').length > 0"),
    "compare_many": ("/compare?filter=archived:any&smoothing=0.6", "document.querySelectorAll('.chart canvas').length >= 2 && document.querySelectorAll('td.best').length > 0"),
    "run": ("/run/{run}", "document.querySelectorAll('.chart canvas').length >= 4 && document.querySelector('.timeline .tick')"),
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


@unittest.skipUnless(find_chromium(), "Chromium is not installed (scripts/setup --tests)")
class InChromium(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not find_chromium():
            return
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = os.path.join(cls.folder.name, "home")
        demo_ledger.make(cls.home, runs=40, points=300)
        cls.server = Server(RUNNER, cls.home)
        cls.browser = Browser()
        cls.names = {"run": cls.server.get("runs", filter="status:finished -name:lr_and*", limit=1)["runs"][0]["id"], "sweep": cls.server.get("sweeps")["sweeps"][0]["id"]}

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.stop()
        cls.folder.cleanup()

    def page(self, path="/", write=False, **shape):
        page = self.browser.page(**shape)
        self.addCleanup(page.close)
        page.open(self.server.url + path + (f"#token={self.server.token}" if write else ""))
        return page

    def view(self, name, **shape):
        path, ready = READY[name]
        page = self.page(path.format(**self.names), **shape)
        page.wait(ready)
        page.settle(0.4)
        return page

    def assert_clean(self, page):
        self.assertEqual(page.problems, [])
        foreign = [url for url in page.requests if not url.startswith((self.server.url, "data:", "blob:", "about:"))]
        self.assertEqual(foreign, [], "the page asked another host")
