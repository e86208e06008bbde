#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays in an elastic pool: filled from the host, and passed to cupy without a copy if available.

Runs on the machine's card, or on the simulated driver (LD_LIBRARY_PATH=…/lib/cuvmm/sim). Exits with
0 if every check passes.
"""

import array
import sys
from pathlib import Path

# The package of the source tree, or of the installation that contains this program or its source.
HERE = Path(__file__).resolve().parent
for package in (HERE.parent / "python", HERE.parent.parent / "share" / "cuvmm" / "python",
                HERE.parent.parent.parent / "cuvmm" / "python"):
    if package.exists():
        sys.path.insert(0, str(package))
        break
import cuvmm  # noqa: E402

GIB = 1 << 30
MIB = 1 << 20


def numbers(count, first):
    """Returns a numpy array if numpy is installed, else an array of the standard library."""
    try:
        import numpy
        return numpy.arange(first, first + count, dtype=numpy.float32)
    except ImportError:
        return array.array("f", range(first, first + count))


def through_cupy(view, count, first):
    """Writes to the same memory through cupy, if cupy and a card that it can use are available."""
    try:
        import cupy
        seen = cupy.asarray(view)
        seen += 1
        cupy.cuda.Stream.null.synchronize()
        assert seen.data.ptr == view.address, "cupy made a copy"
    except Exception as why:  # not installed, or no real card
        print(f"cupy is not available ({type(why).__name__})")
        return
    assert view.tobytes() == (numbers(count, first + 1)).tobytes(), "cupy wrote somewhere else"
    print("cupy sees the same memory")


def main():
    count = 1 << 18
    with cuvmm.ElasticPool(64 * GIB, physical_limit=256 * MIB) as pool:
        print(f"{pool.capacity // GIB} GiB of addresses, {pool.stats().physical_bytes} bytes of memory")
        arrays = []
        for i in range(16):
            view = pool.array(count, "float32", offset=i * 4 * GIB)
            view.copy_from(numbers(count, i))
            arrays.append(view)
        print(f"16 arrays, 4 GiB apart: {pool.stats().physical_bytes // MIB} MiB of memory")
        for i, view in enumerate(arrays):
            assert view.tobytes() == numbers(count, i).tobytes(), f"array {i} differs"
        done = pool.compact()
        print(f"compaction releases {done.physical_released // MIB} MiB and moves nothing")
        for i, view in enumerate(arrays):
            assert view.tobytes() == numbers(count, i).tobytes(), f"array {i} differs afterwards"
        through_cupy(arrays[3], count, 3)
        try:
            pool.allocate(GIB)
            raise AssertionError("the pool granted more than its limit")
        except cuvmm.OutOfPhysicalMemory as refused:
            print(f"refused: {refused.requested // MIB} MiB requested, "
                  f"{refused.available // MIB} MiB available")
        for view in arrays:
            view.free()
        assert pool.stats().physical_bytes == 0
    print("all arrays read back as written")


if __name__ == "__main__":
    main()
