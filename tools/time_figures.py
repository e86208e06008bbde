#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how two programs share a card under cuvmmd, compared with sharing it natively.

    tools/time_figures.py BUILD [--details FILE] [--seconds N] [--sim]

Prints a line per figure with its goal, and writes all of them as JSON. Where single runs differ too
much, a figure is the median of several rounds, in which what is compared takes turns. Exits with 1
if a program fails or a goal is missed. --sim tries out the tool on a simulated card, whose times
mean nothing: goals are then printed but not judged.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys

import card_bench

PROGRAMS = pathlib.Path(__file__).resolve().parent / "time_programs.py"


class Bench(card_bench.Bench):
    def __init__(self, build, seconds, sim):
        super().__init__(build, "1G" if sim else None)
        self.seconds = seconds

    def busy(self, *arguments):
        return [str(self.bin / "busy"), "--json", "--wait", *arguments]

    def service(self, policy):
        return card_bench.Service(self, "--time", policy)

    # `programs`: (command, arguments of cuvmm run) for each. Native without a service.
    def run(self, programs, service=None):
        running = []
        for index, (words, terms) in enumerate(programs):
            command = [*words, "--warm-up", f"{self.seconds / 5}s", "--seconds", str(self.seconds)]
            if service or self.sim:
                node = ["--node", "require" if service else "off"]
                command = [str(self.bin / "cuvmm"), "run", "--quiet", *self.sim, *node,
                           "--name", f"p{index}", *terms, "--", *command]
            environment = dict(os.environ, VMM_NODE_SOCKET=service.socket if service else "")
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            env=environment, text=True))
            # The next program starts when this one has measured its kernel on an idle card.
            if running[-1].stdout.readline() != "ready\n":
                sys.exit(f"{command} does not get ready")
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        results = []
        for process in running:
            output, _ = process.communicate(timeout=self.seconds * 10 + 60)
            if process.returncode != 0:
                sys.exit(f"{process.args} ends with {process.returncode}")
            results.append(json.loads(output))
        return results

    # Runs the foreground alone, beside the background natively, and under priority, in turns.
    # Returns the results of each round: (alone, natively, under priority).
    def compared(self, rounds, front, back):
        programs = [(front, ["--priority", "5"]), (back, ["--priority", "0"])]
        for _ in range(1 if self.sim else rounds):
            alone = self.run(programs[:1])[0]
            native = self.run(programs)
            with self.service("priority") as service:
                yield alone, native, self.run(programs, service)

    def note_median(self, what, values, goal=None, holds=lambda median: True):
        median = statistics.median(values)
        self.note(what, median, "", goal, holds(median))
        self.figures[-1]["rounds"] = values


def show_priority(bench):
    front = bench.busy("--kernel", "30us", "--every", "10ms", "--burst", "20")
    slower_natively, slower, kept = [], [], []
    for alone, native, both in bench.compared(5, front, bench.busy("--kernel", "50us")):
        slower_natively.append(native[0]["p99_us"] / alone["p99_us"])
        slower.append(both[0]["p99_us"] / alone["p99_us"])
        left = both[1]["seconds"] - both[0]["device_seconds"]
        kept.append(both[1]["device_seconds"] / left)
    bench.note_median("foreground p99 beside the background, natively, x alone", slower_natively)
    bench.note_median("the same under priority", slower, "<= 1.3", lambda median: median <= 1.3)
    bench.note_median("background, of what the foreground leaves", kept, ">= 0.85",
                      lambda median: median >= 0.85)


def show_torch(bench):
    if bench.sim or importlib.util.find_spec("torch") is None:
        return
    serving, training = ([sys.executable, "-B", str(PROGRAMS), kind]
                         for kind in ("serving", "training"))
    steps = bench.run([(training, [])])[0]["steps_per_second"]
    slower_natively, slower, kept_natively, kept = [], [], [], []
    for alone, native, both in bench.compared(3, serving, training):
        slower_natively.append(native[0]["p99_us"] / alone["p99_us"])
        slower.append(both[0]["p99_us"] / alone["p99_us"])
        kept_natively.append(native[1]["steps_per_second"] / steps)
        kept.append(both[1]["steps_per_second"] / steps)
    bench.note_median("PyTorch serving p99 beside training, natively, x alone", slower_natively)
    bench.note_median("the same under priority", slower)
    bench.note_median("training beside serving, natively, x alone", kept_natively)
    bench.note_median("the same under priority", kept)


def show_shares(bench):
    for form, name in (([], "kernels"), (["--graph"], "graphs")):
        for percent in (10, 25, 50):
            less = (bench.busy("--kernel", "2ms", *form), ["--weight", str(percent)])
            more = (bench.busy("--kernel", "50us", *form), ["--weight", str(100 - percent)])
            with bench.service("share") as service:
                both = bench.run([less, more], service)
            times = [one["device_seconds"] for one in both]
            share = 100 * times[0] / sum(times)
            bench.note(f"share {percent}:{100 - percent}, {name} of 2 ms against 50 us", share, "",
                       f"{percent} +- 3", abs(share - percent) <= 3)


def show_cap(bench):
    with bench.service("off") as service:
        capped = bench.run([(bench.busy("--kernel", "2ms"), ["--cap", "30"])], service)[0]
    average = capped["device_seconds"] / capped["seconds"]
    seconds = [100 * one for one in capped["by_second"] or [average]]
    bench.note("cap 30%, alone: the second with the most", max(seconds), "", "30 +- 2",
               abs(max(seconds) - 30) <= 2)
    bench.note("the second with the least", min(seconds), "", "30 +- 2",
               abs(min(seconds) - 30) <= 2)


def show_alone(bench):
    kept = []
    for _ in range(1 if bench.sim else 3):
        native = bench.run([(bench.busy("--kernel", "50us"), [])])[0]
        with bench.service("share") as service:
            served = bench.run([(bench.busy("--kernel", "50us"), [])], service)[0]
        kept.append(served["kernels"] / served["seconds"] / (native["kernels"] / native["seconds"]))
    bench.note_median("one program alone under the service, x native", kept, ">= 0.98",
                      lambda median: median >= 0.98)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--details")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sim", action="store_true")
    asked = parser.parse_args()
    bench = Bench(asked.build, asked.seconds, asked.sim)
    try:
        for show in (show_priority, show_torch, show_shares, show_cap, show_alone):
            show(bench)
    finally:
        bench.end(asked.details)
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
