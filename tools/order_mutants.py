#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the generator of tests/order with mutants of one rule each of docs/internals/stream_order.md.

For each mutant, changes a copy of the tree, builds the preload library, and runs the random
programs until one of them detects the violation.

usage: tools/order_mutants.py [--programs N] [--only NAME] [--out FILE]
Works in build-mutants, a copy of the sources and of the release build.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from order_mutant_list import MUTANTS

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build-mutants"
# (name, environment, simulated driver, options of cuvmm run, options of the programs). With little
# memory, one stream's freed memory soon goes to another stream.
RACES = "cuEventQuery=50us,cuStreamWaitEvent=50us,cuEventRecord=20us"
SETTINGS = [
    ("small", {"VMM_WAIT": "1ms"}, "memory=64M", [], []),
    ("contexts", {"VMM_WAIT": "1ms"}, "devices=2,memory=64M", [], ["--contexts", "3"]),
    ("eager", {"VMM_SIM_ORDER": "eager"}, "", [], []),
    ("limit", {"VMM_WAIT": "1ms"}, "", ["--limit", "24M"], []),
    ("lazy", {"VMM_SIM_ORDER": "lazy", "VMM_WAIT": "1ms"}, "memory=64M", [], []),
    ("races", {"VMM_SIM_DELAY": RACES, "VMM_WAIT": "1ms"}, "memory=64M", [], []),
    ("spilled", {"VMM_WAIT": "1ms"}, "devices=2", ["--limit", "16M", "--spill", "peer"], []),
    ("scheduled", {"VMM_CLIENT": "order"}, "", ["--schedule", "fair"], []),
]


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def copy_tree():
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir()
    files = run(["git", "ls-files"], cwd=ROOT).stdout.split()
    for name in files:
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)
    run(["cmake", "--preset", "release", "-DCUVMM_BENCH=OFF", "-DCUVMM_TOGETHER=OFF"], cwd=COPY)


def build():
    made = run(["ninja", "-j", "1", "-C", str(COPY / "build"), "cuvmm_cli", "cuvmm_preload", "cuvmm_order_tests"])
    return None if made.returncode == 0 else re.findall(r"error: .*", made.stdout + made.stderr)[:1] or ["?"]


def judge(programs):
    """Returns the kind of violation, the setting, and the program that found it, or None."""
    for setting, variables, simulated, flags, more in SETTINGS:
        command = ["build/bin/cuvmm", "run", "--quiet", "--mode", "vmm",
                   f"--sim={simulated}" if simulated else "--sim", *flags, "--",
                   "build/bin/cuvmm_order_tests", "--programs", str(programs), "--seed", "1", *more]
        try:
            done = run(command, cwd=COPY, env={**os.environ, **variables}, timeout=900)
        except subprocess.TimeoutExpired:
            return "no end within 15 min", setting, "-"
        if done.returncode == 0:
            continue
        said = re.search(r"VIOLATION: ([^:\n]*)", done.stdout + done.stderr)
        seed = re.search(r"^seed (\d+)", done.stdout + done.stderr, re.M)
        return said.group(1) if said else f"status {done.returncode}", setting, seed.group(1) if seed else "-"
    return None


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--programs", type=int, default=1600, help="in each of the settings")
    options.add_argument("--only", help="mutants whose name contains this")
    options.add_argument("--out", help="append the table here")
    asked = options.parse_args()
    copy_tree()
    failed = build()
    if failed:
        sys.exit(f"the tree as it is does not build: {failed[0]}")
    out = open(asked.out, "a", encoding="utf-8") if asked.out else sys.stdout
    missed = 0
    for name, axiom, file, old, new in MUTANTS:
        if asked.only and asked.only not in name:
            continue
        path = COPY / file
        text = path.read_text(encoding="utf-8")
        if text.count(old) < 1:
            sys.exit(f"mutant '{name}': {file} no longer says what it replaces")
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        started = time.monotonic()
        failed = build()
        found = ("does not build: " + failed[0], "-", "-") if failed else judge(asked.programs)
        path.write_text(text, encoding="utf-8")
        missed += found is None or bool(failed)
        what = f"{found[0]}, {found[1]}, program {found[2]}" if found else "NOT FOUND"
        print(f"axiom {axiom:2d}  {name}: {what} ({time.monotonic() - started:.0f} s)", file=out, flush=True)
    print(f"{missed} not found", file=out, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
