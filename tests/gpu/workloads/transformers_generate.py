# SPDX-License-Identifier: Apache-2.0
"""Generates text with a small Llama, whose cache grows with each token."""
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402

from workloads.common import Result, digest, timed_steps  # noqa: E402
from workloads.torch_common import bytes_of_all, settle  # noqa: E402
from workloads.transformers_step import WORDS, make_model  # noqa: E402


def run():
    settle()
    model = make_model()
    model.eval()
    generator = torch.Generator(device="cuda").manual_seed(0)
    results = []

    def step():
        words = torch.randint(0, WORDS, (4, 32), device="cuda", generator=generator)
        with torch.no_grad():
            results.append(
                model.generate(words, max_new_tokens=48, do_sample=False, pad_token_id=0)
            )

    times = timed_steps(step, torch.cuda.synchronize, warm_up=1, steps=1)
    return Result(f"transformers {transformers.__version__}", digest(bytes_of_all(results)), times)
