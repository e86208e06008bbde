# SPDX-License-Identifier: Apache-2.0
"""One program of the combination matrix: a framework, a use of it, and a memory manager.

    program.py --family torch --use graphs --manager async --seed 7 --out FOLDER
               [--device cpu] [--scale 0.02]

Samples what it runs by the seed, from the framework's own lists of operations or models where there
are any. Writes every output to FOLDER and prints one line, RESULT and JSON: the version, the number
of outputs and their digest, and if the framework says so, the bytes that it used and that it kept at
most. Settings are deterministic. --device cpu tries a program out without a card.
"""
import argparse
import ctypes
import importlib
import json
import os
import sys
import traceback

# The settings by which each framework uses a memory manager.
MANAGERS = {
    ("torch", "caching"): {},
    ("torch", "expandable"): {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
                              "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    ("torch", "async"): {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
                         "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    ("jax", "preallocating"): {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"},
    ("jax", "platform"): {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    ("jax", "async"): {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
BY_TORCH = ("torch", "transformers", "triton")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("family", "use", "manager", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--scale", type=float, default=1.0, help="of the memory that it holds")
    parser.add_argument("--pool-fraction", type=float, default=0.05,
                        help="of the device's memory that XLA preallocates")
    return parser.parse_args()


def settle(asked):
    """Sets what a framework reads when it is imported."""
    for name in {name for settings in MANAGERS.values() for name in settings}:
        os.environ.pop(name, None)  # what a user has set would make another manager of it
    allocator = "torch" if asked.family in BY_TORCH else asked.family
    os.environ.update(MANAGERS.get((allocator, asked.manager), {}))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    if asked.family == "jax":
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(asked.pool_fraction)
        os.environ.pop("XLA_CLIENT_MEM_FRACTION", None)  # its newer name; JAX refuses both together
        os.environ["JAX_PLATFORMS"] = asked.device
    if asked.family == "triton" and asked.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"


def device_used():
    """Returns what the driver says is in use on the whole device: contexts and modules too."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)  # the framework's, which it has by now
    driver.cuCtxSetCurrent(context)
    driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


def main():
    asked = arguments()
    settle(asked)
    from outputs import Outputs, is_out_of_memory
    outputs = Outputs(asked.out)
    try:
        family = importlib.import_module(f"family_{asked.family}")
        told = family.run(asked, outputs)
        if asked.device == "cuda":
            told["device_used_bytes"] = device_used()
    except ImportError as error:
        print("RESULT " + json.dumps({"missing": str(error)[:300]}), flush=True)
        return 0
    except Exception as error:
        traceback.print_exc()
        said = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
        print("RESULT " + json.dumps({"error": said[:300], "out_of_memory": is_out_of_memory(error)}), flush=True)
        return 1
    outputs.close()
    if outputs.computed == 0:
        print("RESULT " + json.dumps({"error": "it computed nothing: each operation raised an exception"}), flush=True)
        return 1
    print("RESULT " + json.dumps({**told, "outputs": len(outputs.all), "computed": outputs.computed,
                                  "digest": outputs.digest()}), flush=True)
    return 0


if __name__ == "__main__":  # and not in a process that feeds it
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
