# SPDX-License-Identifier: Apache-2.0
"""JAX: functions of jax.numpy and jax.lax, found by looking what these modules have and sampled by
the seed."""
import os
import random

GRAPHS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
SAMPLED = 48
# These read or write files, wait for other processes, change settings, or return memory as they find
# it; the last compute for as long as their argument says.
NOT_COMPUTATIONS = ("load", "save", "savez", "fromfile", "fromiter", "frombuffer", "from_dlpack", "fromstring",
                    "printoptions", "set_printoptions", "get_printoptions", "empty", "empty_like", "infeed",
                    "outfeed", "pmap", "create_token", "after_all", "custom_linear_solve", "while_loop",
                    "fori_loop", "broadcast_shapes", "dtype", "jax_device_ids", "platform_dependent")


def deterministic_flags(use, device):
    flags = [os.environ.get("XLA_FLAGS", "")]
    if device == "cuda":
        flags += ["--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0"]
        if use == "graphs":
            flags.append(GRAPHS)
    return " ".join(filter(None, flags))


class Work:
    def __init__(self, asked, outputs):
        from held import Held
        self.outputs, self.seed, self.device = outputs, asked.seed, asked.device
        self.held = Held(asked.seed, asked.scale, self.make, self.fetch)
        self.held.prepare()
        self.held.check(outputs, "before")

    def make(self, count, factor):
        import jax
        # Compiled, since a temporary of this size would count as use.
        return jax.jit(lambda: jax.lax.iota("int32", count) * jax.numpy.int32(factor))().block_until_ready()

    @staticmethod
    def fetch(array):
        import numpy
        return numpy.asarray(array).tobytes()

    def numbers(self, number, *shape):
        import jax
        key = jax.random.fold_in(jax.random.PRNGKey(self.seed % (1 << 31)), number)
        return jax.random.normal(key, shape)

    def add(self, name, value):
        import jax
        import numpy
        for number, one in enumerate(jax.tree_util.tree_leaves(value)):
            if isinstance(one, (jax.Array, numpy.ndarray, numpy.generic, bool, int, float, complex)):
                array = numpy.asarray(one)
                contents = None
                if array.dtype.kind not in "fiubc":  # bfloat16 and its like
                    contents, array = array.tobytes(), array.astype("float32")
                self.outputs.add(f"{name}, output {number}", array, contents)


def functions():
    """Returns the names of what jax.numpy and jax.lax can compute, and the functions."""
    import jax
    found = {}
    for module, prefix in ((jax.numpy, "numpy"), (jax.lax, "lax")):
        for name in sorted(dir(module)):
            function = getattr(module, name)
            if name[0] != "_" and callable(function) and not isinstance(function, type) and \
                    name not in NOT_COMPUTATIONS and not name.endswith("_p"):
                found[f"{prefix}.{name}"] = function
    return found


def plain(work, chance):
    """Calls each function with one and with two matrices. Most accept one of the two."""
    available = functions()
    for number, name in enumerate(chance.sample(sorted(available), SAMPLED)):
        for count in (1, 2):
            given = [work.numbers(number * 2 + one, 24, 24) for one in range(count)]
            try:
                work.add(f"{name} of {count}", available[name](*given))
            except Exception as error:
                work.outputs.raised(f"{name} of {count}", error)
        if number % 4 == 0:
            work.held.churn()


def chains(work, chance, count):
    """Yields functions of a matrix that apply three sampled functions and a product."""
    import jax
    smooth = [name for name in ("tanh", "sin", "cos", "exp", "log1p", "expm1", "sinh", "arctan", "square", "cbrt",
                                "sqrt", "reciprocal", "abs", "floor", "sign", "sinc", "i0", "exp2", "rint")
              if hasattr(jax.numpy, name)]
    for number in range(count):
        chosen = chance.sample(smooth, 3)
        weight = work.numbers(1000 + number, 64, 64)

        def chain(x, chosen=tuple(chosen), weight=weight):
            for name in chosen:
                x = jax.numpy.clip(jax.numpy.nan_to_num(getattr(jax.numpy, name)(x)), -8, 8)
            return x @ weight
        yield ", ".join(chosen), chain


def compiled(work, chance, count=8):
    import jax
    for name, chain in chains(work, chance, count):
        function = jax.jit(chain)
        slope = jax.jit(jax.value_and_grad(lambda x, chain=chain: chain(x).sum()))
        for number in range(3):
            x = work.numbers(number, 32 + 16 * (number % 2), 64)
            work.add(f"compiled {name}, call {number}", function(x))
            work.add(f"compiled gradient of {name}, call {number}", slope(x))
        work.held.churn()


def graphs(work, chance):
    """XLA turns what it compiles into CUDA graphs (command buffers); calls repeat, so graphs are updated."""
    import jax
    for name, chain in chains(work, chance, 6):
        function = jax.jit(lambda x, chain=chain: chain(chain(chain(x))))
        for number in range(6):
            work.add(f"graph of {name}, call {number}", function(work.numbers(number, 48, 64)))
            work.held.churn()


def loaders(work, chance):
    import jax
    from feeding import batches
    _, chain = next(chains(work, chance, 1))
    weight = work.numbers(1, 64, 64) * 0.1

    @jax.jit
    def train(weight, x):
        loss, gradient = jax.value_and_grad(lambda w: ((x @ w - chain(x)) ** 2).mean())(weight)
        return weight - 1e-3 * gradient, loss

    with batches(work.seed % 1000, 16, 64, 64) as feed:
        for number, rows in enumerate(feed):
            weight, loss = train(weight, jax.device_put(rows))
            work.add(f"loss of batch {number}", loss)
            work.held.churn()
    work.add("weight", weight)


def generation(work, chance):
    """Decodes with a cache that grows by each token: every step has new shapes, and compiles."""
    import jax.numpy as jnp
    width = chance.choice((32, 48, 64))
    embedding = work.numbers(0, 211, width) / width ** 0.5
    query, key, value = (work.numbers(1 + one, width, width) / width ** 0.5 for one in range(3))
    keys = values = jnp.zeros((0, width))
    token = jnp.int32(1)
    for step in range(24):
        x = embedding[token]
        keys, values = jnp.concatenate((keys, (x @ key)[None])), jnp.concatenate((values, (x @ value)[None]))
        shares = jnp.exp(keys @ (x @ query))
        logits = embedding @ (x + shares @ values / shares.sum())
        token = jnp.argmax(logits).astype(jnp.int32)
        work.add(f"token {step}", token)
        work.add(f"logits {step}", logits)
        if step % 6 == 0:
            work.held.churn()


USES = {"plain": plain, "graphs": graphs, "compile": compiled, "loaders": loaders, "generation": generation}


def run(asked, outputs):
    os.environ["XLA_FLAGS"] = deterministic_flags(asked.use, asked.device)
    import jax
    if asked.device == "cuda" and jax.default_backend() not in ("gpu", "cuda"):
        raise ImportError("jax has no card")
    work = Work(asked, outputs)
    USES[asked.use](work, random.Random(asked.seed))
    work.held.check(outputs, "after")
    told = {"version": f"jax {jax.__version__}"}
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        told["needed_bytes"] = stats["peak_bytes_in_use"]
    return told
