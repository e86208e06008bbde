# SPDX-License-Identifier: Apache-2.0
"""Captures a training step as a graph and replays it between steps that allocate freely."""
import random

import torch

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle


def run():
    settle()
    chance = random.Random(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = torch.Generator(device="cuda").manual_seed(0)
    given = torch.zeros(64, 256, device="cuda")
    wanted = torch.zeros(64, 256, device="cuda")

    def train():
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(model(given), wanted)
        loss.backward()
        optimizer.step()
        return loss

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # as captures require: lazy initialization happens before
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train()
    losses = []

    def step():
        given.copy_(torch.randn(64, 256, device="cuda", generator=generator))
        wanted.copy_(given.roll(1, dims=1))
        scratch = [torch.full((chance.randrange(1, 1 << 20),), float(i), device="cuda") for i in range(8)]
        graph.replay()
        losses.append(loss.detach().clone() + sum(one[-1] for one in scratch))

    times = timed_steps(step, torch.cuda.synchronize, warm_up=10, steps=150)
    results = [torch.stack(losses), *model.parameters()]
    return Result(f"torch {torch.__version__}", digest(bytes_of_all(results)), times)
