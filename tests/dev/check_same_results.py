#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of programs and modes in bench/results/figures.md shows what the parts found.

The parts run as on a card, with programs whose behaviour the test chooses.
"""

import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "tools")]
import measured  # noqa: E402
import same_results  # noqa: E402
import schedule_figures  # noqa: E402
from part_support import ROOT, PartFailed, run_part  # noqa: E402


def by_mode(native="true", monitor="true", vmm="true"):
    """Returns a program that behaves differently in each mode."""
    return f"#!/bin/sh\ncase ${{VMM_MODE:-native}} in\nnative) {native};;\nmonitor) {monitor};;\nvmm) {vmm};;\nesac\n"


def verdicts(part, details):
    """Returns the verdicts by program, without the links to the limits."""
    rows = same_results.rows_of(part, details, "here")
    return {row[0]: tuple(re.sub(r"^\[(.*)\]\(.*\)$", r"\1", cell) for cell in row[2:4]) for row in rows}


def comb(answer, right=16):
    ended = 0 if answer == "success" and right == 16 else 1
    return (f'echo "  answer                       {answer}  (0.00 s)"; '
            f'echo "  blocks with right contents   {right} of 16  (0.95 s)"; exit {ended}')


class CombsOfBlocks(unittest.TestCase):
    REFUSED, GRANTED = comb("out of memory"), comb("success")

    def run_combs(self, **modes):
        return run_part("frag_test", {"build/bin/frag_test": by_mode(**modes)})

    def test_a_grant_instead_of_a_refusal_is_different_and_passes(self):
        told = verdicts("frag_test", self.run_combs(native=self.REFUSED, monitor=self.REFUSED, vmm=self.GRANTED))
        self.assertEqual(len(told), 4)
        for verdict in told.values():
            self.assertEqual(verdict, ("same", "different: answer success, natively out of memory"))

    def test_it_fails_where_monitor_changes_an_answer_or_vmm_does_not(self):
        for monitor, vmm in ((self.GRANTED, self.GRANTED), (self.REFUSED, self.REFUSED)):
            with self.assertRaises(PartFailed):
                self.run_combs(native=self.REFUSED, monitor=monitor, vmm=vmm)

    def test_wrong_contents_and_an_early_end_are_failures(self):
        for broken in (comb("success", right=15), "exit 3", "kill -SEGV $$"):
            with self.assertRaises(PartFailed) as raised:
                self.run_combs(native=self.REFUSED, monitor=self.REFUSED, vmm=broken)
            for verdict in verdicts("frag_test", raised.exception.details).values():
                self.assertEqual(verdict, ("same", "failed"))


class ContractSuite(unittest.TestCase):
    # The part of GoogleTest's output that is read.
    SUITE = """#!/bin/sh
for word; do case $word in --gtest_output=json:*) out=${word#*json:};; esac; done
result=COMPLETED status=0
[ "$VMM_MODE" = monitor ] || result=SKIPPED
[ "$VMM_MODE" != "$FAILS" ] || status=1
[ "$VMM_MODE" != "$DIES" ] || kill -SEGV $$
printf '{\\n  "tests": 2000,\\n  "failures": %d,\\n  "name": "AllTests",\\n' $status >"$out"
printf '          "result": "%s",\\n' $result $result >>"$out"
exit $status
"""

    def run_suite(self, **variables):
        return run_part("served", {"build/bin/cuvmm_contract_tests": self.SUITE},
                        **{"FAILS": "", "DIES": "", **variables})

    def test_skipped_scenarios_are_reported(self):
        self.assertEqual(verdicts("served", self.run_suite()),
                         {"contract suite": ("same", "same, 2 of 2,000 skipped")})

    def test_a_failing_scenario_and_a_crashing_suite_are_failures(self):
        for how in ("FAILS", "DIES"):
            with self.assertRaises(PartFailed) as raised:
                self.run_suite(**{how: "monitor"})
            self.assertEqual(verdicts("served", raised.exception.details)["contract suite"][0], "failed")

    def test_as_a_client_of_the_scheduler(self):
        log = [f"-- {schedule_figures.SUITE}\n", "[==========] 2065 tests from 63 test suites ran. (22 ms total)\n",
               "[  SKIPPED ] 78 tests.\n"]
        for end, verdict in ((None, "same, 78 of 2,065 skipped"), (f"failed: {schedule_figures.SUITE}\n", "failed")):
            told = verdicts("schedule", schedule_figures.figures(log + [end] * bool(end)))
            self.assertEqual(told, {"contract suite, scheduled": ("not run", verdict)})


class ProgramsByTheRuntime(unittest.TestCase):
    def run_program(self, **modes):
        return run_part("runtime", {"build/bin/cuvmm_test_runtime_shared": by_mode(**modes)})

    def test_equal_output_in_both_modes_is_the_same(self):
        says = "echo granted 14"
        self.assertEqual(verdicts("runtime", self.run_program(native=says, monitor=says, vmm=says)),
                         {"by the CUDA runtime, shared": ("same", "same")})

    def test_other_output_is_different_and_an_error_is_a_failure(self):
        says = "echo granted 14"
        with self.assertRaises(PartFailed) as raised:
            self.run_program(native=says, monitor=f"{says}; exit 1", vmm="echo granted 15")
        self.assertEqual(verdicts("runtime", raised.exception.details),
                         {"by the CUDA runtime, shared": ("failed", "different")})


class Memcheck(unittest.TestCase):
    CHECKER = """#!/bin/sh
errors=$NATIVE
case "$*" in *"--mode monitor"*) errors=$MONITOR;; *"--mode vmm"*) errors=$VMM;; esac
echo "========= ERROR SUMMARY: $errors errors"
"""

    def test_errors_are_compared_with_the_native_ones(self):
        details = run_part("memcheck", {"bin/compute-sanitizer": self.CHECKER,
                                        "build/bin/cuvmm_test_runtime_shared": ""}, NATIVE="1", MONITOR="1", VMM="2")
        self.assertEqual(verdicts("memcheck", details)["runtime_shared"],
                         ("same", "different: errors 2, natively 1"))


class BetweenProcesses(unittest.TestCase):
    COSTS = '{"benchmarks": [{"name": "Share1GiB", "grants_a_second": 9}]}'
    PYTHON = """#!/bin/sh
case "$*" in
*"import torch"*) ;;
*all_reduce|*nccl_memory.py) echo "skipped: there are no two cards";;
*uncached) echo "shared ${VMM_MODE:+in $VMM_MODE}";;
*) [ "$VMM_MODE" != "$FAILS" ] || exit 1; echo shared;;
esac
"""
    NVCC = """#!/bin/sh
while [ $1 != -o ]; do shift; done
printf '#!/bin/sh\\necho opened\\n' >$2
chmod +x $2
"""
    PROGRAMS = {
        "bin/sleep": "#!/bin/sh\n",
        "bin/nvcc": NVCC,
        "bin/python": PYTHON,
        "build/bin/producer": "#!/bin/sh\n",
        "build/bin/consumer": "#!/bin/sh\n",
        "build/bin/cuvmm_bench_share": f"#!/bin/sh\necho '{COSTS}' >${{1#*=}}\n",
    }

    def test_each_program_is_reported_in_each_mode_with_the_cost_of_sharing(self):
        with self.assertRaises(PartFailed) as raised:
            run_part("ipc", self.PROGRAMS, CUVMM_PYTHON="python", FAILS="vmm")
        details = raised.exception.details
        self.assertEqual(details["benchmarks"][0]["grants_a_second"], 9)
        self.assertEqual(verdicts("ipc", details), {
            "producer and consumer": ("same", "same"),
            "the runtime's IPC calls": ("same", "same"),
            "torch.multiprocessing": ("same", "failed"),
            "tensors without the caching allocator": ("different", "different"),
            "NCCL's all-reduce on two cards": ("not run", "not run"),
            "NCCL's all-reduce on two cards, by IPC handles": ("not run", "not run"),
            "NCCL's user buffers, symmetric windows and graphs; PyTorch's symmetric memory": ("not run", "not run"),
        })


class Table(unittest.TestCase):
    def test_a_framework_is_the_same_different_failed_or_not_run(self):
        details = {"workloads": [
            {"workload": "a", "version": "torch 2", "monitor_same": True, "vmm_same": False, "allocations_in_trace": 1},
            {"workload": "b", "vmm_same": True, "allocations_in_trace": 1, "failed": "under monitor: it said nothing"},
            {"workload": "c", "monitor_same": True, "vmm_same": True, "allocations_in_trace": 0},
            {"workload": "d", "skipped": "No module named 'd'"},
        ]}
        self.assertEqual(verdicts("frameworks", details), {
            "a, torch 2": ("same", "different"), "b": ("failed", "same"), "c": ("failed", "same"),
            "d": ("not run", "not run")})

    def test_a_part_in_an_older_format_is_not_reported(self):
        for part, details in (("frag_test", None), ("ipc", {"benchmarks": []}), ("served", {"tests": 2076})):
            self.assertEqual(verdicts(part, details), {f"the part {part}": ("not recorded", "not recorded")})

    def test_any_difference_links_to_the_limits_and_names_its_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder)
            (results / "card").mkdir()
            told = {"part": "runtime", "commit": "c0ffee", "details": [
                {"program": "static", "mode": "monitor", "result": "passed"},
                {"program": "static", "mode": "vmm", "result": "failed"}]}
            (results / "card/runtime.json").write_text(json.dumps(told))
            table = measured.same_results_table(results)
        self.assertIn(f"| same | [failed]({same_results.WHY}) | `card/runtime.json`, c0ffee |", table)

    def test_the_linked_section_of_the_limits_exists(self):
        file, _, section = same_results.WHY.partition("#")
        headings = [line.removeprefix("## ").lower().replace(" ", "-")
                    for line in (ROOT / "docs" / file).read_text().splitlines() if line.startswith("## ")]
        self.assertIn(section, headings)


if __name__ == "__main__":
    unittest.main()
