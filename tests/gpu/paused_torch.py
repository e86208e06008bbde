# SPDX-License-Identifier: Apache-2.0
"""Holds device memory while it is paused and resumed, and checks it when asked.

    paused_torch.py GIB

Prints `ready`. Then, for every line on standard input: runs a step and a captured graph over the
memory, and prints `right` or `wrong`. Ends at the end of input.
"""
import sys

import torch

BLOCK = 128 << 20


def contents(blocks):
    return [int(block.view(torch.int64).sum()) for block in blocks]


def main(gib):
    generator = torch.Generator(device="cuda").manual_seed(1)
    blocks = [torch.randint(0, 255, (BLOCK,), dtype=torch.uint8, device="cuda", generator=generator)
              for _ in range(gib * (1 << 30) // BLOCK)]
    left = torch.randn(1024, 1024, device="cuda", generator=generator)
    product = left @ left
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        from_graph = left @ left + 1
    graph.replay()
    torch.cuda.synchronize()
    expected = contents(blocks), product.clone(), from_graph.clone()
    torch.cuda.empty_cache()
    print("ready", flush=True)
    for _ in sys.stdin:
        from_graph.zero_()
        graph.replay()
        scratch = torch.ones(BLOCK, dtype=torch.uint8, device="cuda")
        right = (contents(blocks) == expected[0] and torch.equal(left @ left, expected[1])
                 and torch.equal(from_graph, expected[2]) and int(scratch.sum()) == BLOCK)
        del scratch
        print("right" if right else "wrong", flush=True)


main(int(sys.argv[1]))
