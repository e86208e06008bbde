# SPDX-License-Identifier: Apache-2.0
"""Shared by the workloads: a result is the rounds' times and a hash of every byte computed."""
import dataclasses
import hashlib
import statistics
import sys
import time


@dataclasses.dataclass
class Result:
    version: str
    hash: str
    rounds_ms: list


def digest(pieces):
    """Returns the hash of an iterable of bytes; the order matters."""
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return sha.hexdigest()


def time_of(step, synchronize):
    """Returns the time in ms of a step until the card is idle."""
    began = time.perf_counter()
    step()
    synchronize()
    return (time.perf_counter() - began) * 1e3


def timed_steps(step, synchronize, warm_up, steps):
    """Runs rounds of so many steps, and returns the median time in ms of a step for each round.

    The runner writes a line to start each round, so that processes in different modes take turns,
    and then the line "end". A step before each round is not timed: caches are cold then.
    """
    for _ in range(warm_up):
        step()
    synchronize()
    print("READY", flush=True)
    rounds = []
    for line in sys.stdin:
        if line == "end\n":
            break
        time_of(step, synchronize)
        rounds.append(statistics.median(time_of(step, synchronize) for _ in range(steps)))
        print("ROUND", flush=True)
    return rounds
