# SPDX-License-Identifier: Apache-2.0
"""torch.compile: generated Triton kernels, and graphs where it chooses them."""
import torch

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle


def run():
    settle()
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048), torch.nn.Linear(2048, 512)
    ).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    generator = torch.Generator(device="cuda").manual_seed(0)
    results = []

    def step():
        x = torch.randn(128, 512, device="cuda", generator=generator)
        with torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            results.append(compiled(x).sum(1).clone())

    times = timed_steps(step, torch.cuda.synchronize, warm_up=10, steps=200)
    return Result(f"torch {torch.__version__}", digest(bytes_of_all(results)), times)
