#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs of one rank for each card under cuvmmd, whose ranks wait for each other with NCCL.

    tools/rank_figures.py BUILD [--details FILE]

A job beside a program that keeps the first card busy, under each policy for device time, and natively;
then two jobs that need 60% of every card each, with their collectives in opposite orders, so that
neither can go on unless all its ranks have their memory; then a job that `cuvmm pause` and `resume`
stop and continue while it works. Prints a line per figure and writes them as
JSON. Exits with 1 if a job fails, hangs or computes something else.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time

import card_bench

RANKS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "gpu" / "ranks_torch.py"
A_JOB_TAKES_AT_MOST = 150  # seconds
CAPACITY_GIB = 16


class Job:
    """A process with all ranks of a job as its children. Native without a service or `options`."""

    def __init__(self, bench, name, *arguments, service=None, terms=(), options=()):
        command = [sys.executable, "-B", str(RANKS), *map(str, arguments)]
        if service:
            command = [str(bench.bin / "cuvmm"), "run", "--quiet", "--node", "require",
                       "--node-wait", "300s", "--name", name, "--group", name, *terms, "--",
                       *command]
        elif options:
            command = [str(bench.bin / "cuvmm"), "run", "--quiet", *options, "--", *command]
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
            env=dict(os.environ, VMM_NODE_SOCKET=service.socket if service else ""))
        self.watchdog = threading.Timer(A_JOB_TAKES_AT_MOST, self.kill)
        self.watchdog.start()

    def kill(self):
        print(f"{self.name} hangs", flush=True)
        os.killpg(self.process.pid, signal.SIGKILL)

    def get_ready(self):
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"{self.name} does not get ready")

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """When it began and ended, and its median step in milliseconds."""
        said = self.process.stdout.readline().split()
        status = self.process.wait()
        self.watchdog.cancel()
        if status != 0 or said[:1] != ["done"]:
            sys.exit(f"{self.name} fails: {status}, {said}")
        return [float(word) for word in said[1:]]


def steps_beside_a_busy_program(bench, service=None):
    job = Job(bench, "ranks", "--mib", 1024, "--steps", 200, service=service,
              terms=("--priority", "5"))
    job.get_ready()
    busy = [str(bench.bin / "busy"), "--json", "--kernel", "1ms", "--seconds", "60"]
    if service:
        busy = [str(bench.bin / "cuvmm"), "run", "--quiet", "--node", "require", "--name", "busy",
                "--", *busy]
    neighbour = subprocess.Popen(busy, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 start_new_session=True,
                                 env=dict(os.environ,
                                          VMM_NODE_SOCKET=service.socket if service else ""))
    time.sleep(3)  # it measures its kernel first
    job.go()
    step = job.end()[2]
    if neighbour.poll() is not None:
        sys.exit("the busy program has not lasted")
    os.killpg(neighbour.pid, signal.SIGKILL)  # not cuvmm run alone
    neighbour.wait()
    return step


def show_beside_a_busy_program(bench):
    alone = Job(bench, "ranks", "--mib", 1024, "--steps", 200)
    alone.get_ready()
    alone.go()
    step = alone.end()[2]
    bench.note("a step of the job alone, natively", step, "ms")
    bench.note("beside a busy program, natively, x alone", steps_beside_a_busy_program(bench) / step)
    for policy in ("share", "priority", "turns"):
        with card_bench.Service(bench, "--time", policy) as service:
            ratio = steps_beside_a_busy_program(bench, service) / step
        bench.note(f"beside a busy program, policy {policy}, x alone", ratio)


def show_two_jobs(bench):
    mib = CAPACITY_GIB * 1024 * 6 // 10
    cards = [word for card in range(bench.cards)
             for word in ("--capacity", f"{card}={CAPACITY_GIB}G")]
    orders = {"one": (1000, 4_000_000), "two": (4_000_000, 1000)}

    def run(names):
        with card_bench.Service(bench, *cards) as service:
            jobs = [Job(bench, name, "--mib", mib, "--steps", 400, "--port", 29_531 + index,
                        "--reduces", *orders[name], service=service)
                    for index, name in enumerate(names)]
            for job in jobs:
                job.get_ready()
            for job in jobs:
                job.go()
            spans = [job.end() for job in jobs]
        return max(span[1] for span in spans) - min(span[0] for span in spans)

    alone = run(["one"]) + run(["two"])
    together = run(["one", "two"])
    bench.note("two jobs of 60% of every card, one after the other", alone, "s")
    bench.note("both at once, in turns, x one after the other", together / alone)


def show_pauses_by_command(bench):
    job = Job(bench, "paused", "--mib", 1024, "--steps", 8000, options=("--control",))
    job.get_ready()
    job.go()
    tries, paused, held = 5, 0, []
    for _ in range(tries):
        time.sleep(0.3)
        answers = [subprocess.run([str(bench.bin / "cuvmm"), what, "--json", "--timeout", "20s",
                                   str(job.process.pid)], stdout=subprocess.PIPE, text=True, check=False)
                   for what in ("pause", "resume")]
        if any(answer.returncode != 0 for answer in answers):
            continue
        ranks = json.loads(answers[0].stdout)["processes"]
        paused += len(ranks) == bench.cards and all(rank["paused"] for rank in ranks)
        held += [rank["held_us"] / 1000 for rank in ranks]
    job.end()
    bench.note(f"pauses of all ranks by one command, of {tries}", paused)
    if held:
        bench.note("of that: a rank with 1 GiB stands still, median", statistics.median(held), "ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--details")
    request = parser.parse_args()
    bench = card_bench.Bench(request.build, None)
    bench.cards = len(card_bench.of_visible_cards("index"))
    show_beside_a_busy_program(bench)
    show_two_jobs(bench)
    show_pauses_by_command(bench)
    bench.end(request.details)


if __name__ == "__main__":
    main()
