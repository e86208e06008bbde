# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on batches of random shapes, to exercise the allocator."""
import random

import torch

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle


class Network(torch.nn.Module):
    def __init__(self, width=512, layers=6):
        super().__init__()
        self.first = torch.nn.Conv1d(64, width, 3, padding=1)
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.LayerNorm(width),
                torch.nn.Linear(width, 4 * width),
                torch.nn.GELU(),
                torch.nn.Linear(4 * width, width),
            )
            for _ in range(layers)
        )
        self.last = torch.nn.Linear(width, 64)

    def forward(self, x):
        x = self.first(x).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return self.last(x)


def run():
    settle()
    chance = random.Random(0)
    model = Network().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator(device="cuda").manual_seed(0)
    losses = []

    def step():
        length = chance.randrange(128, 1024)
        x = torch.randn(16, 64, length, device="cuda", generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), x.transpose(1, 2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    times = timed_steps(step, torch.cuda.synchronize, warm_up=20, steps=8)
    results = [torch.stack(losses), *model.parameters()]
    return Result(f"torch {torch.__version__}", digest(bytes_of_all(results)), times)
