# SPDX-License-Identifier: Apache-2.0
"""Trains a few steps and prints a digest of the weights. With `profile`, PyTorch's profiler, which
uses CUPTI, watches the last steps, and each kernel that it has seen is printed with its count.
"""
import collections
import hashlib
import sys

import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(64, 512, device="cuda")


def step(rows):
    optimizer.zero_grad()
    (model(data[:rows]) - data[:rows]).square().mean().backward()
    optimizer.step()


for rows in (16, 32, 64):
    step(rows)
torch.cuda.synchronize()
if "profile" in sys.argv[1:]:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for rows in (48, 64):
            step(rows)
        torch.cuda.synchronize()
    kernels = collections.Counter(
        event.name for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.name.startswith("Mem"))
    if not kernels:
        sys.exit("the profiler saw no kernel")
    for name, count in sorted(kernels.items()):
        print(count, name[:120])
weights = b"".join(one.detach().cpu().numpy().tobytes() for one in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
