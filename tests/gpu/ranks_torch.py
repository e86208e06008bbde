# SPDX-License-Identifier: Apache-2.0
"""A job of one rank for each card, whose ranks wait for each other in every step.

    ranks_torch.py --mib N --steps N [--reduces SIZE …] [--port N]

Each rank holds N MiB. In a step it changes all of it and takes part in NCCL's all-reduces, in the
order of the sizes given. Rank 0 says "ready" once all ranks have their memory, and starts at the next
line of input. It then prints "done BEGAN ENDED MEDIAN", two moments in seconds and the median of the
steps in milliseconds, if every number is right; otherwise the job fails.
"""

import argparse
import statistics
import sys
import time

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

BLOCK = 256 << 20


def check(holds, what):
    if not bool(holds):
        raise SystemExit(f"wrong: {what}")


def work(rank, world, request, start):
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{request.port}",
                                   rank=rank, world_size=world)
    count = max(1, (request.mib << 20) // BLOCK)
    blocks = [torch.full((BLOCK // 4,), float(number + rank), device="cuda")
              for number in range(count)]
    sums = [torch.empty(size, device="cuda") for size in request.reduces]

    def step(number):
        for block in blocks:
            block += 1
        for tensor in sums:
            tensor.fill_(float(number * (rank + 1)))
            distributed.all_reduce(tensor)
        torch.cuda.synchronize()

    step(0)
    # The ranks meet on the host: a kernel that waited for the start would be work in flight, and
    # a job with work in flight cannot leave its cards.
    start.wait()
    if rank == 0:
        print("ready", flush=True)
        with open(0, encoding="utf-8", closefd=False) as orders:
            orders.readline()
    start.wait()
    began, times = time.time(), []
    for number in range(1, request.steps + 1):
        before = time.perf_counter()
        step(number)
        times.append((time.perf_counter() - before) * 1000)
        for tensor in sums:
            wanted = float(number * world * (world + 1) // 2)
            check((tensor == wanted).all(), f"rank {rank}, step {number}: a sum of {len(tensor)}")
    ended = time.time()
    for number, block in enumerate(blocks):
        wanted = float(number + rank + request.steps + 1)
        check((block == wanted).all(), f"rank {rank}: block {number}")
    start.wait()
    distributed.destroy_process_group()
    if rank == 0:
        print("done", began, ended, statistics.median(times), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--reduces", type=int, nargs="+", default=[1000, 4_000_000])
    parser.add_argument("--port", type=int, default=29_521)
    request = parser.parse_args()
    world = torch.cuda.device_count()
    # Rank 0 is this process, so that it has the input.
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(world)
    others = [context.Process(target=work, args=(rank, world, request, start))
              for rank in range(1, world)]
    for one in others:
        one.start()
    work(0, world, request, start)
    for one in others:
        one.join()
    if any(one.exitcode != 0 for one in others):
        sys.exit(1)


if __name__ == "__main__":
    main()
