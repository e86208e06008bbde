# SPDX-License-Identifier: Apache-2.0
"""The house: which folder may include what. One table; docs/layout.md says why."""

# Folder of src -> the folders it names. `+` means: and all that those may include.
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
    "engine": ["+resize", "+spill", "+pool", "+share", "+sched"],
    "hook": ["engine", "driver", "trace", "base"],
    "capi": ["+engine"],
    "replay": ["+alloc"],
    "view": ["trace", "base"],
    "node": ["base"],
    "cli": ["view", "replay", "share", "driver", "trace", "base"],
}

# Single files that a folder may include although not the folder they lie in.
SINGLE_FILES = {"sim": r"driver/[a-z_]+\.def"}

# Folders beside src. Public headers (include/cuvmm) may be included by everybody.
EVERYTHING = ["+engine", "hook", "capi", "replay", "view", "node", "cli"]
OTHER_FOLDERS = {
    "include": [],
    "examples": [],
    "tests": [*EVERYTHING, "sim", "examples"],
    "bench": [*EVERYTHING, "tests", "examples"],
}

# Who includes CUDA's own headers: these folders, and this one file of the rest.
CUDA_FOLDERS = {"sim", "tests", "bench", "examples"}
CUDA_FILE = "src/driver/cuda.hpp"

LONG_FILE_WARNS = 400
LONG_FILE_NEEDS_A_REASON = 600  # "... lines because ..." in its first comment

BANNED_WORDS = {"page", "segment", "region", "manager", "helper", "util"}


def may_include(folder):
    """All folders that `folder` may include, itself among them."""
    named = SOURCE_FOLDERS.get(folder) or OTHER_FOLDERS.get(folder) or []
    allowed = {folder}
    for name in named:
        if name.startswith("+"):
            allowed |= may_include(name[1:])
        else:
            allowed.add(name)
    return allowed
