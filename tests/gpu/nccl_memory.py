# SPDX-License-Identifier: Apache-2.0
"""NCCL on memory that it maps into the other rank, on two cards.

graph: collectives in CUDA graphs, whose buffers NCCL may register.
registered: PyTorch's memory pool, registered as user buffers.
own: a pool of ncclMemAlloc, registered as user buffers.
window: the same, registered as a symmetric window.
symmetric: PyTorch's symmetric memory, with its own kernels.

Each repeats its collectives while the process allocates and frees memory beside them. Multicast is
left out.
"""
import hashlib
import os

os.environ.update(TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NCCL_NVLS_ENABLE="0", NCCL_GRAPH_REGISTER="1")

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

WORLD = 2
ELEMENTS = 16 << 20
MIB = 1 << 20


def digest(tensor):
    torch.cuda.synchronize()
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16]


def fill(tensor, rank):
    numbers = torch.arange(tensor.numel(), device=tensor.device, dtype=torch.float32)
    tensor.copy_(numbers % 1000 * (rank + 1))
    torch.cuda.synchronize()
    dist.barrier()


def churn():
    """Leaves holes in PyTorch's memory, and gives some of it back to the driver."""
    kept = [torch.empty(mib * MIB, dtype=torch.uint8, device="cuda") for mib in (3, 70, 5, 130, 9)]
    del kept[1], kept[2]
    torch.cuda.empty_cache()
    return kept


def replay(tensor, rank):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        twice = tensor * 2
        dist.all_reduce(twice)
        dist.all_reduce(tensor)
        tensor.add_(twice).mul_(0.125)
    fill(tensor, rank)
    for _ in range(6):
        graph.replay()
        kept = churn()
    del kept
    return digest(tensor)


def graph(rank):
    return [replay(torch.empty(ELEMENTS, device="cuda"), rank)]


def backend():
    return dist.group.WORLD._get_backend(torch.device("cuda"))


def reduce_in(pool, rank, **how):
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.empty(ELEMENTS, device="cuda")
    kept = churn()
    backend().register_mem_pool(pool, **how)
    for _ in range(5):
        fill(tensor, rank)
        dist.all_reduce(tensor)
        kept = churn()
    del kept
    results = [digest(tensor), replay(tensor, rank)]
    backend().deregister_mem_pool(pool)
    fill(tensor, rank)
    dist.all_reduce(tensor)
    return results + [digest(tensor)]


def registered(rank):
    return reduce_in(torch.cuda.MemPool(), rank)


def own(rank):
    return reduce_in(torch.cuda.MemPool(backend().mem_allocator), rank)


def window(rank):
    try:
        return reduce_in(torch.cuda.MemPool(backend().mem_allocator), rank, symm=True)
    except TypeError:
        return None


def symmetric(rank):
    import torch.distributed._symmetric_memory as symmetric_memory

    tensor = symmetric_memory.empty(ELEMENTS, dtype=torch.float32, device=f"cuda:{rank}")
    handle = symmetric_memory.rendezvous(tensor, dist.group.WORLD.group_name)
    results = []
    for operation in ("one_shot_all_reduce", "two_shot_all_reduce_"):
        fill(tensor, rank)
        kept = churn()
        reduced = getattr(torch.ops.symm_mem, operation)(tensor, "sum", dist.group.WORLD.group_name)
        results.append(digest(reduced))
        dist.barrier()
    del kept
    fill(tensor, rank)
    results.append(digest(handle.get_buffer(1 - rank, (ELEMENTS,), torch.float32)))
    dist.barrier()
    return results


def run(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29512", rank=rank, world_size=WORLD,
        device_id=torch.device("cuda", rank))
    dist.all_reduce(torch.ones(1, device="cuda"))
    for kind in (graph, registered, own, window, symmetric):
        results = kind(rank) or ["not in this PyTorch"]
        for turn in range(WORLD):
            if turn == rank:
                print(f"{kind.__name__}, rank {rank}: {' '.join(results)}", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < WORLD:
        print("skipped: there are no two cards")
    else:
        multiprocessing.spawn(run, nprocs=WORLD)
