# SPDX-License-Identifier: Apache-2.0
"""Shared by the workloads: a result is the step times and a hash of every byte computed."""
import dataclasses
import hashlib
import time


@dataclasses.dataclass
class Result:
    version: str
    hash: str
    step_ms: list


def digest(pieces):
    """Returns the hash of an iterable of bytes; the order matters."""
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return sha.hexdigest()


def timed_steps(step, synchronize, warm_up, steps):
    """Runs the step, and returns the times in ms of the later ones, each until the card is idle."""
    times = []
    for number in range(warm_up + steps):
        began = time.perf_counter()
        step()
        synchronize()
        if number >= warm_up:
            times.append((time.perf_counter() - began) * 1e3)
    return times
