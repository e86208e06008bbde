#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the benchmarks of two builds, so that a change that costs time shows before it lands.

    tools/compare_builds.py BEFORE AFTER [--rounds N] [--filter REGEX] [--most RATIO] [--json FILE]
                            [PROGRAM …]

Runs each benchmark program that both builds have, or those named (hook, vmm …), in rounds in which the
builds take turns. Prints for each benchmark the median of the rounds' ratios, after to before, with
the quartiles: the programs one after the other, the slowest benchmark of each first. Exits with 1 if
a whole quartile range lies above RATIO (1.03).
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def programs_of(build):
    return {file.name.removeprefix("cuvmm_bench_"): file
            for file in (build / "bin").glob("cuvmm_bench_*")}


def times_of(program, request):
    """Nanoseconds of each of the program's benchmarks, by name."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(program.parent.parent / "lib"))
    run = subprocess.run([program, "--benchmark_format=json", f"--benchmark_filter={request.filter}",
                          f"--benchmark_min_time={request.seconds}"],
                         capture_output=True, text=True, check=False, env=environment)
    if run.returncode != 0:
        sys.exit(f"{program} ends with {run.returncode}: {run.stderr[-500:]}")
    if "{" not in run.stdout:  # the filter leaves none
        return {}
    rows = json.loads(run.stdout[run.stdout.index("{"):])["benchmarks"]
    repeats = {}
    for row in rows:
        if row.get("run_type") == "aggregate" and row.get("aggregate_name") != "median":
            continue
        name = re.sub(r"_median$|/repeats:\d+", "", row["name"])
        time = row["real_time"] * UNITS[row["time_unit"]]
        if row.get("run_type") == "aggregate":
            repeats[name] = [time]
        else:
            repeats.setdefault(name, []).append(time)
    return {name: statistics.median(times) for name, times in repeats.items()}


def compare(before, after, request):
    """Each benchmark's times before and after, a pair for each round."""
    pairs = {}
    for number in range(request.rounds):
        order = (before, after) if number % 2 == 0 else (after, before)
        times = {program: times_of(program, request) for program in order}
        for name in times[before].keys() & times[after].keys():
            pairs.setdefault(name, []).append((times[before][name], times[after][name]))
    return pairs


def row_of(benchmark, times):
    ratios = [after / before for before, after in times]
    low, middle, high = (ratios * 3 if len(ratios) == 1 else
                         statistics.quantiles(ratios, n=4, method="inclusive"))
    return {"benchmark": benchmark, "ratio": middle, "low": low, "high": high,
            "before_ns": statistics.median(before for before, _ in times),
            "after_ns": statistics.median(after for _, after in times)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="at least, for each benchmark")
    parser.add_argument("--filter", default=".", help="the benchmarks to run, as a regular expression")
    parser.add_argument("--most", type=float, default=1.03)
    parser.add_argument("--json")
    request = parser.parse_intermixed_args()
    builds = programs_of(request.before), programs_of(request.after)
    names = sorted(builds[0].keys() & builds[1].keys())
    if unknown := set(request.programs) - set(names):
        sys.exit(f"not in both builds: {' '.join(sorted(unknown))}; they have {' '.join(names)}")
    rows = []
    for name in request.programs or names:
        pairs = compare(builds[0][name], builds[1][name], request)
        of_program = sorted((row_of(f"{name}: {benchmark}", times)
                             for benchmark, times in pairs.items()), key=lambda row: -row["ratio"])
        for row in of_program:
            print(f"{row['ratio']:6.3f} ({row['low']:.3f} to {row['high']:.3f}) "
                  f"{row['before_ns']:>12.1f} -> {row['after_ns']:>12.1f} ns  {row['benchmark']}",
                  flush=True)
        rows += of_program
    slower = [row for row in rows if row["low"] > request.most]
    print(f"{len(rows)} benchmarks in {request.rounds} rounds, {len(slower)} slower than "
          f"{request.most} in three quarters of them")
    if request.json:
        pathlib.Path(request.json).write_text(
            json.dumps({"rounds": request.rounds, "rows": rows}) + "\n", encoding="utf-8")
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
