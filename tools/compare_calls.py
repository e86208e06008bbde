# SPDX-License-Identifier: Apache-2.0
"""Runs a google-benchmark program natively and under `cuvmm run` in each mode, alternating.

    compare_calls.py --cuvmm build/bin/cuvmm --program build/bin/cuvmm_bench_calls [--json FILE]

Prints the median over the rounds in nanoseconds, and its ratio to the native one.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

MODES = ("native", "off", "monitor", "vmm")


def run_once(mode, options, folder):
    result = folder / "result.json"
    plain = [options.program, f"--benchmark_out={result}", "--benchmark_out_format=json",
             f"--benchmark_min_time={options.seconds}"]
    before = [] if mode == "native" else [options.cuvmm, "run", *options.run_option, "--mode", mode, "--"]
    if mode == "native" and options.native_before:
        before = options.native_before.split()
    subprocess.run([*before, *plain], stdout=subprocess.DEVNULL, check=True)
    told = json.loads(result.read_text())["benchmarks"]
    nanoseconds = {"ns": 1, "us": 1e3, "ms": 1e6}
    return {one["name"]: one["real_time"] * nanoseconds[one["time_unit"]] for one in told}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cuvmm", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="0.1", help="for each benchmark of a round")
    parser.add_argument("--run-option", action="append", default=[], help="for cuvmm run")
    parser.add_argument("--native-before", default="", help="stands before the native command")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rounds = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="cuvmm-calls-") as folder:
        for number in range(options.rounds):
            turn = number % len(MODES)
            for mode in MODES[turn:] + MODES[:turn]:
                rounds[mode].append(run_once(mode, options, pathlib.Path(folder)))
    told = []
    print(f"{'ns a call, median of ' + str(options.rounds) + ' rounds':32s}" +
          "".join(f"{mode:>20s}" for mode in MODES))
    for name in rounds["native"][0]:
        times = {mode: [one[name] for one in rounds[mode]] for mode in MODES}
        medians = {mode: statistics.median(times[mode]) for mode in MODES}
        native = medians["native"]
        print(f"{name:32s}{native:20.0f}" + "".join(
            f"{medians[mode]:12.0f} ({medians[mode] / native:4.2f}x)" for mode in MODES[1:]))
        told.append({"name": name, "median_ns": medians, "rounds_ns": times,
                     "over_native": {mode: medians[mode] / native for mode in MODES[1:]}})
    if options.json:
        options.json.write_text(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
