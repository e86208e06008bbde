#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The combination matrix covers each feasible pair, and what runs it tells equal results from others.

Its rows run here with a program and a cuvmm whose behaviour the test chooses.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "matrix")]
import combinations  # noqa: E402
import compare  # noqa: E402
import measured  # noqa: E402
import result_tables  # noqa: E402
import same_results  # noqa: E402
import settings  # noqa: E402

MIB = 1 << 20
# What the program does comes from $FAKE, by the place where it runs: natively, or in a mode.
PROGRAM = '''import array, hashlib, json, os, pathlib, sys, time
asked = dict(zip(sys.argv[1::2], sys.argv[2::2]))
fake = json.loads(os.environ["FAKE"])
where = os.environ.get("UNDER", "native")
with open(os.environ["RUNS"], "a+") as runs:
    runs.seek(0)
    this = f"{where} {asked['--seed']}\\n"  # a row's seed is its own
    earlier = sum(line == this for line in runs)
    runs.write(this)
limit = int(os.environ.get("LIMIT", 0))
if fake.get("only_in") and asked["--family"] != fake["only_in"]:
    fake = {}
time.sleep(fake.get("sleep", {}).get(where, 0))
if where in fake.get("missing", []):
    print("RESULT " + json.dumps({"missing": "No module named 'it'"}))
    sys.exit(0)
if where in fake.get("dies", []):
    sys.exit("Segmentation fault, so to speak")
if limit and limit < fake.get("needs", 0) and not os.environ.get("SPILL"):
    print("cuvmm[7] WARNING 1 refused\\nand the framework says more", file=sys.stderr)
    print("RESULT " + json.dumps({"error": "out of memory", "out_of_memory": True}))
    sys.exit(1)
steady = [1.0, 2.0, float("nan")] + fake.get("steady", {}).get(where, [])
noisy = fake.get("noisy", {}).get(where, [0.0])
noisy = [noisy[min(earlier, len(noisy) - 1)]]
out = pathlib.Path(asked["--out"])
out.mkdir(parents=True)
at, told = 0, []
with open(out / "values.bin", "wb") as file:
    for name, values in (("steady one", steady), ("noisy one", noisy)):
        contents = array.array("d", values).tobytes()
        file.write(contents)
        told.append({"name": name, "type": "float64", "shape": [len(values)], "at": at, "count": len(values),
                     "digest": hashlib.sha256(contents).hexdigest()})
        at += len(values)
if where in fake.get("raises", []):
    told[0] = {"name": "steady one", "raised": "ValueError", "digest": "0"}
(out / "outputs.json").write_text(json.dumps(told))
digest = hashlib.sha256("".join(one["digest"] for one in told).encode()).hexdigest()
print("RESULT " + json.dumps({"version": "it 1.0", "outputs": 2, "computed": 2, "digest": digest,
                              "needed_bytes": fake.get("needs", 200 << 20), "held_bytes": 300 << 20}))
'''
# The same interpreter, without the site's packages: a third of the time to start.
PYTHON = f"#!{sys.executable} -S\n"
CUVMM = PYTHON + '''
import json, os, subprocess, sys
if sys.argv[1] == "stats":
    print(open(sys.argv[3]).read())
    sys.exit(0)
words = sys.argv[2:]
options, command = words[:words.index("--")], words[words.index("--") + 1:]
def value(name):
    return options[options.index(name) + 1] if name in options else ""
fake = json.loads(os.environ["FAKE"])
under = "node" if "--node" in options else value("--mode")
if value("--limit"):
    under = "limit"
environment = {**os.environ, "UNDER": under, "LIMIT": value("--limit") or "0", "SPILL": value("--spill")}
ended = subprocess.run(command, env=environment)
if value("--trace"):
    peak, limit = fake.get("peak", 300) << 20, int(value("--limit") or 0)
    used = peak if not limit or "unbound" in fake else min(peak, limit)
    with open(value("--trace").replace("%p", str(os.getpid())), "w") as file:
        json.dump({"allocations": fake.get("allocations", 7), "chunks_created": fake.get("chunks", 0),
                   "physical_peak_bytes": used, "live_peak_bytes": peak, "copies_elided": 0,
                   "spilled_peak_bytes": peak - used if value("--spill") else 0}, file)
sys.exit(ended.returncode)
'''
CUVMMD = PYTHON + '''
import json, os, sys, time
open(sys.argv[2], "w").close()
for _ in range(json.loads(os.environ["FAKE"]).get("turns", 3)):
    print("A gave 8 MiB in 3 ms (pause)", file=sys.stderr, flush=True)
time.sleep(60)
'''
TAKE_TURNS = '''#!/bin/sh
[ -z "$BESIDE_ENDS" ] || exit 3
exec sleep 60
'''


class Rows(unittest.TestCase):
    def setUp(self):
        self.rows = combinations.covering_rows()

    def test_every_feasible_pair_is_covered_by_feasible_rows(self):
        self.assertEqual(combinations.uncovered(self.rows), set())
        self.assertLessEqual(set(self.rows), set(combinations.feasible_rows()))

    def test_without_any_one_row_a_pair_is_missing(self):
        for row in self.rows:
            self.assertTrue(combinations.uncovered([one for one in self.rows if one != row]), row.name())

    def test_they_are_the_same_every_time_and_far_fewer_than_the_product(self):
        self.assertEqual(self.rows, combinations.covering_rows())
        self.assertLess(len(self.rows), len(combinations.feasible_rows()) / 5)

    def test_each_value_of_each_parameter_occurs(self):
        for name, values in combinations.PARAMETERS.items():
            self.assertEqual({getattr(row, name) for row in self.rows}, set(values))

    def test_each_excluded_pair_has_its_constraint_and_each_constraint_its_reason(self):
        excluded = combinations.excluded_pairs()
        self.assertIn("cuvmm spill × manager preallocating", excluded)
        self.assertTrue(all(excluded.values()), excluded)
        self.assertEqual(excluded["cuvmm limit × manager expandable"], ["own mappings are not refused"])
        named = {name for names in excluded.values() for name in names}
        self.assertEqual(named, {one.name for one in combinations.CONSTRAINTS})
        self.assertTrue(all(len(one.reason) > 20 for one in combinations.CONSTRAINTS))

    def test_without_a_constraint_more_pairs_have_to_be_covered(self):
        for one in combinations.CONSTRAINTS:
            others = [other for other in combinations.CONSTRAINTS if other != one]
            self.assertTrue(combinations.uncovered(self.rows, others), one.name)

    def test_rows_sample_differently(self):
        self.assertEqual(len({row.seed(1) for row in self.rows}), len(self.rows))
        self.assertNotEqual(self.rows[0].seed(1), self.rows[0].seed(2))


class Limits(unittest.TestCase):
    ROW = combinations.Row("torch", "limit", "plain", "caching")
    STATS = {"physical_peak_bytes": 500 * MIB, "live_peak_bytes": 480 * MIB}

    def test_lie_between_what_the_program_uses_and_what_it_takes(self):
        tried = settings.limits_to_try(self.ROW, {"needed_bytes": 200 * MIB, "held_bytes": 400 * MIB}, self.STATS)
        self.assertEqual(len(tried), 4)
        self.assertTrue(all(280 * MIB < one < 500 * MIB for one in tried[:-1]), tried)
        self.assertEqual(tried, sorted(tried))

    def test_are_below_the_peak_even_if_the_program_keeps_nothing(self):
        tried = settings.limits_to_try(self.ROW, {}, {"physical_peak_bytes": 500 * MIB, "live_peak_bytes": 500 * MIB})
        self.assertTrue(len(tried) > 1 and all(one < 500 * MIB for one in tried[:-1]), tried)

    def test_end_with_one_in_which_every_program_must_run(self):
        self.assertEqual(settings.limits_to_try(self.ROW, {}, self.STATS)[-1], 550 * MIB)

    def test_of_a_spill_are_below_what_it_uses(self):
        row = combinations.Row("cupy", "spill", "plain", "none")
        self.assertTrue(all(one < 480 * MIB for one in settings.limits_to_try(row, {}, self.STATS)))


class Distances(unittest.TestCase):
    def test_of_what_is_no_number(self):
        nan, infinite = float("nan"), float("inf")
        self.assertEqual(compare.distance(nan, nan), 0)
        self.assertEqual(compare.distance(infinite, infinite), 0)
        self.assertEqual(compare.distance(infinite, 1.0), infinite)
        self.assertEqual(compare.distance(nan, 1.0), infinite)
        self.assertEqual(compare.distance(1.0, 1.5), 0.5)


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        for name, text in (("program.py", PROGRAM), ("bin/cuvmm", CUVMM), ("bin/cuvmmd", CUVMMD),
                           ("bin/take_turns", TAKE_TURNS)):
            (self.place / name).parent.mkdir(exist_ok=True)
            (self.place / name).write_text(text)
            (self.place / name).chmod(0o755)
        self.runs = self.place / "runs"

    def matrix(self, only, fake=None, *more, seconds=60, **environment):
        self.runs.write_text("")
        finished = subprocess.run(
            [sys.executable, "-B", str(ROOT / "tools/matrix/matrix.py"), "--cuvmm", str(self.place / "bin/cuvmm"),
             "--state", str(self.place / "state.json"), "--json", str(self.place / "details.json"), "--program",
             str(self.place / "program.py"), "--seed", "5", "--seconds", str(seconds), "--only", only, *more],
            env={**os.environ, "FAKE": json.dumps(fake or {}), "RUNS": str(self.runs), **environment},
            capture_output=True, text=True, check=False)
        self.said = finished.stdout + finished.stderr
        self.details = json.loads((self.place / "details.json").read_text())
        return finished.returncode

    def results(self):
        return {one["result"] for one in self.details["rows"]}

    def programs_run(self):
        return len(self.runs.read_text().splitlines())

    def test_equal_results_pass_and_say_how_many_pairs_were_compared(self):
        self.assertEqual(self.matrix("torch graphs"), 0, self.said)
        self.assertEqual(self.results(), {"same"})
        self.assertEqual(self.details["pairs_compared"], self.details["pairs"])
        self.assertEqual(self.details["rows_left"], 0)
        self.assertIn("seed", self.said)

    def test_rows_that_ran_are_not_run_again_until_a_program_changes(self):
        self.matrix("monitor")
        self.assertGreaterEqual(self.programs_run(), 10)
        rows = self.details["rows"]
        self.assertEqual(self.matrix("monitor"), 0)
        self.assertEqual(self.programs_run(), 0)
        self.assertEqual(self.details["rows"], rows)
        with (self.place / "program.py").open("a") as file:
            file.write("# changed\n")
        self.matrix("monitor")
        self.assertGreaterEqual(self.programs_run(), 10)

    def test_another_seed_runs_them_again(self):
        self.matrix("torch graphs")
        self.matrix("torch graphs", None, "--seed", "6")
        self.assertGreater(self.programs_run(), 0)

    def test_a_difference_fails_and_the_first_one_is_named(self):
        fake = {"steady": {"native": [7.0], "monitor": [7.5]}, "only_in": "jax"}
        self.assertEqual(self.matrix("monitor", fake), 1)
        self.assertEqual(self.results(), {"same", "different"})
        self.assertIn("the first that is not the same: jax", self.said)
        self.assertIn("monitor: steady one: 1 of 4 values differ, by 0.5 at most", self.said)
        self.assertEqual(self.matrix("monitor", {}), 1, "a row that differed must be seen in the next call too")

    def test_another_shape_and_an_exception_are_differences(self):
        name = self.any_row("monitor")
        self.assertEqual(self.matrix(name, {"steady": {"monitor": [7.0]}}), 1)
        self.assertIn("is float64 [4], natively it is float64 [3]", self.said)
        self.matrix(name, {"raises": ["monitor"]}, "--seed", "6")
        self.assertEqual(self.results(), {"different"})
        self.assertRegex(self.said, r"raises ValueError \(.*\), natively it is float64")

    def test_a_program_that_differs_natively_is_compared_with_its_native_pair(self):
        fake = {"noisy": {"native": [1.0, 1.1], "monitor": [1.3]}}
        self.assertEqual(self.matrix(self.any_row("monitor"), fake), 0)
        self.assertEqual(self.results(), {"native_spread"})
        self.assertIn("two native runs differ in 1 outputs, first noisy one", self.said)

    def any_row(self, cuvmm):
        return next(row.name() for row in combinations.covering_rows() if row.cuvmm == cuvmm)

    def test_and_may_not_differ_more_nor_where_the_pair_is_the_same(self):
        name = self.any_row("monitor")
        self.assertEqual(self.matrix(name, {"noisy": {"native": [1.0, 1.1], "monitor": [1.5]}}), 1)
        self.assertIn("noisy one: 1 of 1 values differ, by 0.5 at most, 0.4 allowed by the native pair", self.said)
        fake = {"noisy": {"native": [1.0, 1.1], "monitor": [1.1]}, "steady": {"native": [4.0], "monitor": [4.001]}}
        self.assertEqual(self.matrix(name, fake, "--seed", "6"), 1)
        self.assertIn("steady one: 1 of 4 values differ", self.said)

    def test_a_program_that_dies_or_hangs_fails(self):
        name = self.any_row("monitor")
        self.assertEqual(self.matrix(name, {"dies": ["monitor"]}), 1)
        self.assertIn("monitor: exit status 1: Segmentation fault", self.said)
        self.assertEqual(self.matrix(name, {"sleep": {"monitor": 30}}, "--seed", "7", "--longest-run", "1"), 1)
        self.assertIn("took longer than 1 s", self.said)

    def test_a_program_that_dies_natively_compares_nothing(self):
        self.assertEqual(self.matrix(self.any_row("monitor"), {"dies": ["native"]}), 1)
        self.assertIn("natively, twice: exit status 1", self.said)
        self.assertIn("nothing was compared", self.said)
        self.assertEqual(self.results(), {"native_failure"})
        self.assertEqual(self.matrix("monitor", {"dies": ["native"], "only_in": "jax"}, "--seed", "6"), 0)
        self.assertEqual(self.results(), {"native_failure", "same"})
        self.assertLess(self.details["pairs_compared"], self.details["pairs"])

    def test_a_missing_framework_is_skipped_and_its_pairs_do_not_count(self):
        fake = {"missing": ["native"], "only_in": "jax"}
        self.assertEqual(self.matrix("monitor", fake), 0)
        self.assertEqual(self.results(), {"same", "skipped"})
        self.assertLess(self.details["pairs_compared"], self.details["pairs"])
        self.assertEqual(self.matrix("monitor", {"missing": ["monitor"]}, "--seed", "6"), 1)
        self.assertIn("what it finds natively is missing", self.said)

    def test_rows_are_left_when_time_is_over_and_the_next_call_goes_on(self):
        fake = {"sleep": {"native": 1.2}}
        self.assertEqual(self.matrix("monitor", fake, "--jobs", "1", seconds=8), 4, self.said)
        done, left = len(self.details["rows"]), self.details["rows_left"]
        self.assertGreater(done, 0)
        self.assertGreater(left, 0)
        self.assertIn(f"{left} rows are left", self.said)
        self.assertEqual(self.matrix("monitor", {}), 0)
        self.assertEqual(self.programs_run(), 2 * left)

    def test_a_limit_binds_and_is_raised_if_the_program_cannot_run_in_it(self):
        name = self.any_row("limit")
        fake = {"peak": 400, "needs": 330 * MIB}
        self.assertEqual(self.matrix(name, fake), 0, self.said)
        row = self.details["rows"][0]
        self.assertGreaterEqual(row["limit_bytes"], 330 * MIB)
        self.assertLess(row["limit_bytes"], 400 * MIB)
        self.assertEqual(row["peak_bytes"], row["limit_bytes"])
        self.assertEqual(self.matrix(name, {"peak": 400, "needs": 500 * MIB}, "--seed", "6"), 1)
        self.assertRegex(self.said, r"limit with a limit of [0-9]+ MiB: out of memory \| cuvmm\[7\] WARNING 1 refused")

    def test_a_setting_without_an_effect_is_no_success(self):
        for number, (cuvmm, fake) in enumerate((("limit", {"unbound": 1}), ("spill", {"unbound": 1}),
                                                ("monitor", {"allocations": 0}), ("vmm", {"allocations": 0}))):
            self.assertEqual(self.matrix(self.any_row(cuvmm), fake, "--seed", str(number)), 1, cuvmm)
            self.assertEqual(self.results(), {"no_effect"}, cuvmm)

    def test_a_program_that_only_creates_chunks_of_its_own_takes_memory(self):
        for number, cuvmm in enumerate(("monitor", "elide")):
            fake = {"allocations": 0, "chunks": 3}
            self.assertEqual(self.matrix(self.any_row(cuvmm), fake, "--seed", str(number)), 0, self.said)

    def test_a_spill_says_how_much(self):
        self.assertEqual(self.matrix(self.any_row("spill")), 0, self.said)
        self.assertGreater(self.details["rows"][0]["spilled_bytes"], 0)
        self.assertIn("spilled", self.said)

    def test_beside_another_program_memory_has_to_move_and_both_have_to_live(self):
        name = self.any_row("node")
        self.assertEqual(self.matrix(name), 0, self.said)
        self.assertEqual(self.details["rows"][0]["turns"], 3)
        self.assertEqual(self.matrix(name, {"turns": 0}, "--seed", "6"), 1)
        self.assertEqual(self.results(), {"no_effect"})
        self.assertEqual(self.matrix(name, {}, "--seed", "7", BESIDE_ENDS="yes"), 1)
        self.assertIn("the program beside it ended with 3", self.said)

    def test_the_tables_show_each_row(self):
        alike = dict.fromkeys(("native", "vmm", "limit", "node"), [7.0])
        self.matrix("jax", {"steady": {**alike, "monitor": [7.5]}, "noisy": {"native": [1.0, 1.1], "vmm": [1.05]}})
        rows = {row[0]: row for row in same_results.rows_of("matrix", self.details, "here")}
        self.assertEqual(len(rows), len(self.details["rows"]))
        of_monitor = next(row for name, row in rows.items() if "different" in row[2])
        self.assertEqual(of_monitor[3], f"[not run]({same_results.WHY})")
        self.assertTrue(any("differs natively" in row[3] for row in rows.values()), rows)
        self.assertIn("| jax |", result_tables.details_of(self.details))
        (self.place / "card").mkdir()
        (self.place / "card/matrix.json").write_text(json.dumps(
            {"part": "matrix", "commit": "c0ffee", "details": self.details}))
        self.assertIn("`card/matrix.json`, c0ffee", measured.same_results_table(self.place))


if __name__ == "__main__":
    unittest.main()
