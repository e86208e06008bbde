# SPDX-License-Identifier: Apache-2.0
"""Triton: kernels with sizes, block sizes and constants that the seed chooses. PyTorch allocates."""
import os
import random
import tempfile

import torch
import triton
import triton.language as tl

from torch_support import Captured, TorchWork, loader


@triton.jit
def mix(x, y, to, n, SCALE: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, mask=inside), tl.load(y + at, mask=inside)
    if KIND == 0:
        c = a * SCALE + b
    elif KIND == 1:
        c = tl.exp(-tl.abs(a)) - SCALE * b
    elif KIND == 2:
        c = tl.maximum(a, b) * tl.sigmoid(a * SCALE)
    else:
        c = tl.where(a > b, tl.sqrt(tl.abs(a) + SCALE), b * b)
    tl.store(to + at, c, mask=inside)


@triton.jit
def softmax(to, values, n, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    x = tl.load(values + row * n + columns, mask=columns < n, other=float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(to + row * n + columns, x / tl.sum(x, axis=0), mask=columns < n)


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


class Kernels:
    """One choice of sizes and constants, and a function of two matrices that runs all three kernels."""

    def __init__(self, work, chance):
        self.n = chance.choice((64, 128) if work.device == "cpu" else (128, 256, 512))
        self.scale, self.kind = chance.randrange(1, 64) / 16, chance.randrange(4)
        self.block, self.warps = chance.choice((128, 256, 512)), chance.choice((1, 2, 4, 8))
        self.tile, self.depth = chance.choice((16, 32, 64)), chance.choice((16, 32))
        self.name = f"n {self.n}, kind {self.kind}, scale {self.scale}, block {self.block}, " \
                    f"{self.warps} warps, tile {self.tile} x {self.depth}"

    def __call__(self, x, y):
        n = self.n
        mixed, product, shares = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
        mix[(triton.cdiv(n * n, self.block),)](x, y, mixed, n * n, SCALE=self.scale, KIND=self.kind,
                                               BLOCK=self.block, num_warps=self.warps)
        halves = mixed.half(), y.half()
        multiply[(n // self.tile, n // self.tile)](*halves, product, n, TILE=self.tile, DEPTH=self.depth)
        softmax[(n,)](shares, product, n, WIDTH=triton.next_power_of_2(n))
        return mixed, product, shares


def matrices(work, kernels, count=2):
    return [torch.randn(kernels.n, kernels.n, device=work.device) for _ in range(count)]


def plain(work, chance):
    for _ in range(6):
        kernels = Kernels(work, chance)
        for number in range(3):
            work.add(f"{kernels.name}, call {number}", kernels(*matrices(work, kernels)))
            work.held.churn()


def graphs(work, chance):
    for _ in range(4):
        kernels = Kernels(work, chance)
        given = matrices(work, kernels)
        captured = Captured(work, lambda kernels=kernels, given=given: kernels(*given))
        for number in range(3):
            for one, new in zip(given, matrices(work, kernels)):
                one.copy_(new)
            work.held.churn()
            captured.replay()
            work.synchronize()
            work.add(f"{kernels.name}, replay {number}", [one.clone() for one in captured.result])


def compiled(work, chance):
    """Compiles every kernel anew, in a cache that nothing else uses."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for number in range(8):
            kernels = Kernels(work, chance)
            work.add(f"compiled {kernels.name}, {number}", kernels(*matrices(work, kernels)))
            work.held.churn()


def loaders(work, chance):
    kernels = Kernels(work, chance)
    for number, rows in enumerate(loader(work, kernels.n * 6, kernels.n, kernels.n)):
        x = rows.to(work.device, non_blocking=True)
        work.add(f"{kernels.name}, batch {number}", kernels(x, x.flip(0).contiguous()))
        work.held.churn()


def generation(work, chance):
    """Each step appends its result, so that every step allocates more."""
    kernels = Kernels(work, chance)
    state, weight = matrices(work, kernels)
    history = state[:0]
    for step in range(24):
        _, product, shares = kernels(state, weight)
        history = torch.cat((history, shares))
        state = (product + history[step * 3 % history.shape[0]]) / (1 + product.abs().max())
        if step % 6 == 5:
            work.add(f"{kernels.name}, step {step}", [state, shares])
            work.held.churn()
    work.add("history", history[:: max(1, history.shape[0] // 64)])


USES = {"plain": plain, "graphs": graphs, "compile": compiled, "loaders": loaders, "generation": generation}


def run(asked, outputs):
    work = TorchWork(asked, outputs)
    USES[asked.use](work, random.Random(asked.seed))
    return work.finish(f"triton {triton.__version__}, torch {torch.__version__}")
