# SPDX-License-Identifier: Apache-2.0
"""The HTML of `cuvmm plot` in a browser: free of errors, self-contained and interactive.

Leaves a screenshot in the build folder (plot_html.png), for inspection.
"""

import os
import unittest

import browser
from check_plot import HISTORY, png_bytes, python_for_plots
from cli_support import BUILD, CliTest, frag_trace, main

# The drawn cells of the first map that are neither full nor empty.
PARTLY_USED = """(() => {
  const {sheet, cells: {width, height, data}} = panels[0], found = [];
  const drawn = sheet.getContext("2d").getImageData(0, 0, width, height).data;
  for (let row = 0; row < height; ++row) {
    for (let column = 0; column < width; ++column) {
      const share = data[4 * (row * width + column)] / 255;
      if (share === 0 || share === 1) continue;
      found.push({share, red: drawn[4 * ((height - 1 - row) * width + column)]});
    }
  }
  return found;
})()"""


@unittest.skipUnless(browser.PROGRAM, "no Chromium here")
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
        self.browser.wait_for(
            lambda: self.browser.value("document.documentElement.dataset.state") == "drawn")

    def panel(self, number):
        """Returns left, top, width and height of a panel's plot area, by drawing order."""
        return self.browser.value(
            f"(() => {{ const p = panels[{number}], r = p.canvas.getBoundingClientRect(), b = p.box;"
            "return [r.left + b.left, r.top + b.top, b.right - b.left, b.bottom - b.top]; })()")

    def view(self, number):
        return self.browser.value(f"views[{number}]")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key)

    def at_rest(self):
        self.assertEqual(self.browser.complaints(), [])
        outside = [url for url in self.browser.requests()
                   if not url.startswith(("data:", "blob:", "about:"))]
        self.assertEqual(len(outside), 1, outside)
        self.assertTrue(outside[0].startswith("file://"))

    def test_draws_every_panel_without_errors_or_requests(self):
        picture = self.browser.screenshot()
        with open(os.path.join(BUILD, "plot_html.png"), "wb") as file:
            file.write(picture)
        self.assertGreater(len(set(png_bytes(picture))), 50)
        self.assertIn("cuvmm", self.browser.value("document.title"))
        self.assertEqual(self.browser.value("panels.length"), 12)
        self.assertEqual(self.browser.value(
            "panels.filter(p => new Set(p.canvas.getContext('2d').getImageData("
            "0, 0, p.canvas.width, p.canvas.height).data).size > 3).length"), 12)
        self.at_rest()

    def test_all_memory_panels_have_one_scale(self):
        scales = self.browser.value("panels.filter(p => p instanceof MemoryPanel).map(p => p.most)")
        self.assertEqual(len(scales), 2)
        self.assertEqual(scales[0], scales[1])

    def legend(self):
        return self.browser.value(
            "[...document.querySelectorAll('#legend span')].map(e => e.textContent)")

    def test_the_legend_names_what_is_drawn(self):
        self.assertEqual(self.legend(), [
            "used", "cached (mapped, not used)", "unmapped", "requested", "physical", "mapped",
            "device memory (64 MiB)", "scattered between live blocks", "granted beyond the request",
            "\u00d7 allocation refused"])

    def test_a_recording_by_pytorch_has_only_what_it_contains(self):
        trace, path = self.path("history.csv"), self.path("history.html")
        with open(trace, "w", encoding="utf-8") as file:
            file.write(HISTORY)
        self.good("plot", trace, "-o", path, env={"CUVMM_PYTHON": python_for_plots()})
        self.browser.open(path)
        self.browser.wait_for(
            lambda: self.browser.value("document.documentElement.dataset.state") == "drawn")
        self.assertEqual(self.legend(), ["used", "requested"])
        self.assertEqual(self.browser.value("panels.map(p => p.title)"),
                         ["addresses ever used", "memory", "blocks by size", "blocks by lifetime"])
        self.assertEqual(self.browser.value("panels[1].told(0.5)"), ["requested: 64 MiB"])
        # Nothing is cached: partly used memory is between blue and grey.
        self.assertTrue(self.browser.value(PARTLY_USED + ".length > 0"))
        self.assertTrue(self.browser.value(
            PARTLY_USED + ".every(({red, share}) => Math.abs(red - 0xf2 * (1 - share)) < 1)"))
        self.assertEqual(self.browser.complaints(), [])

    def test_hovering_shows_the_values_at_the_cursor(self):
        served = self.browser.value("panels.findLastIndex(p => p.title == 'addresses ever used')")
        left, top, width, height = self.panel(served)
        self.browser.mouse("mouseMoved", left + width / 2, top + height * 0.7)
        tip = "document.querySelector('#tip')"
        self.browser.wait_for(lambda: self.browser.value(f"!{tip}.hidden"))
        self.assertRegex(self.browser.value(f"{tip}.textContent"),
                         r"ms\nat .* MiB\nused \d+%, mapped \d+%")
        left, top, width, height = self.panel(1)
        self.browser.mouse("mouseMoved", left + width / 2, top + height / 2)
        self.browser.wait_for(lambda: "requested: " in self.browser.value(f"{tip}.textContent"))
        self.at_rest()

    def test_dragging_zooms_every_panel_of_that_trace_only(self):
        before, other = self.view(0), self.view(1)
        left, top, width, height = self.panel(0)
        self.browser.drag((left + width * 0.3, top + height * 0.3),
                          (left + width * 0.6, top + height * 0.6))
        self.browser.wait_for(lambda: self.view(0) != before)
        view = self.view(0)
        for key, value in {"from": 0.3, "to": 0.6, "low": 0.4, "high": 0.7}.items():
            self.assertAlmostEqual(view[key], value, delta=0.01)
        self.assertEqual(self.browser.value("panels[1].view === panels[0].view"), True)
        self.assertEqual(self.view(1), other)
        self.at_rest()

    def test_the_wheel_zooms_and_a_double_click_shows_all(self):
        before = self.view(0)
        left, top, width, height = self.panel(1)
        x, y = left + width / 2, top + height / 2
        self.browser.mouse("mouseMoved", x, y)
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
        self.browser.wait_for(lambda: self.view(0) != before)
        self.assertLess(self.view(0)["to"] - self.view(0)["from"], 1)
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                self.browser.mouse(kind, x, y, button="left", clickCount=count)
        self.browser.wait_for(lambda: self.view(0) == before)
        self.at_rest()

    def test_keys_zoom_and_move(self):
        self.browser.value("panels[1].canvas.focus()")
        self.press("+")
        self.assertAlmostEqual(self.view(0)["from"], 0.1)
        self.press("ArrowLeft")
        self.assertAlmostEqual(self.view(0)["from"], 0.02)
        self.press("0")
        self.assertEqual(self.view(0), {"from": 0, "to": 1, "low": 0, "high": 1})
        self.at_rest()

    def test_a_narrow_screen_has_room_for_it(self):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=400, height=900,
                          deviceScaleFactor=1, mobile=True)
        self.addCleanup(self.browser.call, "Emulation.setDeviceMetricsOverride", width=1400,
                        height=1450, deviceScaleFactor=1, mobile=False)
        self.browser.wait_for(lambda: self.browser.value("innerWidth") == 400)
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 400)


if __name__ == "__main__":
    main()
