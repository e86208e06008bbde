# SPDX-License-Identifier: Apache-2.0
"""CuPy: its universal functions, sampled by the seed, on arrays of its own test support
(cupy.testing). On the CPU, numpy stands in for it, which tries out this file alone."""
import contextlib
import random

import cupy
import cupy.testing
import numpy

from held import Held

SAMPLED = 48
TYPES = ("float32", "float64", "int32", "complex64")
# Of an array, beside the universal functions.
FUNCTIONS = ("sort", "argsort", "cumsum", "cumprod", "flip", "transpose", "unique", "nonzero", "median", "var",
             "argmax", "diff", "tril", "rot90", "ptp", "std", "mean", "percentile50", "fft.rfft", "fft.fft2",
             "linalg.norm", "linalg.qr", "linalg.svd")
RAW = r"""
extern "C" __global__ void smooth(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = %sf * x[(i + n - 1) %% n] + 0.5f * x[i] + 0.25f * x[(i + 1) %% n];
}
"""


class Work:
    def __init__(self, asked, outputs):
        self.outputs, self.seed, self.on_card = outputs, asked.seed, asked.device == "cuda"
        self.xp = cupy if self.on_card else numpy
        self.pool = cupy.get_default_memory_pool() if self.on_card and asked.manager == "pool" else None
        self.peaks = {"needed_bytes": 0, "held_bytes": 0} if self.pool else {}
        self.held = Held(asked.seed, asked.scale, self.make, self.fetch)
        self.held.prepare()
        self.held.check(outputs, "before")

    def make(self, count, factor):
        array = self.xp.arange(count, dtype="int32")
        array *= numpy.int32(factor)
        if self.pool:
            self.peaks = {"needed_bytes": max(self.peaks["needed_bytes"], self.pool.used_bytes()),
                          "held_bytes": max(self.peaks["held_bytes"], self.pool.total_bytes())}
        return array

    def fetch(self, array):
        return self.at_home(array).tobytes()

    def at_home(self, array):
        return cupy.asnumpy(array) if self.on_card else numpy.asarray(array)

    def numbers(self, number, shape, of_type="float32"):
        return cupy.testing.shaped_random(shape, self.xp, of_type, scale=4, seed=(self.seed + number) % (1 << 32))

    def add(self, name, value):
        for number, one in enumerate(value if isinstance(value, (tuple, list)) else (value,)):
            self.outputs.add(f"{name}, output {number}", self.at_home(one))

    def synchronize(self):
        if self.on_card:
            cupy.cuda.Device().synchronize()


def universal_functions(work):
    return {name: getattr(work.xp, name) for name in sorted(dir(cupy)) if name[0] != "_"
            and isinstance(getattr(cupy, name), cupy.ufunc) and hasattr(getattr(work.xp, name, None), "nin")}


def plain(work, chance):
    available = universal_functions(work)
    names = sorted(available) + [f"array {name}" for name in FUNCTIONS]
    for number, name in enumerate(chance.sample(names, SAMPLED)):
        of_type, shape = chance.choice(TYPES), chance.choice(((40, 30), (7, 5, 11), (1000,)))
        if name.startswith("array "):
            call, count = function_of_array(work.xp, name.removeprefix("array ")), 1
        else:
            call, count = available[name], available[name].nin
        given = [work.numbers(number * 3 + one, shape, of_type) for one in range(count)]
        try:
            work.add(f"{name} of {of_type} {shape}", call(*given))
        except Exception as error:  # not for every type
            work.outputs.raised(f"{name} of {of_type} {shape}", error)
        if number % 4 == 0:
            work.held.churn()


def function_of_array(xp, name):
    if name == "percentile50":
        return lambda x: xp.percentile(x, 50)
    for step in name.split("."):
        xp = getattr(xp, step)
    return xp


def graphs(work, chance):
    """Captures functions that write to arrays made before: a capture must not allocate by the driver."""
    available = universal_functions(work)
    chosen = chance.sample([name for name in ("sin", "cos", "exp", "sqrt", "add", "multiply", "subtract", "maximum",
                                              "tanh", "floor", "square", "minimum") if name in available], 5)
    given, other = work.numbers(1, (200, 300)), work.numbers(2, (200, 300))
    results = [work.xp.empty_like(given) for _ in chosen]

    def compute():
        for name, result in zip(chosen, results):
            function = available[name]
            function(*((given, other)[:function.nin]), out=result)

    stream = cupy.cuda.Stream(non_blocking=True) if work.on_card else None
    compute()  # compiles
    work.synchronize()
    graph = None
    if stream is not None:
        with stream:
            stream.begin_capture()
            compute()
            graph = stream.end_capture()
    for number in range(6):
        given[...] = work.numbers(10 + number, (200, 300))
        work.held.churn()
        work.synchronize()
        if graph is None:
            compute()
        else:
            graph.launch(stream)
            stream.synchronize()
        for name, result in zip(chosen, results):
            work.add(f"graph with {name}, replay {number}", result)


def fused_with(xp, factor, fuse):
    @fuse
    def mixed(x, y):
        return xp.sqrt(xp.abs(x * factor + y)) - xp.maximum(x, y)
    return mixed


def compiled(work, chance):
    """Fused functions, and kernels from source with constants of the seed, so that no cache has them."""
    xp = work.xp
    for number in range(4):
        factor = chance.randrange(1, 1 << 20) / (1 << 18)
        mixed = fused_with(xp, factor, cupy.fuse if work.on_card else lambda function: function)
        for size in (1000, 50000):
            work.add(f"fused with {factor}, {size}", mixed(work.numbers(1, (size,)), work.numbers(2, (size,))))
        x, y = work.numbers(3, (30000,)), xp.empty(30000, dtype="float32")
        if work.on_card:
            cupy.RawKernel(RAW % factor, "smooth")((118,), (256,), (x, y, cupy.int32(30000)))
            work.add(f"raw kernel with {factor}", y)
            squares = cupy.ReductionKernel("T x", "T y", f"x * x * (T){factor}", "a + b", "y = a", "0", f"sum_{number}")
            work.add(f"reduction with {factor}", squares(work.numbers(4, (500, 40)), axis=1))
        work.held.churn()


def loaders(work, chance):
    from feeding import batches
    weight = work.numbers(1, (64, 64)) / 64
    with batches(work.seed % 1000, 16, 64, 64) as feed:
        for number, rows in enumerate(feed):
            x = work.xp.asarray(rows)
            error = x @ weight - work.xp.sin(x)
            weight -= 0.01 * (x.T @ error)
            work.add(f"error of batch {number}", (error * error).mean(axis=0))
            work.held.churn()
    work.add("weight", weight)


def generation(work, chance):
    """Each step appends a row and reads all rows, as a decoder with a growing cache does."""
    width = chance.choice((32, 48, 64))
    embedding = work.numbers(0, (211, width)) / width
    keys = work.xp.zeros((0, width), dtype="float32")
    token = 1
    for step in range(64):
        x = embedding[token]
        keys = work.xp.concatenate((keys, x[None] * (1 + step % 5)))
        shares = work.xp.exp(keys @ x)
        logits = embedding @ (x + (shares[:, None] * keys).sum(axis=0) / shares.sum())
        logits[token] = -1e9
        token = int(logits.argmax())
        work.add(f"logits {step}", logits)
        if step % 8 == 0:
            work.held.churn()


USES = {"plain": plain, "graphs": graphs, "compile": compiled, "loaders": loaders, "generation": generation}


@contextlib.contextmanager
def using(manager):
    if manager == "async":
        with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
            yield
    elif manager == "none":
        with cupy.cuda.using_allocator(None):
            yield
    else:
        yield  # its own pool


def run(asked, outputs):
    with using(asked.manager) if asked.device == "cuda" else contextlib.nullcontext():
        work = Work(asked, outputs)
        USES[asked.use](work, random.Random(asked.seed))
        work.synchronize()
        work.held.check(outputs, "after")
    return {"version": f"cupy {cupy.__version__}", **work.peaks}
