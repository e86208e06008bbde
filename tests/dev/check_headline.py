#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md's table of figures shows the results, and the rest of the page stays unchanged."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import measured  # noqa: E402


class Headline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        details = [{"mode": "native", "ns": 1234.5, "answer": "refused"}, {"mode": "vmm", "ns": 500}]
        (self.results / "calls.json").write_text(json.dumps({"details": details}))

    def row(self, mode, key, **more):
        where = {"file": "calls.json", "at": ["details", {"mode": mode}, key], **more}
        return measured.headline([{"row": ["a call", "{it} so", ""], "figures": {"it": where}}], self.results)

    def test_a_figure_has_its_form_and_unit(self):
        self.assertIn("| a call | 1.23 so |", self.row("native", "ns", times=0.001, form=".2f"))

    def test_shows_the_requested_figure(self):
        self.assertIn("| a call | 500 so |", self.row("vmm", "ns", form=".0f"))

    def test_a_word_is_shown_unchanged(self):
        self.assertIn("| a call | refused so |", self.row("native", "answer"))

    def test_names_whichever_is_the_largest_in_several_files(self):
        for file, named in ("a.json", {"small": 0.1, "large": 0.3}), ("b.json", {"middle": 0.2}):
            rows = [{"workload": name, "vmm_over": over} for name, over in named.items()]
            (self.results / file).write_text(json.dumps({"workloads": rows}))
        largest = {"files": ["a.json", "b.json"], "among": ["workloads"], "largest": "vmm_over"}
        row = {"row": ["{name}", "{over}", ""], "from": largest,
               "figures": {"name": {"at": ["workload"]}, "over": {"at": ["vmm_over"], "form": ".1f"}}}
        self.assertIn("| large | 0.3 |", measured.headline([row], self.results))

    def test_a_missing_figure_is_an_error(self):
        with self.assertRaises(KeyError):
            self.row("monitor", "ns", form=".0f")

    def test_only_the_table_changes(self):
        page = f"before\n{measured.BEGINS}old\n{measured.ENDS}after\n"
        made = measured.with_table(page, "new\n")
        self.assertEqual(made, page.replace("old", "new"))
        self.assertEqual(measured.with_table(made, "new\n"), made)

    def test_each_table_has_its_own_place(self):
        page = f"{measured.BEGINS}figures\n{measured.ENDS}{measured.BEGINS_WHERE}cards\n{measured.ENDS}"
        made = measured.with_table(page, "new\n", measured.BEGINS_WHERE)
        self.assertEqual(made, page.replace("cards", "new"))

    def test_a_ratio_beyond_its_goal_does_not_look_like_it(self):
        self.assertEqual(measured.shown(1.0149, ""), "1.015")
        self.assertEqual(measured.shown(1.0149, " ms"), "1.01")

    def test_a_page_without_markers_is_refused(self):
        for page in ("nothing", measured.BEGINS, measured.ENDS):
            with self.assertRaises(SystemExit):
                measured.with_table(page, "new\n")


if __name__ == "__main__":
    unittest.main()
