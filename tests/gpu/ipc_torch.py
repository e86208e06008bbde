# SPDX-License-Identifier: Apache-2.0
"""Passes tensors of one process to another.

    ipc_torch.py tensors|uncached|all_reduce

`tensors` uses torch.multiprocessing. `uncached` uses IPC handles of memory that PyTorch allocates
without its cache, which torch.multiprocessing refuses. `all_reduce` uses NCCL, if there are two
cards.
"""
import ctypes
import os
import sys

import torch
import torch.multiprocessing as multiprocessing

SIZES = (1, 1000, 100_000, 3_000_000, 50_000_000)
TIMEOUT = 120  # seconds


def add_one(tensors, answers):
    """The other process: checks what it received, and changes it in place."""
    for size in SIZES:
        tensor, kept = tensors.get(timeout=TIMEOUT)
        right = bool((tensor == torch.arange(size, device="cuda:0")).all())
        again = bool((kept == 7).all())
        tensor += 1
        torch.cuda.synchronize()
        answers.put((size, right, again))
        del tensor, kept


def tensors():
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    other = context.Process(target=add_one, args=(queue, answers))
    other.start()
    for size in SIZES:
        tensor = torch.arange(size, device="cuda:0")
        kept = torch.full((4096,), 7, device="cuda:0")
        queue.put((tensor, kept[1024:2048]))  # also a part of an allocation
        answer = answers.get(timeout=TIMEOUT)
        if answer != (size, True, True):
            sys.exit(f"the other process says {answer} of {size} integers")
        if not bool((tensor == torch.arange(1, size + 1, device="cuda:0")).all()):
            sys.exit(f"what the other process wrote is not here, of {size} integers")
        del tensor, kept
    other.join(TIMEOUT)
    if other.exitcode != 0:
        sys.exit(f"the other process ended with {other.exitcode}")
    print(f"tensors of {', '.join(map(str, SIZES))} integers: shared, changed there, seen here")


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Words:
    """Integers at an address, in the form that torch.as_tensor accepts."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "<i8", "data": (address, False), "version": 3}


def call(name, *arguments):
    answer = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if answer != 0:
        sys.exit(f"{name} answers {answer}")


def add_one_by_handle(handles, answers):
    torch.zeros(1, device="cuda:0")  # creates the context
    for size in SIZES:
        handle = IpcHandle.from_buffer_copy(handles.get(timeout=TIMEOUT))
        address = ctypes.c_uint64()
        call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(1))
        tensor = torch.as_tensor(Words(address.value, size), device="cuda:0")
        right = bool((tensor == torch.arange(size, device="cuda:0")).all())
        tensor += 1
        torch.cuda.synchronize()
        del tensor
        call("cuIpcCloseMemHandle", address)
        answers.put((size, right))


def uncached():
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    context = multiprocessing.get_context("spawn")
    handles, answers = context.Queue(), context.Queue()
    other = context.Process(target=add_one_by_handle, args=(handles, answers))
    other.start()
    for size in SIZES:
        tensor = torch.arange(size, device="cuda:0")
        torch.cuda.synchronize()
        handle = IpcHandle()
        call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(tensor.data_ptr()))
        handles.put(bytes(handle))
        answer = answers.get(timeout=TIMEOUT)
        if answer != (size, True):
            sys.exit(f"the other process says {answer} of {size} integers")
        if not bool((tensor == torch.arange(1, size + 1, device="cuda:0")).all()):
            sys.exit(f"what the other process wrote is not here, of {size} integers")
        del tensor
    other.join(TIMEOUT)
    if other.exitcode != 0:
        sys.exit(f"the other process ended with {other.exitcode}")
    print(f"uncached tensors of {', '.join(map(str, SIZES))} integers: opened by handle, changed there, seen here")


def reduce_on(rank, world, port):
    import torch.distributed as distributed

    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    for size in (1, 1000, 1_000_000, 64_000_000):
        tensor = torch.full((size,), float(rank + 1), device=f"cuda:{rank}")
        distributed.all_reduce(tensor)
        wanted = world * (world + 1) / 2
        if not bool((tensor == wanted).all()):
            raise SystemExit(f"rank {rank}: wrong sum of {size}")
    torch.cuda.synchronize()
    distributed.destroy_process_group()


def all_reduce():
    world = 2
    if torch.cuda.device_count() < world:
        print("skipped: there are no two cards")
        return
    multiprocessing.spawn(reduce_on, args=(world, 29_511), nprocs=world)
    print(f"all-reduce on {world} cards: right")


if __name__ == "__main__":
    {"tensors": tensors, "uncached": uncached, "all_reduce": all_reduce}[sys.argv[1]]()
