# SPDX-License-Identifier: Apache-2.0
"""Products, transforms and a custom kernel in CuPy, with its own memory pool and the driver's."""
import random

import cupy

from workloads.common import Result, digest, timed_steps

SMOOTH = r"""
extern "C" __global__ void smooth(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 0.25f * x[(i + n - 1) % n] + 0.5f * x[i] + 0.25f * x[(i + 1) % n];
}
"""


def run():
    chance = random.Random(0)
    cupy.random.seed(0)
    smooth = cupy.RawKernel(SMOOTH, "smooth")
    own_pool = cupy.get_default_memory_pool()
    drivers_pool = cupy.cuda.MemoryAsyncPool()
    results = []

    def work():
        n = chance.randrange(2, 16) * 128
        a = cupy.random.standard_normal((n, n), dtype=cupy.float32)
        product = a @ a.T
        spectrum = cupy.abs(cupy.fft.rfft(product, axis=1)).astype(cupy.float32)
        line = spectrum.ravel()
        smoothed = cupy.empty_like(line)
        smooth(((line.size + 255) // 256,), (256,), (line, smoothed, cupy.int32(line.size)))
        results.append(cupy.sort(smoothed)[:: max(1, line.size // 1000)].get().tobytes())

    def step():
        with cupy.cuda.using_allocator(own_pool.malloc):
            work()
        with cupy.cuda.using_allocator(drivers_pool.malloc):
            work()

    times = timed_steps(step, cupy.cuda.Device().synchronize, warm_up=20, steps=100)
    return Result(f"cupy {cupy.__version__}", digest(results), times)
