# SPDX-License-Identifier: Apache-2.0
"""Opens another process's 1 GiB of virtual memory by its IPC handle, which the driver alone refuses:
expandable segments, and chunks that were created without a handle type. Prints how long the request
for the handle takes, and how long the other process takes from the open to its first read.

    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ipc_expandable.py
"""
import ctypes
import subprocess
import sys
import time

import torch

SIZE = 1 << 30
ROUNDS = 5
PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


driver = ctypes.CDLL("libcuda.so.1")
driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
driver.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]


def must_work(error):
    if error != 0:
        sys.exit(f"a driver call answered {error}")


def opens(text):
    torch.zeros(1, device="cuda")
    handle = Handle.from_buffer_copy(bytes.fromhex(text))
    for _ in range(ROUNDS):
        began = time.perf_counter()
        address = ctypes.c_uint64()
        must_work(driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, PEER_ACCESS))
        word = ctypes.c_uint32()
        must_work(driver.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(address.value + SIZE - 4),
                                         ctypes.c_size_t(4)))
        took = time.perf_counter() - began
        if word.value != 0x5A5A5A5A:
            sys.exit("the memory has other contents")
        must_work(driver.cuIpcCloseMemHandle(address))
        print(f"open to first read of 1 GiB: {took * 1000:.2f} ms", flush=True)


def lends(address, what):
    handle = Handle()
    began = time.perf_counter()
    must_work(driver.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address)))
    took = time.perf_counter() - began
    print(f"IPC handle of 1 GiB of {what}: {took * 1000:.2f} ms", flush=True)
    subprocess.run([sys.executable, "-B", __file__, bytes(handle.bytes).hex()], check=True, timeout=120)


class Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location", ctypes.c_int), ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location_type", ctypes.c_int), ("location", ctypes.c_int), ("flags", ctypes.c_int)]


def chunks_without_a_handle_type(chunk_size):
    """1 GiB of them, side by side, filled."""
    size, none = ctypes.c_size_t, ctypes.c_uint64(0)
    address = ctypes.c_uint64()
    must_work(driver.cuMemAddressReserve(ctypes.byref(address), size(SIZE), size(0), none, none))
    pinned_on_device = Properties(type=1, handle_types=0, location_type=1, location=0)
    for offset in range(0, SIZE, chunk_size):
        chunk = ctypes.c_uint64()
        must_work(driver.cuMemCreate(ctypes.byref(chunk), size(chunk_size),
                                     ctypes.byref(pinned_on_device), none))
        must_work(driver.cuMemMap(ctypes.c_uint64(address.value + offset), size(chunk_size), size(0),
                                  chunk, none))
        must_work(driver.cuMemRelease(chunk))
    may_write = Access(location_type=1, location=0, flags=3)
    must_work(driver.cuMemSetAccess(address, size(SIZE), ctypes.byref(may_write), size(1)))
    must_work(driver.cuMemsetD8_v2(address, ctypes.c_ubyte(0x5A), size(SIZE)))
    torch.cuda.synchronize()
    return address.value


if len(sys.argv) > 1:
    opens(sys.argv[1])
else:
    tensor = torch.full((SIZE,), 0x5A, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    lends(tensor.data_ptr(), "expandable segments")
    for chunk_size in (2 << 20, 64 << 20):
        lends(chunks_without_a_handle_type(chunk_size),
              f"chunks of {chunk_size >> 20} MiB without a handle type")
