# SPDX-License-Identifier: Apache-2.0
"""Decodes with a Llama-class model and key-value caches that grow by concatenation.

Groups of sequences arrive, grow by a token at a time, and end at random. README.md describes the
workload and the variable TRACE_OUT.
"""
import os
import random
import sys
import time

import torch
from transformers import DynamicCache

from frag_train import make_model, peaks, record_trace, write_trace

LABEL = sys.argv[1]
TRACE_OUT = os.environ.get("TRACE_OUT")
ROUNDS = int(os.environ.get("ROUNDS", 25))
GROUPS = 14  # decoded in turns


class Group:
    """Sequences of one length, decoded together."""

    def __init__(self, model):
        self.left = random.randrange(8, 60)  # tokens to decode
        self.cache = DynamicCache()
        batch, length = random.choice([1, 2, 4, 8]), random.randrange(64, 1024)
        self.words = torch.randint(0, 32000, (batch, length), device="cuda")
        self.decode(model)

    def decode(self, model):
        logits = model(input_ids=self.words, past_key_values=self.cache, use_cache=True,
                       logits_to_keep=1).logits
        self.words = logits[:, -1].argmax(-1, keepdim=True)
        self.left -= 1


@torch.inference_mode()
def serve(model):
    groups = [Group(model) for _ in range(GROUPS)]
    checksum = 0
    for _ in range(ROUNDS):
        for i, group in enumerate(groups):
            if group.left == 0:
                checksum += int(group.words.sum())
                groups[i] = Group(model)
            else:
                group.decode(model)
    return checksum + sum(int(group.words.sum()) for group in groups)


def main():
    torch.manual_seed(0)
    random.seed(0)
    if TRACE_OUT:
        record_trace()
    model = make_model(layers=8)
    began = time.time()
    try:
        checksum = serve(model)
    except torch.OutOfMemoryError:
        print(f"serve_cache      {LABEL:14s} OOM", flush=True)
        sys.exit(3)
    torch.cuda.synchronize()
    seconds = time.time() - began
    print(f"serve_cache      {LABEL:14s} {peaks()} checksum {checksum} total {seconds:.2f} s",
          flush=True)
    if TRACE_OUT:
        write_trace(TRACE_OUT, "serve_cache")


if __name__ == "__main__":
    main()
