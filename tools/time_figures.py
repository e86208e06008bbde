#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how two programs share a card under cuvmmd, compared with sharing it natively.

    tools/time_figures.py BUILD [--details FILE] [--seconds N] [--sim]

Prints a line per figure with its goal, and writes all of them as JSON. Exits with 1 if a program
fails or a goal is missed. --sim tries out the tool on a simulated card, whose times mean nothing:
goals are then printed but not judged.
"""
import argparse
import json
import os
import subprocess
import sys

import card_bench


class Bench(card_bench.Bench):
    def __init__(self, build, seconds, sim):
        super().__init__(build, "1G" if sim else None)
        self.seconds = seconds

    def service(self, policy):
        return card_bench.Service(self, "--time", policy)

    # `programs`: (arguments of busy, arguments of cuvmm run) for each. Native without a service.
    def run(self, programs, service=None):
        running = []
        for index, (arguments, terms) in enumerate(programs):
            command = [str(self.bin / "busy"), "--json", "--wait", "--warm-up", f"{self.seconds / 5}s",
                       "--seconds", str(self.seconds), *arguments]
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


def show_priority(bench):
    front = (["--kernel", "30us", "--every", "10ms", "--burst", "20"], ["--priority", "5"])
    back = (["--kernel", "50us"], ["--priority", "0"])
    alone = bench.run([front])[0]
    native = bench.run([front, back])
    with bench.service("priority") as service:
        both = bench.run([front, back], service)
    bench.note("foreground p99 beside the background, natively, x alone",
               native[0]["p99_us"] / alone["p99_us"])
    slower = both[0]["p99_us"] / alone["p99_us"]
    bench.note("the same under priority", slower, "", "<= 1.3", slower <= 1.3)
    left = both[1]["seconds"] - both[0]["device_seconds"]
    kept = both[1]["device_seconds"] / left
    bench.note("background, of what the foreground leaves", kept, "", ">= 0.85", kept >= 0.85)


def show_shares(bench):
    for form, name in (([], "kernels"), (["--graph"], "graphs")):
        for percent in (10, 25, 50):
            less = (["--kernel", "2ms", *form], ["--weight", str(percent)])
            more = (["--kernel", "50us", *form], ["--weight", str(100 - percent)])
            with bench.service("share") as service:
                both = bench.run([less, more], service)
            times = [one["device_seconds"] for one in both]
            share = 100 * times[0] / sum(times)
            bench.note(f"share {percent}:{100 - percent}, {name} of 2 ms against 50 us", share, "",
                       f"{percent} +- 3", abs(share - percent) <= 3)


def show_cap(bench):
    with bench.service("off") as service:
        capped = bench.run([(["--kernel", "2ms"], ["--cap", "30"])], service)[0]
    percent = 100 * capped["device_seconds"] / capped["seconds"]
    bench.note("cap 30%, alone", percent, "", "30 +- 2", abs(percent - 30) <= 2)


def show_alone(bench):
    native = bench.run([(["--kernel", "50us"], [])])[0]
    with bench.service("share") as service:
        served = bench.run([(["--kernel", "50us"], [])], service)[0]
    kept = served["kernels"] / served["seconds"] / (native["kernels"] / native["seconds"])
    bench.note("one program alone under the service, x native", kept, "", ">= 0.98", kept >= 0.98)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--details")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sim", action="store_true")
    asked = parser.parse_args()
    bench = Bench(asked.build, asked.seconds, asked.sim)
    try:
        for show in (show_priority, show_shares, show_cap, show_alone):
            show(bench)
    finally:
        bench.end(asked.details)
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
