# SPDX-License-Identifier: Apache-2.0
"""Several threads with their own streams, which pass tensors to each other with events."""
import threading

import torch

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle

THREADS = 4


def run():
    settle()
    sums = [torch.zeros(4, device="cuda") for _ in range(THREADS)]
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    torch.cuda.synchronize()

    def work(number, handed):
        with torch.cuda.stream(streams[number]):
            for round_ in range(10):
                x = torch.full((1 << (14 + (round_ + number) % 8),), float(number + 1), device="cuda")
                y = torch.cumsum(x, 0)
                sums[number] += torch.stack([y[-1], y[0], x.sum(), x.max()]).float()
            handed[number] = y
            events[number].record(streams[number])

    events = [torch.cuda.Event() for _ in range(THREADS)]

    def step():
        handed = [None] * THREADS
        threads = [threading.Thread(target=work, args=(i, handed)) for i in range(THREADS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for number in range(THREADS):
            taken = (number + 1) % THREADS
            streams[number].wait_event(events[taken])
            with torch.cuda.stream(streams[number]):
                sums[number] += handed[taken][-1]
                handed[taken].record_stream(streams[number])

    times = timed_steps(step, torch.cuda.synchronize, warm_up=5, steps=20)
    return Result(f"torch {torch.__version__}", digest(bytes_of_all(sums)), times)
