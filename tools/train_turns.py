# SPDX-License-Identifier: Apache-2.0
"""Runs several trainings at the same time, which take turns of one step.

    train_turns.py COMMAND...

So a machine that gets slower affects all of them alike, and their times differ by what their
settings cost. In each round of turns, another one goes first. Each COMMAND is one argument, in the
shell's syntax, and runs bench/workloads/frag_train.py. What the programs print is printed at the
end, in their order. A program that ends early no longer gets a turn.
"""
import itertools
import os
import shlex
import signal
import subprocess
import sys


class Training:
    def __init__(self, command):
        self.process = subprocess.Popen(
            shlex.split(command),
            env={**os.environ, "IN_TURNS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed = []

    def waits(self):
        """Returns True once it waits for its turn, and False once it has ended."""
        for line in self.process.stdout:
            if line == "READY\n":
                return True
            self.printed.append(line)
        return False

    def take_turn(self):
        """Lets it run until it waits again. Returns False if it has ended instead."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: its output says why
        return self.waits()


def take_turns(trainings):
    waiting = [one for one in trainings if one.waits()]
    for number in itertools.count():
        if not waiting:
            return
        first = number % len(waiting)
        ended = [one for one in waiting[first:] + waiting[:first] if not one.take_turn()]
        waiting = [one for one in waiting if one not in ended]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    trainings = []
    try:
        for command in sys.argv[1:]:
            trainings.append(Training(command))
        take_turns(trainings)
        for one in trainings:
            print("".join(one.printed), end="")
    finally:
        for one in trainings:
            one.process.kill()
            one.process.wait()


if __name__ == "__main__":
    main()
