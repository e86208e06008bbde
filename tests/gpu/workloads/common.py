# SPDX-License-Identifier: Apache-2.0
"""What the workloads have in common: a result is a hash of every byte that was computed, and the
times of the steps."""
import dataclasses
import hashlib
import time


@dataclasses.dataclass
class Result:
    version: str
    hash: str
    step_ms: list


def digest(pieces):
    """Of an iterable of bytes; the order counts."""
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return sha.hexdigest()


def timed_steps(step, synchronize, warm_up, steps):
    """Runs the step and returns the times of the later ones, in ms, each until the card is done."""
    times = []
    for number in range(warm_up + steps):
        began = time.perf_counter()
        step()
        synchronize()
        if number >= warm_up:
            times.append((time.perf_counter() - began) * 1e3)
    return times
