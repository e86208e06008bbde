#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The summaries in README.md and docs/measured.md say what the results say, the worst first."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import measured_summary  # noqa: E402


def workload(name, version, over, rounds, starts=1):
    """Rounds whose cost is spread evenly around `over`, from 0 to twice as much."""
    native = [10.0, 8.0, 10.0, 8.0, 10.0][:rounds]
    shares = [1] if rounds == 1 else [2 * number / (rounds - 1) for number in range(rounds)]
    return {"workload": name, "version": version, "native_ms": 10.0, "rounds": rounds,
            "starts": starts, "native_ms_of_rounds": native, "monitor_ms_of_rounds": native,
            "vmm_ms_of_rounds": [ms * (1 + over * share) for ms, share in zip(native, shares)]}


class Summary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)

    def put(self, machine, part, result="passed", **details):
        folder = self.results / machine
        folder.mkdir(exist_ok=True)
        (folder / f"{part}.json").write_text(json.dumps({
            "part": part, "card": "1 x NVIDIA A, one of 4 x NVIDIA A", "driver": "1.2", "commit": "c",
            "result": result, "seconds": 1, "details": details}))

    def test_the_worst_program_comes_first_with_the_median_and_quartiles_of_its_rounds(self):
        self.put("a", "frameworks", workloads=[workload("fast", "torch 2.0", -0.01, 1),
                                               workload("slow", "torch 2.0", 0.05, 5)])
        rows = measured_summary.costs(self.results).splitlines()[2:]
        self.assertEqual(rows[0], "| slow | A | 10 ms (8 to 10) | +5.0% (+1.2% to +8.8%) | +0.0% (+0.0% to +0.0%) | 5 | 1 |")
        self.assertTrue(rows[1].startswith("| fast | A | 10 ms | -1.0% |"))

    def test_of_two_measurements_the_one_with_more_rounds_counts(self):
        self.put("a", "frameworks", workloads=[workload("one", "torch 2.0", 0.5, 1)])
        self.put("a", "frameworks_more", workloads=[workload("one", "torch 2.0", 0.1, 2)])
        rows = measured_summary.costs(self.results).splitlines()[2:]
        self.assertEqual(len(rows), 1)
        self.assertIn("+10.0%", rows[0])

    def test_of_two_measurements_the_one_with_more_starts_counts(self):
        self.put("a", "frameworks", workloads=[workload("one", "torch 2.0", 0.5, 4)])
        self.put("a", "frameworks_more", workloads=[workload("one", "torch 2.0", 0.1, 2, starts=2)])
        rows = measured_summary.costs(self.results).splitlines()[2:]
        self.assertEqual(len(rows), 1)
        self.assertIn("+10.0%", rows[0])

    def test_names_the_sources_of_each_part(self):
        self.put("a", "pause")
        self.put("b", "pause")
        self.put("b", "resize")
        other = self.results / "b" / "spill.json"
        other.write_text((self.results / "b" / "pause.json").read_text().replace(
            '"commit"', '"sources": "0123", "commit"'))
        rows = measured_summary.sources(self.results).splitlines()[2:]
        self.assertEqual(rows, ["| `unknown` | a: pause; b: pause, resize |", "| `0123` | b: spill |"])

    def test_says_which_card_driver_and_frameworks_ran_what(self):
        self.put("a", "frameworks", workloads=[workload("one", "torch 2.0", 0, 1),
                                               workload("two", "driver 13000", 0, 1)])
        self.put("b", "pause")
        self.put("b", "gputime", "failed with exit status 1",
                 figures=[{"what": "it", "value": 2, "goal": "1", "holds": False}])
        self.put("b", "resize", "failed with exit status 2")
        self.put("b", "unheard_of")
        made = measured_summary.where_it_ran(self.results)
        self.assertIn("|  | 1 × NVIDIA A | 1 × NVIDIA A |", made)
        self.assertIn("| driver | 1.2 | 1.2 |", made)
        self.assertIn("| PyTorch 2.0 | passed |  |", made)
        self.assertIn("| pause and resume; off the card with all contexts |  | passed |", made)
        self.assertRegex(made, r"device time.* \|  \| \[goals missed\]")
        self.assertIn("| growing buffers without copies |  | **failed** |", made)
        self.assertIn("| unheard_of |  | passed |", made)

    def test_names_a_missed_figure_by_itself(self):
        self.put("a", "gputime", figures=[{"what": "the p99, natively", "value": 4, "goal": None, "holds": True},
                                          {"what": "the same alone", "value": 2, "goal": "<= 1", "holds": False}])
        self.assertEqual(measured_summary.missed_by_parts(self.results),
                         [("the p99 alone", "≤ 1", "2", "`a/gputime.json`")])

    def test_programs_of_a_machine_with_the_same_outcome_share_a_row(self):
        rows = [["one, torch 2.0+cu1", "words", "same", "same", "`a/x.json`, c"],
                ["two, torch 2.0+cu1", "words", "same", "same", "`a/y.json`, c"],
                ["two, torch 2.0+cu1", "words", "same", "failed", "`a/x.json`, c"],
                ["one, with more", "words", "same", "same", "`b/x.json`, c"]]
        self.assertEqual(measured_summary.grouped_results(rows),
                         [["one; two", "words", "same", "same", "a"],
                          ["two", "words", "same", "failed", "a"],
                          ["one, with more", "words", "same", "same", "b"]])


if __name__ == "__main__":
    unittest.main()
