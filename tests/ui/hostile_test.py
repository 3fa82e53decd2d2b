"""Clients that no browser is, and a system that has run out of threads and descriptors: `runner ui` goes on.

    hostile_test.py RUNNER [unittest's arguments]
"""
import os
import random
import resource
import socket
import threading
import time
import unittest
import zlib

from with_server import WithServer


def has_sanitizer(server):
    """Programs with AddressSanitizer or ThreadSanitizer have terabytes of addresses."""
    return server.status_of("VmSize") << 10 > 1 << 40


class HostileClients(WithServer):
    """1,000 requests that no browser sends. None may end the server, block it, or leave memory, threads or descriptors behind."""
    options = ("--open-read",)  # so that all get further than the check of the token

    def head(self, *lines):
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def request(self, rnd, host):
        id_ = self.id_
        path = rnd.choice(["/", "/api/1/runs", "/api/1/curves", "/static/x", f"/api/1/runs/{id_}", f"/api/1/runs/{id_}/logs", "/api/1/compare"])
        junk = lambda size: bytes(rnd.randrange(256) for _ in range(size))  # noqa: E731
        letters = lambda size: "".join(rnd.choice("abc%./\\?&=+;~'\"<>{}") for _ in range(size))  # noqa: E731
        kind = rnd.randrange(24)
        host = f"Host: {host}"
        if kind == 0:
            return junk(rnd.choice([1, 20, 500, 5000]))
        if kind == 1:
            return self.head(f"GET {path}/../../../../etc/passwd HTTP/1.1", host)
        if kind == 2:
            return self.head(f"GET /{'%2e%2e/' * rnd.randrange(1, 60)}etc/passwd HTTP/1.1", host)
        if kind == 3:
            return self.head(f"GET /{'a' * rnd.choice([1000, 2100, 8000, 9000, 100000])} HTTP/1.1", host)
        if kind == 4:
            return self.head(f"GET {path}?filter={letters(rnd.choice([10, 200, 4000]))} HTTP/1.1", host)
        if kind == 5:
            return self.head(f"GET {path} HTTP/1.1", host, *(f"X-{i}: {'v' * rnd.choice([1, 100, 4000])}" for i in range(rnd.choice([50, 500]))))
        if kind == 6:
            return self.head(f"GET {path} HTTP/1.1", host, f"X: {'y' * rnd.choice([8000, 9000, 70000])}")
        if kind == 7:
            return self.head(f"POST {path} HTTP/1.1", host, f"Content-Length: {rnd.choice([-1, 2**31, 2**63, 2**64, 10**30, 99999999])}") + junk(100)
        if kind == 8:
            return self.head("POST /api/1/runs/x/edit HTTP/1.1", host, "Content-Length: x1")
        if kind == 9:
            return self.head("POST /api/1/runs/x/edit HTTP/1.1", host, "Transfer-Encoding: chunked") + rnd.choice([b"zz\r\n", b"FFFFFFFFFFFFFFFF\r\n" + b"a" * 1000, b"-5\r\nab", b"5\r\nab"])
        if kind == 10:
            bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
            body = bomb.compress(b"\0" * (8 << 20)) + bomb.flush()
            return self.head(f"POST /api/1/runs/{id_}/edit HTTP/1.1", host, "Content-Encoding: gzip", f"Content-Length: {len(body)}", f"X-Runner-Token: {self.server.token}") + body
        if kind == 11:
            return self.head(f"GET {path} HTTP/1.1", host, "Range: bytes=" + ",".join(["0-"] * rnd.choice([1, 100, 1300])))
        if kind == 12:
            return self.head(f"{rnd.choice(['DELETE', 'PUT', 'TRACE', 'CONNECT', 'PROPFIND', 'get', 'G' * 300, ''])} {path} HTTP/1.1", host)
        if kind == 13:
            return self.head(f"GET {path} HTTP/{rnd.choice(['0.9', '1.0', '2.0', '9.9', 'x'])}", host)
        if kind == 14:
            return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + junk(500)  # the start of TLS
        if kind == 15:
            return self.head(f"GET {path}?runs={','.join([id_] * rnd.choice([1, 50, 300]))}&metric=loss&pixels=4000 HTTP/1.1", host)
        if kind == 16:
            return self.head(f"GET {path}?from={rnd.choice(['nan', 'inf', '1e999', '-1', '9' * 400])}&lines={rnd.choice(['0', '-1', '999999999999999999999'])}&offset=-5 HTTP/1.1", host)
        if kind == 17:
            return self.head(f"GET /api/1/runs/{rnd.choice(['%00', '%ff%fe', '..', '%2f', letters(100).replace('?', ''), '*'])} HTTP/1.1", host)
        if kind == 18:
            return self.head(f"GET {path} HTTP/1.1", host, host, "Host: evil.example")
        if kind == 19:
            return self.head(f"POST /api/1/runs/{id_}/edit HTTP/1.1", host, "Content-Type: multipart/form-data; boundary=x", "Content-Length: 100000", f"X-Runner-Token: {self.server.token}") + junk(5000)
        if kind == 20:
            deep = b"[" * 200000
            return self.head(f"POST /api/1/runs/{id_}/edit HTTP/1.1", host, f"Content-Length: {len(deep)}", f"X-Runner-Token: {self.server.token}") + deep
        if kind == 21:
            return self.head(f"GET {path} HTTP/1.1", host, "Connection: keep-alive") * rnd.choice([2, 30])
        if kind == 22:
            return self.head("GET /api/1/events HTTP/1.1", host)
        return self.head(f"GET {path} HTTP/1.1\0", host, "\0: \0", ": empty", "no colon", " folded")

    def send(self, data, patience):
        """Sends, reads a little, and goes away; some never read."""
        try:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=patience) as one:
                one.sendall(data)
                if patience > 0.3:
                    try:
                        while one.recv(65536):
                            pass
                    except TimeoutError:
                        pass
        except OSError:
            pass

    def attack(self, count, seed):
        rnd = random.Random(seed)
        requests = [(self.request(rnd, f"127.0.0.1:{self.server.port}"), rnd.choice([0.1, 0.2, 0.5])) for _ in range(count)]
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    if not requests:
                        return
                    data, patience = requests.pop()
                self.send(data, patience)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def calm(self):
        """(threads, descriptors, resident kB) when all connections have ended."""
        end = time.monotonic() + 60
        while self.server.status_of("Threads") > self.threads and time.monotonic() < end:
            time.sleep(0.2)
        return self.server.status_of("Threads"), self.server.descriptors(), self.server.status_of("VmRSS")

    def test_a_thousand_hostile_requests(self):
        self.id_ = self.some_run("status:finished -name:lr_and*")
        for path in ("runs", "words", f"runs/{self.id_}", "sweeps"):
            self.get(path)
        time.sleep(1)
        self.threads = self.server.status_of("Threads")
        self.attack(500, 1)
        threads, descriptors, memory = self.calm()
        self.get("runs")
        self.attack(500, 2)
        self.assertIsNone(self.server.process.poll(), "the server has ended")
        after = self.calm()
        self.get("runs")
        self.assertLessEqual(after[0], threads)
        self.assertLessEqual(after[1], descriptors + 2)
        if not has_sanitizer(self.server):  # which keeps freed memory for a while
            self.assertLess(after[2], memory + 20_000, "resident memory grew from one half of the requests to the other")
            self.assertLess(after[2], 150_000)

    def test_more_connections_than_allowed_are_refused_at_once(self):
        crowd = [socket.create_connection(("127.0.0.1", self.server.port), timeout=5) for _ in range(128)]
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=5) as one:
            self.assertIn(b"503", one.recv(1000))
        for one in crowd:
            one.close()
        end = time.monotonic() + 10
        while self.server.ask("/api/1/runs", limit=1)[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)


class SlowClients(WithServer):
    """On a server that has no other connections."""
    options = ("--open-read",)  # so that all get further than the check of the token

    def test_slow_clients_are_disconnected_and_block_nobody(self):
        slow = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(100)]
        began, gone = time.monotonic(), 0
        for one in slow:
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")
            one.setblocking(False)
        while slow and time.monotonic() - began < 25:
            asked = time.monotonic()
            self.assertEqual(self.server.ask("/api/1/runs", limit=1)[0], 200)
            self.assertLess(time.monotonic() - asked, 3)
            for one in list(slow):
                try:
                    one.send(b"1")  # a byte now and then does not give more time
                    if one.recv(1000) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    continue
                except OSError:
                    slow.remove(one)
                    one.close()
                    gone += 1
            time.sleep(0.5)
        self.assertEqual(gone, 100)
        self.assertLess(time.monotonic() - began, 20)


class Scarcity(WithServer):
    """The system gives the server no thread, no memory or no descriptor for a while."""
    options = ("--open-read",)  # so that all get further than the check of the token

    def limited(self, what, value):
        """Sets a limit of the running server until the test ends; returns a function that lifts it before."""
        pid = self.server.process.pid
        before = resource.prlimit(pid, what)
        resource.prlimit(pid, what, (value, before[1]))
        lift = lambda: resource.prlimit(pid, what, before)  # noqa: E731
        self.addCleanup(lift)
        return lift

    def crowd(self, count):
        """Connections that are open together; each asks for the list of runs. Returns the answers."""
        clients, answers = [], []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
            clients.append(one)
            one.sendall(f"GET /api/1/runs?limit=1 HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\n\r\n".encode())
        for one in clients:
            try:
                answers.append(one.recv(4096))
            except OSError:
                answers.append(b"")
        for one in clients:
            one.close()
        return answers

    def without_memory_for_stacks(self, room):
        """A sanitizer, which has terabytes of addresses, ends the program when it gets no memory."""
        size = self.server.status_of("VmSize") << 10
        if has_sanitizer(self.server):
            self.skipTest("the program was built with a sanitizer")
        return self.limited(resource.RLIMIT_AS, size + room)

    def test_no_threads(self):
        self.get("runs")
        lift = self.without_memory_for_stacks(2 << 20)
        answers = self.crowd(40)
        self.assertTrue(any(b"503" in one and b"no thread" in one and b"Retry-After" in one for one in answers), answers[-1])
        self.assertIsNone(self.server.process.poll())
        lift()
        self.assertTrue(all(b" 200 OK" in one for one in self.crowd(40)))
        ids = ",".join(run["id"] for run in self.get("runs", limit=40)["runs"])
        self.assertGreater(len(self.get("curves", runs=ids, metric="loss")["curves"]), 30)

    def test_curves_without_helping_threads(self):
        ids = ",".join(run["id"] for run in self.get("runs", limit=40)["runs"])
        for pixels in (20, 21):
            self.get("curves", runs=ids, metric="loss", pixels=pixels)
        lift = self.without_memory_for_stacks(4 << 20)
        for pixels in range(22, 42):
            status, headers, _ = self.server.ask("/api/1/curves", runs=ids, metric="loss", pixels=pixels)
            self.assertIn(status, (200, 503))
            self.assertEqual("Retry-After" in headers, status == 503)
        self.assertIsNone(self.server.process.poll())
        lift()
        self.assertGreater(len(self.get("curves", runs=ids, metric="loss")["curves"]), 30)

    def test_no_descriptors(self):
        self.get("runs")
        open_now = len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        lift = self.limited(resource.RLIMIT_NOFILE, open_now + 6)
        clients = [socket.create_connection(("127.0.0.1", self.server.port), timeout=20) for _ in range(30)]
        time.sleep(1)
        self.assertIsNone(self.server.process.poll())
        used = self.server.cpu_seconds()
        time.sleep(1)
        self.assertLess(self.server.cpu_seconds() - used, 0.5, "it waits, and does not spin")
        lift()
        for one in clients:  # those that waited in the queue are served now
            one.sendall(f"GET /api/1/runs?limit=1 HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\nConnection: close\r\n\r\n".encode())
        for one in clients:
            self.assertIn(b" 200 OK", one.recv(4096))
            one.close()


if __name__ == "__main__":
    unittest.main()
