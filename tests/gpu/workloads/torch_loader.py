# SPDX-License-Identifier: Apache-2.0
"""Batches from worker processes, forked under cuvmm, through pinned memory."""
import torch

from workloads.common import Result, digest, timed_steps
from workloads.torch_common import bytes_of_all, settle


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.full((256,), float(index % 97)), index % 10


def run():
    settle()
    model = torch.nn.Linear(256, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=64, num_workers=2, pin_memory=True)
    losses = []

    def epoch():
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(
                model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

    times = timed_steps(epoch, torch.cuda.synchronize, warm_up=1, steps=2)
    results = [torch.stack(losses), *model.parameters()]
    return Result(f"torch {torch.__version__}", digest(bytes_of_all(results)), times)
