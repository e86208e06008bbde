#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/scheduling.md show each card's own figures."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import device_time_tables  # noqa: E402


def figure(what, value, goal=None):
    return {"what": what, "value": value, "goal": goal, "rounds": [value - 0.1, value, value + 0.2]}


def figures_of_a_card(response):
    whats = [what for _, what, _ in (*device_time_tables.RESPONSES, device_time_tables.ALONE)]
    whats += [f"{name} beside the other, {how}, x alone" for _, name in device_time_tables.TORCH
              for how in ("natively", "under priority")]
    whats += ["cap 30%, alone: the second with the most", "the second with the least"]
    figures = [figure(what, response, "<= 1.3" if what == "the same under priority" else None) for what in whats]
    return figures + [figure(f"share {percent}:{100 - percent}, {kind} of 2 ms against 50 us", percent, f"{percent} +- 3")
                      for percent in device_time_tables.SHARES for kind in ("kernels", "graphs")]


class DeviceTime(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        for machine, response in ("nvidia-h100", 1.25), ("nvidia-h200", 1.5):
            self.put(f"{machine}/gputime.json", {"details": {"figures": figures_of_a_card(response)}})
        self.put(device_time_tables.COSTS, {"benchmarks": [
            {"run_name": name, "aggregate_name": "median", "real_time": ns}
            for name, ns in (("nobody_competes", 0.5), ("in_the_foreground", 50.8), ("with_a_share", 85.2))]})

    def put(self, file, content):
        path = self.results / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))

    def test_a_row_has_its_goal_and_the_figure_of_each_card(self):
        made = device_time_tables.sharing(self.results)
        self.assertIn("| the same under `priority` | ≤ 1.3 | 1.25 | 1.50 |", made)

    def test_shares_are_in_one_row_with_the_bound_of_all(self):
        made = device_time_tables.sharing(self.results)
        self.assertIn("kernels of 2 ms against 50 µs | ± 3 | 10, 25, 50 | 10, 25, 50 |", made)

    def test_the_cost_of_a_launch_is_the_median(self):
        self.assertIn("0.5 ns if nobody competes, 51 ns in the foreground, 85 ns with a share",
                      device_time_tables.sharing(self.results))

    def test_a_response_has_the_range_of_its_rounds(self):
        self.assertIn("| the answer's p50 | 1.25 (1.15 to 1.45) | 1.25 (1.15 to 1.45) | 1.50 (1.40 to 1.70) |",
                      device_time_tables.torch(self.results))

    def test_a_missing_figure_is_an_error(self):
        self.put("nvidia-h200/gputime.json", {"details": {"figures": []}})
        with self.assertRaises(KeyError):
            device_time_tables.sharing(self.results)


if __name__ == "__main__":
    unittest.main()
