"""The life of `runner ui`: it begins without a ledger, follows one that is replaced, and ends on an interrupt.

    server_life_test.py RUNNER [unittest's arguments]
"""
import http.client
import os
import subprocess
import tempfile
import time
import unittest

import demo_ledger
from ui_server import Server, listen
from with_server import RUNNER


class Life(unittest.TestCase):
    def test_an_empty_folder_becomes_a_ledger_later(self):
        with tempfile.TemporaryDirectory() as folder:
            home = os.path.join(folder, "home")
            with Server(RUNNER, home) as server:
                self.assertEqual(server.get("runs")["matching"], 0)
                self.assertEqual(server.get("sweeps")["sweeps"], [])
                self.assertEqual(server.ask("/api/1/runs/x")[0], 404)
                demo_ledger.make(home, runs=3, points=20, sweep=0)
                self.assertEqual(server.get("runs")["matching"], 3)

    def test_a_ledger_that_is_replaced_or_deleted(self):
        with tempfile.TemporaryDirectory() as folder:
            home, other = os.path.join(folder, "home"), os.path.join(folder, "other")
            demo_ledger.make(home, runs=3, points=20, sweep=0)
            demo_ledger.make(other, runs=5, points=20, sweep=0, seed=8)

            def remove():
                for name in os.listdir(home):
                    if name.startswith("ledger.db"):
                        os.remove(os.path.join(home, name))

            with Server(RUNNER, home) as server:
                stream, lines = listen(server)
                time.sleep(2.2)
                for filter_ in ("", "steps>0"):
                    self.assertEqual(server.get("runs", filter=filter_)["matching"], 3)
                server.get("curves", filter="", metric="loss")
                remove()
                os.rename(os.path.join(other, "ledger.db"), os.path.join(home, "ledger.db"))
                for filter_ in ("", "steps>0"):
                    runs = server.get("runs", filter=filter_)["runs"]
                    self.assertEqual(len(runs), 5)
                    self.assertTrue(all(len(run["sparkline"]) > 1 for run in runs))
                self.assertEqual(len(server.get("curves", runs=",".join(run["id"] for run in runs), metric="loss")["curves"]), 5)
                self.assertEqual(next(line for line in lines if line.startswith("event")), "event: reload\n")
                remove()
                self.assertEqual(server.get("runs")["matching"], 0)
                self.assertEqual(server.ask(f"/api/1/runs/{runs[0]['id']}")[0], 404)
                self.assertEqual(next(line for line in lines if line.startswith("event")), "event: reload\n")
                demo_ledger.make(home, runs=2, points=20, sweep=0)
                self.assertEqual(next(line for line in lines if line.startswith("event")), "event: reload\n")
                self.assertEqual(server.get("runs")["matching"], 2)
                stream.close()

    def test_an_interrupt_ends_it_also_with_open_streams(self):
        with tempfile.TemporaryDirectory() as folder:
            demo_ledger.make(folder, runs=3, points=20, sweep=0)
            server = Server(RUNNER, folder)
            streams = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=10) for _ in range(5)]
            for stream in streams:
                stream.request("GET", f"/api/1/events?token={server.token}")
                stream.getresponse()
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 3)
            for stream in streams:
                stream.close()

    def test_the_programs_load_no_library_of_the_server(self):
        libraries = subprocess.run(["ldd", RUNNER], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(libraries, "httplib|ssl|brotli")


if __name__ == "__main__":
    unittest.main()
