# SPDX-License-Identifier: Apache-2.0
"""Everything that a program of the matrix computes: a digest of each output's bytes, and its values,
so that runs which are not bitwise the same can be compared.

Without a framework, since processes that feed a program load this too.
"""
import hashlib
import json
import pathlib

MOST_VALUES = 1 << 20  # larger outputs have their digest only


class Outputs:
    """Writes outputs.json, a list of outputs in order, and values.bin, all values as float64."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.values = (self.folder / "values.bin").open("wb")
        self.all = []
        self.computed = 0  # outputs that are no exceptions

    def add(self, name, array, contents=None):
        """Adds a numpy array. `contents` are the bytes it stands for, if numpy lacks their type."""
        contents = array.tobytes() if contents is None else contents
        one = {"name": name, "type": str(array.dtype), "shape": list(array.shape),
               "digest": hashlib.sha256(contents).hexdigest()}
        if array.size <= MOST_VALUES and array.dtype.kind in "fiubc":
            if array.dtype.kind == "c":
                array = array.reshape(-1).view(array.real.dtype)
            one["at"] = self.values.tell() // 8
            one["count"] = array.size
            self.values.write(array.astype("float64").tobytes())
        self.all.append(one)
        self.computed += 1

    def raised(self, name, error):
        """Adds an exception. Memory that ran out is no result: the caller decides what it means."""
        if is_out_of_memory(error):
            raise error
        self.all.append({"name": name, "raised": type(error).__name__, "text": str(error)[:200],
                         "digest": hashlib.sha256(type(error).__name__.encode()).hexdigest()})

    def digest(self):
        return hashlib.sha256("".join(one["digest"] for one in self.all).encode()).hexdigest()

    def close(self):
        self.values.close()
        (self.folder / "outputs.json").write_text(json.dumps(self.all), encoding="utf-8")


def is_out_of_memory(error):
    words = f"{type(error).__name__} {error}"
    # ALLOC_FAILED is what cuBLAS, cuDNN and cuFFT call it. cuSOLVER calls it an internal error.
    return any(one in words for one in ("OutOfMemory", "out of memory", "RESOURCE_EXHAUSTED", "MEMORY_ALLOCATION",
                                        "ALLOC_FAILED", "CUSOLVER_STATUS_INTERNAL_ERROR"))
