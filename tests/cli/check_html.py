# SPDX-License-Identifier: Apache-2.0
"""The HTML of `cuvmm plot` in a browser: it complains of nothing, needs nothing, and is alive.

A picture of it is left in the build folder (plot_html.png), to be looked at."""

import os
import unittest

import browser
from check_plot import can_draw, png_bytes, python_for_plots
from cli_support import BUILD, CliTest, frag_trace, main

PLOT = "document.querySelector('.js-plotly-plot')"


@unittest.skipUnless(browser.PROGRAM, "no Chromium here")
@unittest.skipUnless(can_draw("plotly"), "no plotly here")
class InABrowser(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.browser.start()

    def setUp(self):
        super().setUp()
        path = self.path("before and after.html")
        self.good("plot", frag_trace("monitor"), frag_trace("vmm"), "-o", path,
                  env={"CUVMM_PYTHON": python_for_plots()})
        self.browser.open(path)
        self.browser.wait_for(lambda: self.browser.value(
            f"!!{PLOT} && {PLOT}.querySelectorAll('.nsewdrag').length === 12"))

    def panel(self, number):
        """Left, top, width and height of a panel, in order of drawing."""
        return self.browser.value(
            f"(() => {{ const r = {PLOT}.querySelectorAll('.nsewdrag')[{number}]"
            ".getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()")

    def range_of(self, axis):
        return self.browser.value(f"{PLOT}._fullLayout.{axis}.range")

    def at_rest(self):
        self.assertEqual(self.browser.complaints(), [])
        outside = [url for url in self.browser.requests()
                   if not url.startswith(("data:", "blob:", "about:"))]
        self.assertEqual(len(outside), 1, outside)
        self.assertTrue(outside[0].startswith("file://"))

    def test_it_is_whole_and_asks_for_nothing(self):
        picture = self.browser.screenshot()
        with open(os.path.join(BUILD, "plot_html.png"), "wb") as file:
            file.write(picture)
        self.assertGreater(len(set(png_bytes(picture))), 50)
        self.assertIn("cuvmm", self.browser.value("document.title"))
        self.at_rest()

    def test_hovering_tells_what_is_there(self):
        left, top, width, height = self.panel(0)
        for step in range(3):  # plotly leaves out what comes too soon
            self.browser.mouse("mouseMoved", left + width / 2 + step, top + height * 0.7)
            self.browser.wait_for(lambda: True)
        self.browser.wait_for(lambda: self.browser.value(
            f"{PLOT}.querySelectorAll('.hoverlayer .hovertext').length > 0"))
        said = self.browser.value(f"{PLOT}.querySelector('.hoverlayer').textContent")
        self.assertRegex(said, r"used \d+%, mapped \d+%")
        self.at_rest()

    def test_dragging_zooms_every_panel_of_that_trace_and_only_of_that(self):
        before = self.range_of("xaxis")
        other = self.range_of("xaxis2")
        left, top, width, height = self.panel(0)
        self.browser.drag((left + width * 0.3, top + height * 0.3),
                          (left + width * 0.6, top + height * 0.6))
        self.browser.wait_for(lambda: self.range_of("xaxis") != before)
        begin, end = self.range_of("xaxis")
        self.assertLess(end - begin, 0.5 * (before[1] - before[0]))
        self.assertEqual(self.range_of("xaxis3"), [begin, end])
        self.assertEqual(self.range_of("xaxis2"), other)
        self.at_rest()

    def test_the_wheel_zooms(self):
        before = self.range_of("xaxis")
        left, top, width, height = self.panel(0)
        self.browser.mouse("mouseMoved", left + width / 2, top + height / 2)
        self.browser.mouse("mouseWheel", left + width / 2, top + height / 2, deltaX=0, deltaY=-300)
        self.browser.wait_for(lambda: self.range_of("xaxis") != before)
        self.at_rest()


if __name__ == "__main__":
    main()
