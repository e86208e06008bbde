# SPDX-License-Identifier: Apache-2.0
"""The live view in a browser: shows the node's state, follows it, and works everywhere.

It works by keyboard, on a narrow screen, in light mode and in dark mode. Leaves screenshots in the
build folder (web_light.png and others), for inspection.
"""

import os
import re
import time
import unittest

import browser
from check_plot import png_bytes
from cli_support import BUILD, main
from web_support import WebTest, comes_true

DIALOG = "document.querySelector('#detail').open"


@unittest.skipUnless(browser.PROGRAM, "no Chromium here")
class InABrowser(WebTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.browser.start(1280, 1000)

    def open(self, server, fragment="", width=1280, height=1000, scheme="light"):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                          deviceScaleFactor=1, mobile=width < 600)
        self.browser.call("Emulation.setEmulatedMedia",
                          features=[{"name": "prefers-color-scheme", "value": scheme}])
        # The page of the test before may still complain that its server is gone.
        self.browser.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.browser.events.clear()
        self.browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/{fragment}")
        self.wait("document.querySelector('#link') && "
                  "document.querySelector('#link').className === 'link up'")

    def wait(self, expression):
        try:
            self.browser.wait_for(lambda: self.browser.value(f"Boolean({expression})"), seconds=60)
        except RuntimeError as error:
            self.fail(f"{error}: {expression}\n{self.text()}\n{self.browser.complaints()}")

    def text(self, selector="body"):
        return self.browser.value(f"document.querySelector('{selector}').innerText").replace(
            "\u00a0", " ")

    def wait_for_text(self, selector, pattern):
        try:
            self.browser.wait_for(lambda: re.search(pattern, self.text(selector)), seconds=60)
        except RuntimeError:
            self.fail(f"{pattern} is not in\n{self.text()}\n{self.browser.complaints()}")

    def rest(self, seconds):
        until = time.monotonic() + seconds
        self.browser.wait_for(lambda: time.monotonic() > until)

    def picture(self, name):
        """Takes a screenshot once animations have ended."""
        self.rest(0.6)
        picture = self.browser.screenshot()
        with open(os.path.join(BUILD, f"web_{name}.png"), "wb") as file:
            file.write(picture)
        self.assertGreater(len(set(png_bytes(picture))), 50)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                              windowsVirtualKeyCode=code,
                              **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def at_rest(self, server):
        self.assertEqual(self.browser.complaints(), [])
        for url in self.browser.requests():
            self.assertTrue(url.startswith((f"http://127.0.0.1:{server.port}/", "about:", "data:")),
                            url)

    def two_clients(self):
        server = self.serve()
        self.holder([96], "--name", "first", "--wait", "20s")
        second = self.holder([8], "--name", "second", "--guarantee", "64M", "--wait", "20s")
        return server, second

    def test_shows_clients_and_follows_them(self):
        server, second = self.two_clients()
        self.open(server)
        self.wait("document.querySelectorAll('#clients tbody tr').length === 2")
        self.assertIn("GPU 0", self.text("#devices"))
        self.assertIn("first · 96 MiB", self.text("#devices .bar"))
        self.assertIn("≥ 64 MiB", self.text("#clients"))
        second.do("held.append(allocate(200 << 20))")  # the first is paused to make room
        self.wait_for_text("#devices .bar", "second")
        self.wait_for_text("#devices .away", "first · 96 MiB")
        self.wait_for_text("#events", "first gave .* of GPU 0 to second")
        # On a busy machine it is paused only after the deadline.
        self.wait_for_text("#events", "by a pause, (applied|expired)")
        self.wait_for_text("#clients", r"first\s+paused")
        self.picture("light")
        self.at_rest(server)

    def test_a_client_that_leaves_disappears(self):
        server, second = self.two_clients()
        self.open(server)
        self.wait("document.querySelectorAll('#clients tbody tr').length === 2")
        second.end()
        self.wait("document.querySelectorAll('#clients tbody tr').length === 1")
        self.wait_for_text("#events", "second left")
        self.at_rest(server)

    def test_a_clients_details_open_by_keyboard_alone(self):
        server, _ = self.two_clients()
        self.open(server, scheme="dark")
        self.wait("document.querySelector('#devices .bar button')")
        for _ in range(12):
            self.press("Tab", 9)
            if self.browser.value("document.activeElement.closest('.bar') !== null"):
                break
        self.assertRegex(self.browser.value("document.activeElement.getAttribute('aria-label')"),
                         r"^first, in use: 96\sMiB$")
        self.press("Enter", 13)
        self.wait(DIALOG)
        self.assertEqual(self.text("#detail-title"), "first")
        self.assertIn("0 B guaranteed, no limit", self.text("#detail-body"))
        self.wait_for_text("#detail-body .regions", r"blocking, windows\s96 MiB: 96 MiB in use.*1 block")
        self.assertGreater(self.browser.value(
            "document.querySelector('.region .used').getBoundingClientRect().width"), 100)
        self.picture("dark")
        # It stays open and keeps its focus while new states arrive.
        self.rest(2.5)
        self.assertTrue(self.browser.value(DIALOG))
        self.press("Escape", 27)
        self.wait(f"!{DIALOG}")
        self.assertTrue(self.browser.value("document.activeElement.closest('.bar') !== null"))
        self.at_rest(server)

    def test_a_narrow_screen_has_room_for_it(self):
        server, second = self.two_clients()
        second.do("held.append(allocate(200 << 20))")
        self.open(server, width=400, height=1500)
        self.wait("document.querySelectorAll('#clients tbody tr').length === 2")
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 400)
        self.picture("narrow")
        self.browser.value("document.querySelector('#clients tbody button').click()")
        self.wait(DIALOG)
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 400)
        self.picture("narrow_detail")
        self.at_rest(server)

    def test_holding_freezes_the_view(self):
        server, second = self.two_clients()
        self.open(server)
        self.wait("document.querySelectorAll('#clients tbody tr').length === 2")
        self.browser.value("document.querySelector('#hold').click()")
        second.end()
        self.rest(2.5)
        self.assertEqual(self.browser.value(
            "document.querySelectorAll('#clients tbody tr').length"), 2)
        self.browser.value("document.querySelector('#hold').click()")
        self.wait("document.querySelectorAll('#clients tbody tr').length === 1")

    def test_markup_in_a_name_is_text(self):
        server = self.serve()
        self.holder([8], "--name", "<img src=x onerror=alert(1)>")
        self.open(server)
        self.wait("document.querySelectorAll('#clients tbody tr').length === 1")
        self.assertIn("<img src=x onerror=alert(1)>", self.text("#clients"))
        self.assertEqual(self.browser.value("document.querySelectorAll('img').length"), 0)
        self.at_rest(server)

    def test_shows_a_lost_service_and_reconnects(self):
        server = self.serve()
        self.open(server)
        server.end()
        self.wait("document.querySelector('#link').className === 'link down'")
        words = ("--http", f"127.0.0.1:{server.port}")
        self.serve(*words)
        self.wait("document.querySelector('#link').className === 'link up'")

    def test_accepts_the_token_in_the_address(self):
        path = os.path.join(self.runtime, "token")
        with open(path, "w", encoding="utf-8") as file:
            file.write("0123456789abcdef-token\n")
        os.chmod(path, 0o600)
        server = self.serve("--http-token-file", path)
        self.open(server, "#0123456789abcdef-token")
        self.at_rest(server)
        self.browser.call("Page.navigate", url="about:blank")
        self.browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/#wrong")
        self.wait("document.querySelector('#ask') && !document.querySelector('#ask').hidden")
        self.browser.value("document.querySelector('#token').value = '0123456789abcdef-token'; "
                           "document.querySelector('#ask button').click()")
        self.wait("document.querySelector('#link').className === 'link up'")

    def test_top_serves_the_view_without_a_service(self):
        self.holder([32, 8], "--name", "alone")
        server = self.serve_top()
        self.open(server)
        self.wait("document.querySelectorAll('#clients tbody tr').length === 1")
        self.assertIn("alone · 40 MiB", self.text("#devices .bar"))
        self.assertIn("no cuvmmd", self.text("#source"))
        self.assertFalse(self.browser.value(
            "document.querySelector('#events-card').offsetParent !== null"))
        self.picture("without_service")
        self.at_rest(server)

    def test_top_shows_the_same_as_a_running_service(self):
        self.serve()
        self.holder([32], "--name", "one", "--guarantee", "64M")
        server = self.serve_top()
        self.open(server)
        self.wait_for_text("#clients", "≥ 64 MiB")
        self.assertIn("cuvmmd, up", self.text("#source"))
        self.at_rest(server)

    def test_says_that_there_are_no_clients(self):
        server = self.serve()

        def says_so():
            """A page that has ever seen another test's program goes on showing its past."""
            self.open(server)
            return self.browser.value("!document.querySelector('#nobody').hidden")

        self.assertTrue(comes_true(says_so), self.text())
        self.picture("nobody")
        self.at_rest(server)


if __name__ == "__main__":
    main()
