#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training parts compare only runs of the same round.

The parts run as on a card, with a trainer whose output for each run the test chooses.
"""

import json
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "tools")]
import spill_figures  # noqa: E402
import train_table  # noqa: E402
from part_support import run_part  # noqa: E402
from train_runs import read  # noqa: E402

# Prints the output that TOLD has for the setting and its number of runs so far.
TRAINER = """
import json, os, pathlib, sys
setting, workload = sys.argv[1:]
if setting == "traced":
    sys.exit(0)
tries = pathlib.Path("tries." + setting)
count = len(tries.read_text()) if tries.exists() else 0
tries.write_text("x" * (count + 1))
print(json.loads(os.environ["TOLD"])[setting][count].replace("WORKLOAD", workload))
"""
OUT_OF_MEMORY = "WORKLOAD LABEL cap 100 OOM after 3 iterations"
SAID_NOTHING = ""  # the program crashed
ROUND = "-- round"


def took(seconds):
    return (f"WORKLOAD LABEL peak_alloc 90 MiB peak_reserved 100 MiB util 0.9 dev_used_now 1 MiB"
            f" retries 0 allocs 0 median 7.0 ms total {seconds:.2f} s")


def drifting(*seconds, pace=(1, 2, 3, 4)):
    """Returns the same run in each round, on a machine that gets slower."""
    return [took(second * slower) for second, slower in zip(seconds, pace)]


def run_spill(told):
    """Returns the details of the part `spill` if the settings' runs go as given."""
    labelled = {setting: [line.replace("LABEL", setting) for line in lines] for setting, lines in told.items()}
    return run_part("spill", {"bench/workloads/frag_train.py": TRAINER},
                    TOLD=json.dumps(labelled), CUVMM_SETTINGS=" ".join(told))


def lines_of(text, setting="cuvmm"):
    return text.replace("WORKLOAD", "train_var").replace("LABEL", setting)


def table(*lines):
    runs, refused = read(lines, "train_var")
    return {setting: train_table.row(setting, runs, refused, 100) for setting in runs}


class Parts(unittest.TestCase):
    def test_a_machine_that_drifts_between_rounds_changes_no_ratio(self):
        details = run_spill({
            "cuvmm": drifting(10, 10, 10, 10),
            "cuvmm-spill@0.80": drifting(11, 11, 11, 11),
        })
        self.assertEqual(details["host_0.80_over"], 1.1)
        self.assertEqual(details["host_0.80_over_least"], 1.1)
        self.assertEqual(details["host_0.80_over_most"], 1.1)
        self.assertEqual(details["unlimited_s"], 25)  # times are still medians of all runs

    def test_an_incomplete_round_is_left_out(self):
        _, second, third, fourth = drifting(11, 11, 11, 11)
        for said in (OUT_OF_MEMORY, SAID_NOTHING):
            details = run_spill({
                "cuvmm": drifting(10, 10, 10, 10),
                "cuvmm-spill@0.80": [said, second, third, fourth],
            })
            self.assertEqual(details["host_0.80_runs"], 3)
            self.assertEqual((details["host_0.80_over_least"], details["host_0.80_over_most"]), (1.1, 1.1))

    def test_the_ratio_is_the_median_with_the_smallest_and_largest(self):
        details = run_spill({
            "cuvmm": drifting(10, 10, 10, 10),
            "cuvmm-spill@0.80": drifting(9, 11, 15, 11),
        })
        self.assertEqual(details["host_0.80_over"], 1.1)
        self.assertEqual(details["host_0.80_over_least"], 0.9)
        self.assertEqual(details["host_0.80_over_most"], 1.5)


class Table(unittest.TestCase):
    def of_rounds(self, **settings):
        rounds = max(len(lines) for lines in settings.values())
        lines = []
        for number in range(rounds):
            lines.append(f"{ROUND} {number + 1}")
            lines += [lines_of(told[number], setting) for setting, told in settings.items()
                      if number < len(told) and told[number]]
        return table(*lines)

    def test_the_best_peer_has_the_largest_ratio(self):
        rows = self.of_rounds(native=drifting(10, 10, 10), expandable=drifting(8, 8, 8),
                              cuvmm=drifting(9, 9, 9))
        self.assertEqual(rows["cuvmm"]["best_peer"], "expandable")
        self.assertEqual(rows["cuvmm"]["of_best_peer"], 1.125)
        self.assertEqual(rows["expandable"]["of_best_peer"], 1)

    def test_a_peer_that_ended_early_is_compared_in_its_own_rounds(self):
        rows = self.of_rounds(native=drifting(10, 10, 10), **{"async": drifting(8)}, cuvmm=drifting(10, 10, 10))
        self.assertEqual(rows["cuvmm"]["best_peer"], "async")
        self.assertEqual(rows["cuvmm"]["of_best_peer"], 1.25)

    def test_a_peer_that_never_finished_is_left_out(self):
        rows = self.of_rounds(native=[OUT_OF_MEMORY] * 2, expandable=drifting(10, 10), cuvmm=drifting(11, 11))
        self.assertEqual((rows["cuvmm"]["best_peer"], rows["cuvmm"]["of_best_peer"]), ("expandable", 1.1))
        self.assertEqual((rows["native"]["runs"], rows["native"]["out_of_memory"]), (0, 2))

    def test_without_a_peer_or_an_unlimited_run_there_is_no_ratio(self):
        rows = self.of_rounds(**{"cuvmm@1.02": drifting(10)})
        self.assertIsNone(rows["cuvmm@1.02"]["of_best_peer"])
        self.assertIsNone(rows["cuvmm@1.02"]["of_own_unlimited"])

    def test_a_limit_is_compared_with_no_limit_in_the_same_round(self):
        rows = self.of_rounds(cuvmm=drifting(10, 10, 10), **{"cuvmm@1.02": drifting(11, 11)})
        self.assertEqual(rows["cuvmm@1.02"]["of_own_unlimited"], 1.1)
        self.assertEqual(rows["cuvmm@1.02"]["of_own_unlimited_most"], 1.1)

    def test_a_limit_is_compared_with_expandable_segments_under_the_same_limit(self):
        rows = self.of_rounds(expandable=drifting(5, 5), **{
            "expandable@1.02": drifting(10, 10), "cuvmm@1.02": drifting(11, 11), "cuvmm@1.005": drifting(12, 12)})
        self.assertEqual(rows["cuvmm@1.02"]["of_limited_expandable"], 1.1)
        for other in ("cuvmm@1.005", "expandable@1.02", "expandable"):
            self.assertNotIn("of_limited_expandable", rows[other])

    def test_runs_before_the_first_round_are_ignored(self):
        rows = table(lines_of(took(5), "traced"), f"{ROUND} 1", lines_of(took(10)))
        self.assertEqual(list(rows), ["cuvmm"])


class LogsWithoutRoundMarks(unittest.TestCase):
    def test_each_settings_first_run_belongs_to_the_first_round(self):
        lines = [lines_of(line, setting)
                 for round_of_all in zip(drifting(10, 10, 10), drifting(11, 11, 11))
                 for setting, line in zip(("cuvmm", "cuvmm-spill"), round_of_all)]
        shown = spill_figures.figures(lines, ["train_var"])
        self.assertEqual((shown["not_needed_over_least"], shown["not_needed_over_most"]), (1.1, 1.1))

    def test_a_run_that_was_out_of_memory_counts_as_a_round(self):
        ours, limited = drifting(10, 10), [OUT_OF_MEMORY, took(22)]
        rows = table(lines_of(ours[0]), lines_of(limited[0], "cuvmm@1.02"),
                     lines_of(ours[1]), lines_of(limited[1], "cuvmm@1.02"))
        self.assertEqual(rows["cuvmm@1.02"]["of_own_unlimited"], 1.1)


class TwoWorkloadsOfOnePart(unittest.TestCase):
    def test_each_workload_starts_its_rounds_anew(self):
        lines = []
        for workload, pace in (("train_var", 1), ("train_ckpt_lora", 5)):
            for number in (1, 2):
                lines += [f"{ROUND} {number}"] + [
                    took(seconds * number * pace).replace("WORKLOAD", workload).replace("LABEL", setting)
                    for setting, seconds in (("cuvmm", 10), ("cuvmm-peer@0.80", 12))]
        shown = spill_figures.figures(lines, ["train_ckpt_lora", "train_var"])
        self.assertEqual((shown["train_var_peer_0.80_over"], shown["train_ckpt_lora_peer_0.80_over"]), (1.2, 1.2))


if __name__ == "__main__":
    unittest.main()
