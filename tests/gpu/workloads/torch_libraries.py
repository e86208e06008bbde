# SPDX-License-Identifier: Apache-2.0
"""cuBLAS, cuDNN, cuFFT, cuSOLVER and cuSPARSE, which allocate workspaces of their own."""
import torch

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle


def run():
    settle()
    generator = torch.Generator(device="cuda").manual_seed(0)
    convolution = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    results = []

    def step():
        x = torch.randn(8, 16, 96, 96, device="cuda", generator=generator)
        y = convolution(x)
        spectrum = torch.fft.rfft2(y).abs()
        square = spectrum[0, 0, :48, :48] @ spectrum[0, 1, :48, :48].T
        lower = torch.linalg.cholesky(square @ square.T / 1e6 + 48 * torch.eye(48, device="cuda"))
        solved = torch.linalg.solve_triangular(lower, square, upper=False)
        sparse = torch.eye(48, device="cuda").to_sparse_csr()
        results.append((sparse @ solved).sum(1).detach())

    times = timed_steps(step, torch.cuda.synchronize, warm_up=5, steps=50)
    return Result(f"torch {torch.__version__}", digest(bytes_of_all(results)), times)
