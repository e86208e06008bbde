# SPDX-License-Identifier: Apache-2.0
"""The bare driver through ctypes, without a framework. Also tests the runner without a card."""
import ctypes
import random

from workloads.common import Result, digest, timed_steps


def run():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        answer = getattr(cuda, name)(*arguments)
        if answer != 0:
            raise RuntimeError(f"{name} answered {answer}")

    context = ctypes.c_void_p()
    version = ctypes.c_int()
    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    chance = random.Random(0)
    pieces = []

    def step():
        size = chance.randrange(1, 64) * 4096
        first, second = ctypes.c_uint64(), ctypes.c_uint64()
        host = (ctypes.c_uint8 * size)()
        call("cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(size))
        call("cuMemAllocAsync", ctypes.byref(second), ctypes.c_size_t(size), None)
        call("cuMemsetD32_v2", first, chance.randrange(2**31), ctypes.c_size_t(size // 4))
        call("cuMemcpyDtoDAsync_v2", second, first, ctypes.c_size_t(size), None)
        call("cuMemcpyDtoH_v2", host, second, ctypes.c_size_t(size))
        call("cuMemFreeAsync", second, None)
        call("cuMemFree_v2", first)
        pieces.append(bytes(host))

    times = timed_steps(step, lambda: call("cuCtxSynchronize"), warm_up=5, steps=50)
    return Result(f"driver {version.value}", digest(pieces), times)
