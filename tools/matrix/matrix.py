# SPDX-License-Identifier: Apache-2.0
"""Runs the combination matrix: programs of every framework with every use, memory manager and setting
of cuvmm, each pair of these in some row, natively and under cuvmm.

    matrix.py --cuvmm build/bin/cuvmm --state FILE [--json FILE] [--seconds N] [--jobs N] [--seed N]
              [--only TEXT] [--list]

The outputs of a row have to be bitwise the same. Where a second native run shows that a program is not
deterministic, they have to agree as closely as the native runs do; the row then says native_spread. A
program that fails natively, twice, compares nothing; the row then says native_failure. Where a setting
had no effect, the row says no_effect. Neither counts as a comparison of its pairs.
Rows that are in the state file with the same programs, cuvmm and seed are not run again, so that a
short lease of a card is enough: call it again until no row is left.

Exit status 1 if a row differs or fails, 4 if rows are left, else 0.
"""
import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import threading
import time
import traceback

import combinations
import row as row_runs
import settings

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE.parent.parent / "tests" / "gpu" / "matrix" / "program.py"
FIRST_ROW = 60.0  # seconds that a row is expected to take until one has been seen
FIELDS_SHOWN = ("limit_bytes", "peak_without_limit_bytes", "peak_bytes", "spilled_bytes")


def seed_of_build(cuvmm):
    """Another sample for each commit, the same for all calls of one."""
    mark = cuvmm.parent.parent / "lib" / "cuvmm" / "commit"
    return int(hashlib.sha256(mark.read_bytes()).hexdigest()[:6], 16) if mark.exists() else 0


def source_hash(cuvmm, program, seed, extra):
    """Covers all that a row's result depends on here: the programs, this code, cuvmm and the seed."""
    sha = hashlib.sha256(f"{seed} {extra}".encode())
    files = [*HERE.glob("*.py"), *pathlib.Path(program).parent.glob("*.py"), cuvmm,
             *(cuvmm.parent.parent / "lib").glob("libcuvmm*.so*")]
    for file in sorted({one.resolve() for one in files if one.exists()}):
        sha.update(file.name.encode() + file.read_bytes())
    return sha.hexdigest()[:16]


class State:
    """The rows that ran, by name, in a file that is replaced as a whole."""

    def __init__(self, file, source):
        self.file, self.source = file, source
        self.lock = threading.Lock()
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.rows = {name: one for name, one in known.items() if one["source"] == source}

    def add(self, name, result):
        with self.lock:
            self.rows[name] = {"source": self.source, **result}
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")
            new.replace(self.file)


def line_of(name, result):
    figures = [f"{field.removesuffix('_bytes').replace('_', ' ')} {result[field] >> 20} MiB"
               for field in FIELDS_SHOWN if result.get(field) is not None]
    figures += [f"{field.replace('_', ' ')} {result[field]}" for field in ("turns", "copies_elided") if field in result]
    about = f"{result.get('outputs', 0):4d} outputs {result.get('digest', '')}"
    return f"{name:48s} {result['result']:13s} seed {result['seed']:10d} {about} {result['seconds']:6.1f} s  " \
           + ", ".join(figures) + (f"\n    {result['why']}" if result.get("why") else "")


class Part:
    def __init__(self, asked, rows, state, context):
        self.asked, self.rows, self.state, self.context = asked, rows, state, context
        self.longest = FIRST_ROW if asked.seconds > FIRST_ROW else 0.0
        self.printing = threading.Lock()

    def run(self, row):
        if time.monotonic() + self.longest > self.context.deadline:
            return
        try:
            result = row_runs.run_row(row, self.context)
        except row_runs.OutOfTime:
            return
        except Exception as error:  # a fault of this code in one row must not end the others
            traceback.print_exc()
            result = {**dataclasses.asdict(row), "seed": row.seed(self.context.seed), "result": "failed",
                      "why": f"the matrix itself: {type(error).__name__}: {error}", "seconds": 0.0}
        with self.printing:
            self.longest = max(self.longest, result["seconds"])
            print(line_of(row.name(), result), flush=True)
        self.state.add(row.name(), result)

    def run_all(self):
        left = [row for row in self.rows if row.name() not in self.state.rows]
        together = [row for row in left if row.cuvmm not in settings.ALONE]
        with concurrent.futures.ThreadPoolExecutor(self.asked.jobs) as threads:
            list(threads.map(self.run, together))
        for row in left:
            if row.cuvmm in settings.ALONE:
                self.run(row)

    def details(self):
        results = [self.state.rows[row.name()] for row in self.rows if row.name() in self.state.rows]
        done = [row for row in self.rows if row.name() in self.state.rows
                and self.state.rows[row.name()]["result"] not in row_runs.NOT_COMPARED]
        every = combinations.pairs_of(self.rows)
        return {"seed": self.context.seed, "source": self.state.source, "rows_of_all": len(self.rows),
                "rows_left": len(self.rows) - len(results), "pairs": len(every),
                "pairs_compared": len(combinations.pairs_of(done)),
                "rows": [{key: value for key, value in one.items() if key != "source"} for one in results],
                "excluded": combinations.excluded_pairs()}


def summary(details):
    counts = {}
    for one in details["rows"]:
        counts[one["result"]] = counts.get(one["result"], 0) + 1
    words = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    return f"{len(details['rows'])} of {details['rows_of_all']} rows: {words or 'none'}; " \
           f"{details['pairs_compared']} of {details['pairs']} pairs compared"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cuvmm", required=True, type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--state", required=True, type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=540, help="for all rows of this call")
    parser.add_argument("--jobs", type=int, default=3, help="rows at a time")
    parser.add_argument("--seed", type=int, help="of all samples; default: of the commit")
    parser.add_argument("--longest-run", type=float, default=240, help="seconds after which a program hangs")
    parser.add_argument("--only", help="rows whose name contains this text")
    parser.add_argument("--list", action="store_true", help="print the rows and the excluded pairs")
    parser.add_argument("--program", default=str(PROGRAM))
    parser.add_argument("--argument", action="append", default=[], help="for the program: --argument=--device=cpu")
    parser.add_argument("--run-option", action="append", default=[], help="for cuvmm run, and for cuvmmd: --run-option=--sim=card=one,memory=16G")
    return parser.parse_args()


def main():
    asked = arguments()
    rows = combinations.covering_rows()
    missing = combinations.uncovered(rows)
    if missing:
        sys.exit(f"the rows do not cover {', '.join(map(combinations.shown, missing))}")
    if asked.list:
        for row in rows:
            print(row.name())
        for pair, names in combinations.excluded_pairs().items():
            print(f"excluded: {pair}: {', '.join(names)}")
        return 0
    if asked.only:
        rows = [row for row in rows if asked.only in row.name()]
    seed = seed_of_build(asked.cuvmm) if asked.seed is None else asked.seed
    source = source_hash(asked.cuvmm, asked.program, seed, [*asked.argument, *asked.run_option])
    state = State(asked.state, source)
    context = row_runs.Context(asked.cuvmm, [sys.executable, "-B", asked.program, *asked.argument], seed,
                               time.monotonic() + asked.seconds, asked.longest_run, asked.run_option)
    part = Part(asked, rows, state, context)
    print(f"{len(rows)} rows cover every pair but those excluded; seed {seed}, "
          f"{sum(row.name() in state.rows for row in rows)} ran earlier", flush=True)
    part.run_all()
    details = part.details()
    if asked.json:
        asked.json.write_text(json.dumps(details, indent=1) + "\n", encoding="utf-8")
    print(summary(details))
    bad = [one for one in details["rows"] if one["result"] not in (*row_runs.GOOD, "no_effect")]
    if bad:
        row = combinations.Row(*(bad[0][name] for name in combinations.PARAMETERS))
        print(f"the first that is not the same: {row.name()}: {bad[0]['result']}: {bad[0].get('why')}")
        return 1
    if details["rows_left"]:
        print(f"{details['rows_left']} rows are left: run this again")
        return 4
    if details["rows"] and not details["pairs_compared"]:
        print("nothing was compared")
        return 1
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())
