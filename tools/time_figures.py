#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how two programs share a card under cuvmmd, compared with sharing it natively.

    tools/time_figures.py BUILD [--details FILE] [--seconds N] [--sim] [--only FIGURE]

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

    # Starts programs, given as (command, arguments of cuvmm run), and returns their processes once
    # they are ready. Native without a service.
    def start(self, programs, service=None):
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
        return running

    # Lets them work side by side once, and returns what they say of it.
    def work(self, running):
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline() or "null") for process in running]

    def end_all(self, running):
        for process in running:
            process.stdin.close()
            if process.wait(timeout=60) != 0:
                sys.exit(f"{process.args} ends with {process.returncode}")

    def run(self, programs, service=None):
        running = self.start(programs, service)
        results = self.work(running)
        self.end_all(running)
        return results

    def note_median(self, what, values, goal=None, holds=lambda median: True):
        median = statistics.median(values)
        self.note(what, median, "", goal, holds(median))
        self.figures[-1]["rounds"] = values


def in_front_and_behind(front, back):
    return [(front, ["--priority", "5"]), (back, ["--priority", "0"])]


def show_priority(bench):
    programs = in_front_and_behind(
        bench.busy("--kernel", "30us", "--every", "10ms", "--burst", "20"),
        bench.busy("--kernel", "50us"))
    slower_natively, slower, kept = [], [], []
    for _ in range(1 if bench.sim else 5):
        alone = bench.run(programs[:1])[0]
        native = bench.run(programs)
        with bench.service("priority") as service:
            front, back = bench.run(programs, service)
        slower_natively.append(native[0]["p99_us"] / alone["p99_us"])
        slower.append(front["p99_us"] / alone["p99_us"])
        kept.append(back["device_seconds"] / (back["seconds"] - front["device_seconds"]))
    bench.note_median("foreground p99 beside the background, natively, x alone", slower_natively)
    bench.note_median("the same under priority", slower, "<= 1.3", lambda median: median <= 1.3)
    bench.note_median("background, of what the foreground leaves", kept, ">= 0.85",
                      lambda median: median >= 0.85)


def show_torch(bench):
    if bench.sim or importlib.util.find_spec("torch") is None:
        return
    programs = in_front_and_behind(*([sys.executable, "-B", str(PROGRAMS), kind]
                                     for kind in ("serving", "training")))
    native = bench.start(programs)
    with bench.service("priority") as service:
        shared = bench.start(programs, service)
        rounds = []
        for _ in range(5):
            alone = [bench.work([one])[0] for one in native]
            rounds.append((alone, bench.work(native), bench.work(shared)))
        bench.end_all(shared)
    bench.end_all(native)
    for name, index, what in (("PyTorch serving p50", 0, "p50_us"),
                              ("PyTorch serving p99", 0, "p99_us"),
                              ("PyTorch training's steps", 1, "steps_per_second")):
        for how, number in (("natively", 1), ("under priority", 2)):
            bench.note_median(f"{name} beside the other, {how}, x alone",
                              [one[number][index][what] / one[0][index][what] for one in rounds])


def show_shares(bench):
    for form, name in (([], "kernels"), (["--graph"], "graphs")):
        for percent in (10, 25, 50):
            less = (bench.busy("--kernel", "2ms", *form), ["--weight", str(percent)])
            more = (bench.busy("--kernel", "50us", *form), ["--weight", str(100 - percent)])
            with bench.service("share") as service:
                both = bench.run([less, more], service)
            times = [one["device_seconds"] for one in both]
            share = 100 * times[0] / sum(times) if any(times) else 0.0  # on a machine busy with other work
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


FIGURES = {"priority": show_priority, "torch": show_torch, "shares": show_shares, "cap": show_cap,
           "alone": show_alone}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--details")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sim", action="store_true")
    parser.add_argument("--only", choices=FIGURES, action="append", default=[])
    asked = parser.parse_args()
    bench = Bench(asked.build, asked.seconds, asked.sim)
    try:
        for name, show in FIGURES.items():
            if name in asked.only or not asked.only:
                show(bench)
    finally:
        bench.end(asked.details)
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
