"""Drives a headless Chromium over the pipe of its DevTools protocol. It needs only Python's standard library.

    with Browser() as browser:
        page = browser.page(width=1280, height=800)
        page.open("http://127.0.0.1:8080/")
        page.wait("document.querySelectorAll('tbody tr').length > 3")
        page.screenshot("runs.png")
        assert page.problems == []

Protocol: https://127.0.0.1/json/protocol of a Chromium with --remote-debugging-port; messages end with a zero byte on the pipe.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

KEYS = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, " ": 32}


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class BrowserError(AssertionError):
    pass


class Browser:
    def __init__(self, program=None):
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def pipes():  # descriptors 3 and 4 are Chromium's; the sources may have these very numbers
            high_in, high_out = os.dup(to_browser), os.dup(from_browser)
            os.dup2(high_in, 3, inheritable=True)
            os.dup2(high_out, 4, inheritable=True)

        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.process = subprocess.Popen(
            [program or find_chromium(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--disable-extensions", "--disable-sync", f"--user-data-dir={self.folder}/profile", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.answers, self.pages = b"", 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for end in (self.write_end, self.read_end):
            os.close(end)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method, session=None, **arguments):
        self.number += 1
        message = {"id": self.number, "method": method, "params": arguments}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        return self.number

    def call(self, method, session=None, seconds=30, **arguments):
        number = self.send(method, session, **arguments)
        end = time.monotonic() + seconds
        while number not in self.answers:
            if time.monotonic() > end:
                raise BrowserError(f"{method}: no answer within {seconds} s")
            self.read(0.5)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def read(self, seconds):
        """Handles the messages that arrive within `seconds`; returns after the first ones."""
        if not select.select([self.read_end], [], [], seconds)[0]:
            return
        piece = os.read(self.read_end, 1 << 20)
        if not piece:
            self.log.seek(0)
            raise BrowserError("Chromium has ended:\n" + self.log.read()[-2000:])
        self.buffer += piece
        *messages, self.buffer = self.buffer.split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            elif page := self.pages.get(message.get("sessionId")):
                page.on_event(message["method"], message["params"])

    def page(self, width=1280, height=800, dark=False, phone=False, scale=1, window=False):
        """A new tab, which hides the one before; `window`: in a window of its own."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=window)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.shape(width, height, phone, scale)
        page.media(dark)
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.problems = []  # errors and warnings of the console, exceptions, requests that failed
        self.requests, self.loaded, self.closed = [], False, False

    def call(self, method, **arguments):
        return self.browser.call(method, self.session, **arguments)

    def shape(self, width, height, phone=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def media(self, dark):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def on_event(self, method, arguments):
        if method == "Runtime.exceptionThrown":
            details = arguments["exceptionDetails"]
            self.problems.append("exception: " + details.get("exception", {}).get("description", details.get("text", "")))
        elif method == "Runtime.consoleAPICalled" and arguments["type"] in ("error", "warning", "assert"):
            self.problems.append(f"console.{arguments['type']}: " + " ".join(str(a.get("value", a.get("description"))) for a in arguments["args"]))
        elif method == "Log.entryAdded" and arguments["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"log: {arguments['entry']['text']} {arguments['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(arguments["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, url):
        self.loaded = False
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        if "loaderId" not in answer:  # only the fragment differs
            return
        end = time.monotonic() + 30
        while not self.loaded:
            if time.monotonic() > end:
                raise BrowserError(f"{url} did not load within 30 s")
            self.browser.read(0.5)

    def run(self, expression):
        """The value of an expression of JavaScript; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{expression}: " + details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, condition, seconds=15):
        """Waits until the expression is true, and returns its value. An exception counts as false: what is asked for is not there yet.
        So does a page that is replaced by another one during the question."""
        end = time.monotonic() + seconds
        while True:
            try:
                value, problem = self.run(f"(() => {{ try {{ const value = {condition}; return [value instanceof Node ? true : value, '']; }} catch (error) {{ return [false, String(error)]; }} }})()")
            except BrowserError as error:
                if "navigated or closed" not in str(error):
                    raise
                value, problem = False, str(error)
            if value:
                return value
            if time.monotonic() > end:
                raise BrowserError(f"not true after {seconds} s: {condition}\n{problem}\nthe page says: {self.run('document.body.innerText')[:1500]}\nproblems: {self.problems}")
            self.browser.read(0.05)

    def settle(self, seconds=0.3):
        """Handles events for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.browser.read(0.05)

    def place(self, selector):
        """The centre of the first element that matches."""
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: 'nearest'}});"
                       " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        if not box:
            raise BrowserError(f"there is no {selector}")
        return box

    def mouse(self, kind, x, y, button="none", clicks=0, modifiers=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=clicks, modifiers=modifiers, buttons=1 if button == "left" else 0)

    def hover(self, selector):
        self.mouse("mouseMoved", *self.place(selector))

    def click(self, selector, modifiers=0, clicks=1):
        x, y = self.place(selector)
        self.mouse("mouseMoved", x, y)
        for count in range(1, clicks + 1):
            self.mouse("mousePressed", x, y, "left", count, modifiers)
            self.mouse("mouseReleased", x, y, "left", count, modifiers)

    def drag(self, x, y, to_x, to_y, modifiers=0):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, "left", 1, modifiers)
        for part in (0.3, 0.6, 1.0):
            self.mouse("mouseMoved", x + (to_x - x) * part, y + (to_y - y) * part, "left", 0, modifiers)
        self.mouse("mouseReleased", to_x, to_y, "left", 1, modifiers)

    def pinch(self, from_x, to_x, y):
        """Two fingers move from the two places `from_x` to those of `to_x`."""
        for part in (0, 0.5, 1):
            points = [{"x": a + (b - a) * part, "y": y, "id": i} for i, (a, b) in enumerate(zip(from_x, to_x))]
            self.call("Input.dispatchTouchEvent", type="touchMove" if part else "touchStart", touchPoints=points)
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key):
        code = KEYS.get(key) or ord(key.upper())
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path, whole=False):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        if not self.closed:
            self.browser.call("Target.closeTarget", targetId=self.target)
        self.closed = True
