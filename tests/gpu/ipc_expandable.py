# SPDX-License-Identifier: Apache-2.0
"""Opens another process's 1 GiB of expandable segments by its IPC handle, which the driver alone
refuses. Prints how long the other process takes from the open to its first read.

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


def lends():
    tensor = torch.full((SIZE,), 0x5A, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    handle = Handle()
    must_work(driver.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(tensor.data_ptr())))
    subprocess.run([sys.executable, "-B", __file__, bytes(handle.bytes).hex()], check=True, timeout=120)


if len(sys.argv) > 1:
    opens(sys.argv[1])
else:
    lends()
