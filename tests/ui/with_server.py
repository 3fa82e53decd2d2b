"""What the tests of the server of `runner ui` share: a demo ledger and its server."""
import os
import subprocess
import sys
import tempfile
import unittest

import demo_ledger
from ui_server import Server

RUNNER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""


class WithServer(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = os.path.join(cls.folder.name, "home")
        demo_ledger.make(cls.home, runs=30, points=300, sweep=16)
        cls.server = Server(RUNNER, cls.home, *cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def get(self, path, **parameters):
        return self.server.get(path, **parameters)

    def some_run(self, filter_="status:finished"):
        return self.get("runs", filter=filter_, limit=1)["runs"][0]["id"]

    def runner(self, *arguments):
        return subprocess.run([RUNNER, *arguments], capture_output=True, text=True, env={**os.environ, "RUNNER_HOME": self.home}, check=True).stdout
