# SPDX-License-Identifier: Apache-2.0
"""A matrix product and a softmax, both written in Triton."""
import random

import torch
import triton
import triton.language as tl

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle


@triton.jit
def multiply(a, b, c, n, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    sums = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, n, DEPTH):
        inner = start + tl.arange(0, DEPTH)
        left = tl.load(a + rows[:, None] * n + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        sums += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def softmax(to, values, n, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    x = tl.load(values + row * n + columns, mask=columns < n, other=float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(to + row * n + columns, x / tl.sum(x, axis=0), mask=columns < n)


def run():
    settle()
    chance = random.Random(0)
    generator = torch.Generator(device="cuda").manual_seed(0)
    results = []

    def step():
        n = chance.choice((256, 512, 1024, 2048))
        a, b = (
            torch.randn(n, n, device="cuda", generator=generator, dtype=torch.float32).half()
            for _ in range(2)
        )
        product = torch.empty(n, n, device="cuda", dtype=torch.float32)
        shares = torch.empty_like(product)
        multiply[(n // 64, n // 64)](a, b, product, n, TILE=64, DEPTH=32)
        softmax[(n,)](shares, product, n, WIDTH=triton.next_power_of_2(n))
        results.append(shares.double().sum().reshape(1))
        results.append(product[::64, ::64].clone().flatten())

    times = timed_steps(step, torch.cuda.synchronize, warm_up=20, steps=200)
    return Result(f"triton {triton.__version__}", digest(bytes_of_all(results)), times)
