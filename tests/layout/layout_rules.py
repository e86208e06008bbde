# SPDX-License-Identifier: Apache-2.0
"""The layout rules, in one table: which folder may include which (docs/internals/layout.md)."""

# Folder of src -> the folders it may include. `+` adds everything that those may include.
SOURCE_FOLDERS = {
    "base": [],
    "trace": ["base"],
    "driver": ["base", "trace"],
    "sim": ["base"],
    "stream": ["+driver"],
    "vmm": ["+driver"],
    "alloc": ["+vmm", "+stream"],
    "resize": ["+alloc"],
    "spill": ["+alloc"],
    "pool": ["+alloc"],
    "share": ["+alloc"],
    "sched": ["+stream"],
    "engine": ["+resize", "+spill", "+pool", "+share", "+sched", "+lease"],
    "hook": ["engine", "driver", "trace", "base"],
    "stub": [],
    "slurm": ["base"],
    "capi": ["+engine"],
    "replay": ["+alloc"],
    "view": ["trace", "base"],
    "node": ["base"],
    "lease": ["+share", "node"],
    "observe": ["share", "node", "base"],
    "checkpoint": ["observe", "share", "driver", "trace", "base"],
    "usage": ["base"],
    "daemon": ["usage", "checkpoint", "observe", "node", "share", "driver", "trace", "base"],
    "kubernetes": ["usage", "daemon", "node", "base"],
    "cli": ["usage", "view", "replay", "checkpoint", "observe", "share", "node", "driver", "trace",
            "base"],
}

# Single files that a folder may include without including the rest of their folder.
SINGLE_FILES = {"sim": r"driver/[a-z_]+\.def", "stub": r"driver/driver_api\.def|base/processor\.h"}

# Folders beside src. Every folder may include the public headers (include/cuvmm).
EVERYTHING = ["+engine", "hook", "capi", "replay", "view", "node", "observe",
              "checkpoint", "usage", "daemon", "kubernetes", "slurm", "cli"]
OTHER_FOLDERS = {
    "include": [],
    "examples": [],
    "tests": [*EVERYTHING, "sim", "examples"],
    "bench": [*EVERYTHING, "tests", "examples"],
}

# Which code may include CUDA's own headers: these folders, and this one file elsewhere.
CUDA_FOLDERS = {"sim", "tests", "bench", "examples"}
CUDA_FILE = "src/driver/cuda.hpp"

# Which code may change what backs an address: the mapping core, and code that stands in for the
# driver.
MAPPING_FOLDERS = {"vmm", "hook", "driver", "sim"}

LONG_FILE_WARNS = 400
LONG_FILE_NEEDS_A_REASON = 600  # "... lines because ..." in its first comment


def may_include(folder):
    """Returns all folders that `folder` may include, itself among them."""
    named = SOURCE_FOLDERS.get(folder) or OTHER_FOLDERS.get(folder) or []
    allowed = {folder}
    for name in named:
        if name.startswith("+"):
            allowed |= may_include(name[1:])
        else:
            allowed.add(name)
    return allowed

# Files that repeat the version, and the pattern that finds it.
_IMAGE = r"cuvmm:(\d+\.\d+\.\d+)"
_PYTHON = r'version(?:__)? = "(\d+\.\d+\.\d+)"'
VERSIONS = {
    "pyproject.toml": _PYTHON,
    "python/cuvmm/_version.py": _PYTHON,
    "python/sim/pyproject.toml": _PYTHON,
    "python/sim/cuvmm_sim/__init__.py": _PYTHON,
    "tools/kubernetes/Dockerfile": _IMAGE,
    "tools/kubernetes/cuvmm.yaml": _IMAGE,
    "tools/kubernetes/cuvmm-sim.yaml": _IMAGE,
    "docs/kubernetes.md": _IMAGE,
}
