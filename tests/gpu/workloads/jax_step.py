# SPDX-License-Identifier: Apache-2.0
"""Trains a small network in JAX."""
import os

# No autotuning of algorithms and no atomics: the same program each time.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_PLATFORMS", "cuda")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

from workloads.common import Result, digest, timed_steps  # noqa: E402

WIDTH = 2048
LAYERS = 6


def loss_of(weights, x):
    y = x
    for weight in weights:
        y = y + jax.nn.gelu(y @ weight)
    return jnp.mean((y - jnp.roll(x, 1, axis=1)) ** 2)


@jax.jit
def train(weights, key):
    key, one = jax.random.split(key)
    x = jax.random.normal(one, (512, WIDTH), dtype=jnp.float32)
    loss, gradients = jax.value_and_grad(loss_of)(weights, x)
    return [w - 1e-2 * g for w, g in zip(weights, gradients)], key, loss


def run():
    if jax.default_backend() not in ("gpu", "cuda"):
        raise ImportError("jax has no card")
    key = jax.random.PRNGKey(0)
    keys = jax.random.split(key, LAYERS)
    state = {
        "weights": [0.02 * jax.random.normal(one, (WIDTH, WIDTH)) for one in keys],
        "key": key,
    }
    losses = []

    def step():
        state["weights"], state["key"], loss = train(state["weights"], state["key"])
        losses.append(loss)

    def synchronize():
        jax.block_until_ready(state["weights"])

    times = timed_steps(step, synchronize, warm_up=20, steps=100)
    pieces = [numpy.asarray(one).tobytes() for one in [*losses, *state["weights"]]]
    return Result(f"jax {jax.__version__}", digest(pieces), times)
