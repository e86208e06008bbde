#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what programs that share a card's memory under cuvmmd get, and when.

    tools/node_figures.py BUILD [--details FILE] [--rounds 100] [--sim]

- two trainings that each need 60% of the card, in turns, compared with one after the other:
  PyTorch's if it is installed, else the example take_turns,
- how long a guarantee takes to be held while another program has borrowed all of it,
- how long a lease takes to grow, and what an allocation within it costs.

Prints a line per figure with its goal, and writes all of them as JSON. Takes two minutes at most.
Exits with 1 if a program fails or a goal is missed. --sim tries out the tool on a simulated card,
with less memory; goals are then printed but not judged.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import select
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import card_bench  # noqa: E402
import node  # noqa: E402  (bench/node.py speaks the service's protocol)

MIB = 1 << 20
GIB = 1 << 30
ROUNDS_TAKE_AT_MOST = 80  # seconds


class Service(card_bench.Service):
    """cuvmmd with this much of the card's memory; all of a simulated card's."""

    def __init__(self, bench, capacity):
        self.card = 0 if bench.sim else card_bench.visible_card()
        self.log = tempfile.TemporaryFile("w+")
        super().__init__(bench, *([] if bench.sim else ["--capacity", f"{self.card}={capacity}"]),
                         log_level="info", log=self.log)

    def moves(self):
        """What the service has logged of memory that moved: when, in seconds, and the words."""
        self.log.seek(0)
        found = re.findall(r"^\S+ INFO (\d+) (\w+ gave .*)$", self.log.read(), re.MULTILINE)
        return [(int(at) / 1e6, words) for at, words in found]

    def run(self, name, command, *terms, **environment):
        return Program(self, name, command, terms, environment)

    def state(self):
        """The device's UUID, capacity, leased and foreign bytes."""
        observer = node.Connection(self.socket)
        observer.say(node.STATE_ASK, node.struct.pack("<H", 1))
        while True:
            kind, body = observer.hear()
            if kind == node.PLACE and body[16:21] == node.struct.pack("<BI", 0, self.card):
                observer.socket.close()
                return (body[:16], *node.struct.unpack_from("<QQQ", body, 21))


class Program:
    def __init__(self, service, name, command, terms, environment):
        bench = service.bench
        self.name = name
        self.buffer = b""
        self.process = subprocess.Popen(
            [str(bench.bin / "cuvmm"), "run", "--quiet", *bench.sim, "--node", "require",
             "--node-wait", "300s", "--name", name, *terms, "--", *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=dict(os.environ, VMM_NODE_SOCKET=service.socket, **environment))

    def say(self, words):
        self.process.stdin.write(words.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, word, seconds=60):
        """The next line that begins with this word, without it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            line, found, rest = self.buffer.partition(b"\n")
            if found:
                self.buffer = rest
                first, _, others = line.decode().partition(" ")
                if word in ("", first):
                    return others
            elif select.select([self.process.stdout], [], [], until - time.monotonic())[0]:
                some = os.read(self.process.stdout.fileno(), 65536)
                if not some:
                    break
                self.buffer += some
        sys.exit(f"{self.name} does not answer '{word}'")

    def forget(self):
        """Skips what it has said so far."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            os.read(self.process.stdout.fileno(), 65536)
        self.buffer = b""

    def end(self):
        self.process.stdin.close()
        if self.process.wait(timeout=120) != 0:
            sys.exit(f"{self.name} ends with {self.process.returncode}")


def python(*arguments):
    return [sys.executable, "-B", str(ROOT / "tools" / "node_programs.py"), *arguments]


def train_with_torch(service, names, mib):
    """When the first of them began, when the last one ended, and what they computed."""
    programs = [service.run(name, python("training", "--mib", str(mib), "--steps", "150"))
                for name in names]
    for one in programs:
        one.hear("ready", 120)
    for one in programs:
        one.say("go")
    told = [one.hear("trained", 120).split() for one in programs]
    for one in programs:
        one.end()
    return (min(float(one[0]) for one in told), max(float(one[1]) for one in told),
            [one[2] for one in told])


def train_without(service, names, mib):
    sim = bool(service.bench.sim)
    steps, rest = ("40", "30") if sim else ("250", "5")
    programs = [service.run(name, [str(service.bench.bin / "take_turns"), "--mib", str(mib),
                                   "--steps", steps, "--rest", rest]) for name in names]
    waiting = {one.process.stdout: one for one in programs}
    one = waiting[select.select(list(waiting), [], [])[0][0]]
    one.hear("")
    began = time.monotonic()
    for one in programs:
        one.end()
    return began, time.monotonic(), ["right"]


def show_trainings(bench):
    has_torch = importlib.util.find_spec("torch") is not None and not bench.sim
    train = train_with_torch if has_torch else train_without
    with Service(bench, "12G") as service:
        _, capacity, _, _ = service.state()
        mib = capacity * 6 // 10 // MIB
        alone = [train(service, [name], mib) for name in ("first", "second")]
        both = train(service, ["A", "B"], mib)
        moves = service.moves()
    for at, words in moves:
        print(f"  {at - moves[0][0]:6.2f} s: {words}", flush=True)
    name = "PyTorch" if has_torch else "take_turns"
    after = sum(ended - began for began, ended, _ in alone)
    bench.note(f"two trainings ({name}), each alone", after / 2, "s")
    ratio = (both[1] - both[0]) / after
    bench.note("the same in turns, x one after the other", ratio, "", "<= 1.10", ratio <= 1.10)
    results = {result for one in (*alone, both) for result in one[2]}
    bench.note("different results among the four", len(results), "", "1", len(results) == 1)


def show_guarantee(bench, rounds):
    guarantee = 256 * MIB if bench.sim else 10 * GIB
    times = []
    with Service(bench, "13G") as service:
        # Without a cache, what it frees can be lent again at once.
        asker = service.run("asker", python("holder"), "--guarantee", str(guarantee), VMM_CACHE="0")
        lender = service.run("lender", python("holder"))
        for one in (asker, lender):
            one.hear("ready")
        time.sleep(1.5)  # until the service has seen what their contexts use
        _, capacity, leased, foreign = service.state()
        borrowed = (capacity - leased - foreign) // (64 * MIB) * (64 * MIB) - 64 * MIB
        lender.say(f"take {borrowed}")
        lender.hear("took")
        until = time.monotonic() + ROUNDS_TAKE_AT_MOST
        for number in range(-2, rounds):  # the first two pin the host's memory
            asker.say(f"take {guarantee}")
            took = float(asker.hear("took"))
            if number >= 0:
                times.append(took)
            lender.forget()
            asker.say("free")
            asker.hear("freed")
            for _ in range(3):  # the first may have been under way
                lender.hear("step")
            if time.monotonic() > until:
                break
        asker.end()
        lender.end()
    times.sort()
    within = sum(one <= 1000 for one in times)
    shown = f"{guarantee / GIB:g} GiB"
    bench.note(f"guarantee of {shown}, all of it borrowed: median", statistics.median(times), "ms")
    bench.note(f"the worst of {len(times)}", times[-1], "ms")
    bench.note("held within 1 s, percent of the rounds", 100 * within / len(times), "%", "100",
               within == len(times))


def show_lease(bench):
    with Service(bench, "8G") as service:
        grown = node.grow(service.socket, service.state()[0], 5000)["median_us"]
    bench.note("lease grown, round trip in the service, median", grown, "us", "<= 50", grown <= 50)
    told = subprocess.run([str(bench.bin / "cuvmm_bench_lease"), "--benchmark_format=json",
                           "--benchmark_repetitions=9", "--benchmark_min_time=0.05"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    median = {one["run_name"]: one["real_time"] for one in json.loads(told)["benchmarks"]
              if one.get("aggregate_name") == "median"}
    more = median["inside_the_lease"] - median["without_service"]
    bench.note("allocation inside the lease, beyond one without the service", more, "ns", "<= 10",
               more <= 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--details")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--sim", action="store_true")
    asked = parser.parse_args()
    bench = card_bench.Bench(asked.build, "512M" if asked.sim else None)
    try:
        show_lease(bench)
        show_trainings(bench)
        show_guarantee(bench, asked.rounds)
    finally:
        bench.end(asked.details)
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
