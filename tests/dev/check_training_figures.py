#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training parts compare only runs of the same round.

The parts run as on a card, with a trainer whose output for each run the test chooses.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "tools")]
import spill_figures  # noqa: E402
import train_table  # noqa: E402
from part_support import run_part  # noqa: E402
from train_runs import read  # noqa: E402

# Prints the output that TOLD has for the setting and its number of runs so far. Runs that take turns
# are told apart.
TRAINER = """
import json, os, pathlib, sys
setting, workload = sys.argv[1:]
if setting == "traced":
    sys.exit(0)
setting += " in turns" if os.environ.get("IN_TURNS") else ""
tries = pathlib.Path("tries." + setting)
count = len(tries.read_text()) if tries.exists() else 0
tries.write_text("x" * (count + 1))
print(json.loads(os.environ["TOLD"])[setting][count].replace("WORKLOAD", workload))
"""
OUT_OF_MEMORY = "WORKLOAD LABEL cap 100 OOM after 3 iterations"
SAID_NOTHING = ""  # the program crashed
ROUND = "-- round"
TURNS = Path(__file__).resolve().parents[2] / "tools" / "train_turns.py"


def took(seconds):
    return (f"WORKLOAD LABEL peak_alloc 90 MiB peak_reserved 100 MiB util 0.9 dev_used_now 1 MiB"
            f" retries 0 allocs 0 median 7.0 ms total {seconds:.2f} s")


def drifting(*seconds, pace=(1, 2, 3, 4)):
    """Returns the same run in each round, on a machine that gets slower."""
    return [took(second * slower) for second, slower in zip(seconds, pace)]


def run_spill(card_mib=143771, **told):
    """Returns the details of the part `spill` if the settings' runs go as given."""
    runs = {"cuvmm": told.get("cuvmm", drifting(10, 10, 10)),
            "cuvmm in turns": told.get("cuvmm_in_turns", drifting(10, 10, 10)),
            "cuvmm-spill": told.get("may_spill", []),
            "cuvmm-spill in turns": told.get("may_spill_in_turns", drifting(10, 10, 10)),
            "cuvmm-spill@0.95": told.get("least_spilled", drifting(10, 10, 10)),
            "cuvmm-spill@0.80": told.get("most_spilled", drifting(11, 11, 11))}
    labelled = {setting: [line.replace("LABEL", setting.removesuffix(" in turns")) for line in lines]
                for setting, lines in runs.items()}
    return run_part("spill", {"bench/workloads/frag_train.py": TRAINER,
                              "bin/nvidia-smi": f"#!/bin/sh\necho {card_mib} MiB\n"},
                    TOLD=json.dumps(labelled))


def lines_of(text, setting="cuvmm"):
    return text.replace("WORKLOAD", "train_var").replace("LABEL", setting)


def table(*lines):
    runs, refused = read(lines, "train_var")
    return {setting: train_table.row(setting, runs, refused, 100) for setting in runs}


class Parts(unittest.TestCase):
    def test_a_machine_that_drifts_between_rounds_changes_no_ratio(self):
        details = run_spill(most_spilled=drifting(11, 11, 11))
        self.assertEqual(details["host_0.80_over"], 1.1)
        self.assertEqual(details["host_0.80_over_least"], 1.1)
        self.assertEqual(details["host_0.80_over_most"], 1.1)
        self.assertEqual(details["host_0.80_s"], 22)  # times are still medians of all runs

    def test_an_incomplete_round_is_left_out(self):
        _, second, third = drifting(11, 11, 11)
        for said in (OUT_OF_MEMORY, SAID_NOTHING):
            details = run_spill(most_spilled=[said, second, third])
            self.assertEqual(details["host_0.80_runs"], 2)
            self.assertEqual((details["host_0.80_over_least"], details["host_0.80_over_most"]), (1.1, 1.1))

    def test_the_ratio_is_the_median_with_the_smallest_and_largest(self):
        details = run_spill(most_spilled=drifting(9, 11, 15))
        self.assertEqual(details["host_0.80_over"], 1.1)
        self.assertEqual(details["host_0.80_over_least"], 0.9)
        self.assertEqual(details["host_0.80_over_most"], 1.5)

    def test_settings_that_move_no_memory_take_turns(self):
        details = run_spill(cuvmm_in_turns=drifting(20, 20, 20), may_spill_in_turns=drifting(21, 21, 21))
        self.assertEqual(details["not_needed_over"], 1.05)
        self.assertEqual(details["host_0.80_over"], 1.1)

    def test_programs_that_do_not_fit_together_run_one_at_a_time(self):
        details = run_spill(card_mib=49140, cuvmm=drifting(10, 10, 10) * 2, may_spill=drifting(12, 12, 12))
        self.assertEqual(details["not_needed_over"], 1.2)


# Takes so many turns, and notes when each begins and ends.
TAKES_TURNS = """
import sys, time
name, turns, notes = sys.argv[1:]
for _ in range(int(turns)):
    print("READY", flush=True)
    sys.stdin.readline() or sys.exit("no turn")
    with open(notes, "a", buffering=1) as file:
        file.write(name + " begins\\n")
        time.sleep(0.02)
        file.write(name + " ends\\n")
print("READY", flush=True)
sys.stdin.readline()
print(name, "has trained")
"""


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.notes = Path(folder.name) / "notes"
        self.program = Path(folder.name) / "program.py"
        self.program.write_text(TAKES_TURNS)

    def command(self, name, turns):
        return shlex.join([sys.executable, str(self.program), name, str(turns), str(self.notes)])

    def run_all(self, *commands):
        finished = subprocess.run([sys.executable, "-B", str(TURNS), *commands], capture_output=True,
                                  text=True, timeout=60, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        notes = [line.split() for line in self.notes.read_text().splitlines()]
        for begin, end in zip(notes[::2], notes[1::2]):
            self.assertEqual((begin[1], end), ("begins", [begin[0], "ends"]))  # nobody else in between
        return finished.stdout, "".join(name for name, _ in notes[::2])

    def test_one_program_runs_at_a_time_and_another_is_first_in_each_round(self):
        printed, order = self.run_all(*(self.command(name, 3) for name in "abc"))
        self.assertEqual(order, "abcbcacab")
        self.assertEqual(printed, "a has trained\nb has trained\nc has trained\n")

    def test_a_program_that_ends_early_gets_no_more_turns(self):
        printed, order = self.run_all(self.command("a", 3), self.command("b", 1), "echo failed at once")
        self.assertEqual((order.count("a"), order.count("b")), (3, 1))
        self.assertEqual(printed, "a has trained\nb has trained\nfailed at once\n")

    def test_programs_end_with_it(self):
        told = self.notes.with_name("process")
        says_its_number = shlex.join(["sh", "-c", f"echo $$ >{told}.new; mv {told}.new {told}; exec sleep 600"])
        with subprocess.Popen([sys.executable, "-B", str(TURNS), says_its_number]) as turns:
            while not told.exists():
                time.sleep(0.01)
            turns.terminate()
            self.assertEqual(turns.wait(60), 1)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(told.read_text()), 0)


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
