# SPDX-License-Identifier: Apache-2.0
"""A headless browser, driven by the Chrome DevTools protocol over a pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = next((path for name in ("chromium", "chromium-browser", "google-chrome")
                if (path := shutil.which(name))), None)

OPTIONS = ("--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync",
           "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio")


class Browser:
    """A browser with one document, which records console messages and network requests."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="cuvmm-browser-")
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        options = [*OPTIONS, f"--user-data-dir={self.folder}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to run as root without it
        # The browser expects the ends of the pipe under these two numbers.
        in_shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", in_shell, "bash", PROGRAM, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self.folder))
        os.close(theirs_in)
        os.close(theirs_out)
        self.unread = b""
        self.last = 0
        self.session = None
        self.events = []

    def start(self, width=1400, height=1450):
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, seconds):
        """Returns the next message; None if none arrives in time."""
        until = time.monotonic() + seconds
        while b"\0" not in self.unread:
            left = max(0, until - time.monotonic())
            if not select.select([self.back], [], [], left)[0]:
                return None
            data = os.read(self.back, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.unread += data
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(100)
            if answer is None:
                raise RuntimeError(f"no answer to {method}")
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path).replace(" ", "%20"))
        self.wait_for(lambda: any(event.get("method") == "Page.loadEventFired"
                                  for event in self.events))

    def wait_for(self, condition, seconds=100):
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError("it does not come true")
            event = self.receive(0.05)
            if event is not None:
                self.events.append(event)

    def value(self, expression):
        """Returns the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, begin, end):
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.mouse("mouseMoved", *begin)
        self.mouse("mousePressed", *begin, **held)
        for step in range(1, 6):
            self.mouse("mouseMoved", *(a + (b - a) * step / 5 for a, b in zip(begin, end)), **held)
        self.mouse("mouseReleased", *end, **held)

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def complaints(self):
        """Returns the console's errors and warnings, and uncaught exceptions."""
        said = []
        for event in self.events:
            what, of = event.get("method"), event.get("params", {})
            if what == "Runtime.exceptionThrown":
                said.append(str(of["exceptionDetails"]))
            elif what == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning",
                                                                       "assert"):
                said.append(str(of["args"]))
            elif what == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
                said.append(str(of["entry"]["text"]))
        return said

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]
