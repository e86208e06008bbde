# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama built from a configuration, so nothing is downloaded."""
import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402

from workloads.common import Result, digest, timed_steps  # noqa: E402
from workloads.torch_common import bytes_of_all, settle  # noqa: E402

WORDS = 8192


def make_model():
    config = transformers.LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=12,
        vocab_size=WORDS,
        max_position_embeddings=1024,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config).to(device="cuda", dtype=torch.bfloat16)


def run():
    settle()
    chance = random.Random(0)
    model = make_model()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator(device="cuda").manual_seed(0)
    losses = []

    def step():
        length = chance.randrange(64, 512)
        words = torch.randint(0, WORDS, (8, length), device="cuda", generator=generator)
        loss = model(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach().float())

    times = timed_steps(step, torch.cuda.synchronize, warm_up=10, steps=5)
    results = [torch.stack(losses), *model.parameters()]
    version = f"transformers {transformers.__version__}"
    return Result(version, digest(bytes_of_all(results)), times)
