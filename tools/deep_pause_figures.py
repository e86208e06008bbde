#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures pauses of a PyTorch program: of memory that cuvmm serves, of expandable segments, which
the program maps itself, and deep ones, compared with the driver's own checkpoint.

    tools/deep_pause_figures.py BUILD [--details FILE] [--gib 8] [--rounds 9]

Prints a line per figure with its goal, and writes all of them as JSON. Exits with 1 if a program's
memory changes, a step fails or a goal is missed.
"""
import argparse
import ctypes
import json
import operator
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import card_bench

ROOT = pathlib.Path(__file__).resolve().parent.parent


class LockArguments(ctypes.Structure):
    _fields_ = [("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint),
                ("reserved1", ctypes.c_uint64 * 7)]


class Driver:
    """The driver's checkpoint of another process."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        error = getattr(self.library, name)(*arguments)
        if error != 0:
            sys.exit(f"{name} answered {error}")

    def timed(self, name, process, arguments=None):
        began = time.perf_counter()
        self.call(name, process, arguments)
        return (time.perf_counter() - began) * 1000

    def take_off(self, process):
        lock = LockArguments(timeout_ms=10000)
        return (self.timed("cuCheckpointProcessLock", process, ctypes.byref(lock))
                + self.timed("cuCheckpointProcessCheckpoint", process))

    def bring_back(self, process):
        return (self.timed("cuCheckpointProcessRestore", process)
                + self.timed("cuCheckpointProcessUnlock", process))


def used_mib():
    return int(card_bench.of_visible_cards("memory.used")[0])


class Program:
    """The program, until the end of the block. `process` is its number."""

    def __init__(self, bench, gib, before, environment):
        self.bench = bench
        command = [*before, sys.executable, "-B", str(ROOT / "tests/gpu/paused_torch.py"), str(gib)]
        self.runner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True, env=dict(os.environ, **environment))
        self.hear("ready")
        self.process = self.pausable()[0] if before else self.runner.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.runner.stdin.close()
        if self.runner.wait(timeout=120) != 0:
            sys.exit("the program failed at its end")

    def hear(self, expected):
        line = self.runner.stdout.readline().strip()
        if line != expected:
            sys.exit(f"the program said '{line}', not '{expected}'")

    def check(self):
        self.runner.stdin.write("\n")
        self.runner.stdin.flush()
        self.hear("right")

    def pausable(self):
        listed = subprocess.run([str(self.bench.bin / "cuvmm"), "pause", "--list", "--json"], check=True,
                                capture_output=True, text=True, timeout=60).stdout
        return [one["process"] for one in json.loads(listed)["processes"]]

    # What the command says of the program, and how long the command ran in milliseconds.
    def cuvmm(self, *words):
        began = time.perf_counter()
        done = subprocess.run([str(self.bench.bin / "cuvmm"), *words, "--json", str(self.process)],
                              capture_output=True, text=True, timeout=300)
        took = (time.perf_counter() - began) * 1000
        if done.returncode != 0:
            sys.exit(f"cuvmm {' '.join(words)} ends with {done.returncode}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)["processes"][0], took


def median_ms(answers, name="took_us"):
    return statistics.median(answer[name] for answer in answers) / 1000


class Rounds:
    """What was seen of a program in some rounds of pauses of each kind."""

    def __init__(self, bench, driver, gib, rounds, environment):
        self.plain, self.plain_resumes, self.deep_ms, self.deep_back_ms = [], [], [], []
        self.separate_ms, self.separate_back_ms, self.used = [], [], []
        self.cold = None
        nothing = used_mib()
        before = [str(bench.bin / "cuvmm"), "run", "--quiet", "--control", "--"]
        with Program(bench, gib, before, environment) as program:
            self.before = used_mib() - nothing
            program.check()
            self.cold, _ = program.cuvmm("pause")
            self.while_paused = used_mib() - nothing
            program.cuvmm("resume")
            program.check()
            for _ in range(rounds):
                self.pause(program, driver)
                self.pause_deeply(program, nothing)

    def pause(self, program, driver):
        answer, out = program.cuvmm("pause")
        self.plain.append(answer)
        self.separate_ms.append(out + driver.take_off(program.process))
        back = driver.bring_back(program.process)
        answer, took = program.cuvmm("resume")
        self.plain_resumes.append(answer)
        self.separate_back_ms.append(back + took)
        program.check()

    def pause_deeply(self, program, nothing):
        answer, took = program.cuvmm("pause", "--deep")
        print(f"    deep pause: {json.dumps(answer)}")
        self.deep_ms.append(took)
        self.used.append(used_mib() - nothing)
        answer, took = program.cuvmm("resume")
        print(f"    back: {json.dumps(answer)}", flush=True)
        self.deep_back_ms.append(took)
        program.check()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--details")
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    bench, driver = card_bench.Bench(options.build), Driver()
    with tempfile.TemporaryDirectory(prefix="cuvmm-figures-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        size = f"{options.gib} GiB"
        served = Rounds(bench, driver, options.gib, options.rounds, {})
        own = Rounds(bench, driver, options.gib, options.rounds,
                     {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        for name, rounds in (("served", served), ("expandable", own)):
            bench.note(f"{name}: {size}, first pause", median_ms([rounds.cold]), "ms")
            bench.note(f"{name}: of that, host memory", median_ms([rounds.cold], "host_us"), "ms")
            bench.note(f"{name}: warm pause", median_ms(rounds.plain), "ms")
            bench.note(f"{name}: resume", median_ms(rounds.plain_resumes), "ms")
            bench.note(f"{name}: used on the card before", rounds.before, "MiB")
            bench.note(f"{name}: used while paused", rounds.while_paused, "MiB")
            bench.note(f"{name}: used while off the card", max(rounds.used), "MiB", "<= 10",
                       max(rounds.used) <= 10)
            there_and_back = (list(map(operator.add, rounds.deep_ms, rounds.deep_back_ms)),
                              list(map(operator.add, rounds.separate_ms, rounds.separate_back_ms)))
            for way, deep, separate in (("deep pause", rounds.deep_ms, rounds.separate_ms),
                                        ("back from it", rounds.deep_back_ms, rounds.separate_back_ms),
                                        ("deep pause and back", *there_and_back)):
                bench.note(f"{name}: {way}", statistics.median(deep), "ms")
                over = statistics.median(map(operator.truediv, deep, separate))
                bench.note(f"{name}: {way}, x the steps separately", over, "", "<= 1.05", over <= 1.05)
        over = median_ms(own.plain) / median_ms(served.plain)
        bench.note("a warm pause of expandable segments, x of served memory", over, "", "<= 1.1", over <= 1.1)
        alone(bench, driver, options, size)
        bench.end(options.details)
    return 1 if bench.missed else 0


def alone(bench, driver, options, size):
    """The driver's checkpoint without cuvmm, which copies all memory itself."""
    with Program(bench, options.gib, [], {}) as program:
        out, back = [], []
        for _ in range(options.rounds):
            out.append(driver.take_off(program.process))
            back.append(driver.bring_back(program.process))
            program.check()
        bench.note(f"the driver's checkpoint alone: {size} out", statistics.median(out), "ms")
        bench.note("the same, back", statistics.median(back), "ms")


if __name__ == "__main__":
    sys.exit(main())
