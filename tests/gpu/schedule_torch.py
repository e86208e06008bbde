# SPDX-License-Identifier: Apache-2.0
"""What scheduling costs a PyTorch program that is the only client.

    VMM_CLIENT=alone cuvmm run --schedule fifo -- python3 schedule_torch.py [ROUNDS]

Runs the same training steps with scheduling off and under each policy, alternating in one process,
so that all see the same card.
"""
import ctypes
import json
import os
import statistics
import sys
import time

import torch

POLICIES = {"off": 0, "fifo": 1, "priority": 3, "fair": 4}
STEPS_OF_A_TURN = 4  # the first is not counted: it follows a change
LENGTHS = (128, 384, 640, 1024)


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x):
        return self.layer(x)


def set_policy(library, policy):
    answer = library.cuvmm_set_policy(ctypes.c_int32(policy), None)
    if answer != 0:
        sys.exit(f"cuvmm_set_policy({policy}) answers {answer}")


def operations(library):
    figures = (ctypes.c_uint64 * 16)()
    answer = library.cuvmm_client_get_figures(ctypes.c_uint32(1), figures, None)
    return figures[0] if answer == 0 else 0


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    library = ctypes.CDLL(os.environ.get("CUVMM_LIBRARY", "build/lib/libcuvmm.so"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer(1024, 16) for _ in range(8))).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs = {n: torch.randn(16, n, 1024, device="cuda", dtype=torch.bfloat16) for n in LENGTHS}

    def step(length):
        began = time.perf_counter()
        loss = model(inputs[length]).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) * 1e3

    set_policy(library, POLICIES["off"])
    for length in LENGTHS * 5:
        step(length)
    times = {name: {length: [] for length in LENGTHS} for name in POLICIES}
    scheduled = {}
    for turn in range(rounds):
        for name in sorted(POLICIES, key=lambda one: (turn + POLICIES[one]) % 5):
            set_policy(library, POLICIES[name])
            before = operations(library)
            for length in LENGTHS:
                taken = [step(length) for _ in range(STEPS_OF_A_TURN)]
                times[name][length] += taken[1:]
            scheduled[name] = scheduled.get(name, 0) + operations(library) - before
    set_policy(library, POLICIES["off"])
    figures = {}
    for name in POLICIES:
        # One round of all lengths, each by its median.
        figures[f"torch_{name}_ms"] = round(sum(statistics.median(t) for t in times[name].values()), 4)
    for name in POLICIES:
        if name == "off":
            continue
        if scheduled[name] == 0:
            sys.exit(f"nothing was scheduled under {name}")
        figures[f"torch_{name}_over"] = round(figures[f"torch_{name}_ms"] / figures["torch_off_ms"] - 1, 5)
    if scheduled["off"] != 0:
        sys.exit("something was scheduled while scheduling was off")
    print(f"four training steps: {figures['torch_off_ms']:.2f} ms unscheduled; as one client "
          + ", ".join(f"{n} {figures[f'torch_{n}_over']:+.2%}" for n in POLICIES if n != "off"))
    print("FIGURES " + json.dumps(figures))


if __name__ == "__main__":
    main()
