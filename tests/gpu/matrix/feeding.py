# SPDX-License-Identifier: Apache-2.0
"""Batches made by other processes, for the programs that use loaders. Loads numpy alone."""
import contextlib
import multiprocessing

import numpy

WORKERS = 2


def batch(request):
    """Returns a batch of float32 numbers; depends on nothing but the request."""
    seed, rows, columns = request
    return numpy.random.default_rng(seed).standard_normal((rows, columns), dtype=numpy.float32)


@contextlib.contextmanager
def batches(seed, count, rows, columns):
    """Yields an iterator over batches that spawned processes make, in order."""
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        yield pool.imap(batch, [(seed + number, rows, columns) for number in range(count)])
