#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs that tools/node_figures.py runs side by side on one card.

    node_programs.py holder
    node_programs.py training --mib N --steps N

A holder reads a command per line: "take BYTES" answers "took MILLISECONDS" once all of it is
allocated and written, "free" frees it. While it holds memory and no command waits, it writes to
it, and reports each round with "step". The training is PyTorch's; it answers "ready", starts at
the next line of input, and prints when it began and ended, and its last loss.
"""

import argparse
import ctypes
import select
import sys
import time


def say(*words):
    print(*words, flush=True)


class Card:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.must("cuInit", 0)
        self.must("cuDeviceGet", ctypes.byref(device), 0)
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.must("cuCtxSetCurrent", context)
        self.block, self.size = None, 0

    def must(self, name, *arguments):
        answer = getattr(self.driver, name)(*arguments)
        if answer != 0:
            sys.exit(f"{name} answers {answer}")

    def take(self, size):
        block = ctypes.c_uint64()
        self.must("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
        self.block, self.size = block, size
        self.write()

    def write(self):
        self.must("cuMemsetD8_v2", self.block, ctypes.c_ubyte(1), ctypes.c_size_t(self.size))
        self.must("cuCtxSynchronize")

    def free(self):
        self.must("cuMemFree_v2", self.block)
        self.block = None


def hold(_):
    card = Card()
    say("ready")
    while True:
        if card.block is not None and not select.select([sys.stdin], [], [], 0)[0]:
            card.write()
            say("step")
            continue
        words = sys.stdin.readline().split()
        if not words:
            return
        if words[0] == "take":
            began = time.perf_counter()
            card.take(int(words[1]))
            say("took", (time.perf_counter() - began) * 1000)
        elif words[0] == "free":
            card.free()
            say("freed")


def train(arguments):
    import torch

    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    # A square layer of `width` has weights, gradients and two moments of 4 bytes a number; a tenth
    # is left for activations and workspaces.
    width = 8192
    layers = max(1, int(arguments.mib * 0.9) // (width * width * 16 >> 20))
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, device="cuda")
                                  for _ in range(layers)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    batch = torch.randn(2048, width, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    say("ready")
    sys.stdin.readline()
    began = time.monotonic()
    for _ in range(arguments.steps):
        loss = step()
    say("trained", began, time.monotonic(), repr(loss))


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    kinds = words.add_subparsers(required=True)
    kinds.add_parser("holder").set_defaults(run=hold)
    training = kinds.add_parser("training")
    training.add_argument("--mib", type=int, required=True)
    training.add_argument("--steps", type=int, required=True)
    training.set_defaults(run=train)
    arguments = words.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
