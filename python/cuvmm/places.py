# SPDX-License-Identifier: Apache-2.0
"""Finds cuvmm's parts: in this package, in the installation around it, or in the build tree."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
from typing import Iterable

# A Debian package has a link to this folder in Python's search path.
_HERE = os.path.dirname(os.path.realpath(__file__))
_INSTALLED = os.path.join("share", "cuvmm", "python", "cuvmm")


def _prefixes() -> list[str]:
    """Returns the folders with bin and lib: a wheel's, and an installation's or a build tree's."""
    found = [os.path.join(_HERE, "_parts")]
    if _HERE.endswith(os.sep + _INSTALLED):
        found.append(_HERE[:-len(_INSTALLED)])
    else:
        found.append(os.path.join(_HERE, "..", "..", "build"))
    return found


_PREFIXES = _prefixes()
_LIBRARY_FOLDERS = ("lib", os.path.join("lib", platform.machine() + "-linux-gnu"), "lib64")


class NotInstalled(RuntimeError):
    """A part of cuvmm is missing."""


def _first(candidates: Iterable[str], what: str) -> str:
    for candidate in candidates:
        if os.path.exists(candidate):
            return os.path.realpath(candidate)
    raise NotInstalled(f"{what} is not installed beside this package: {_HERE}")


def program() -> str:
    """Returns the path of the command line program, `cuvmm`."""
    beside = [os.path.join(prefix, "bin", "cuvmm") for prefix in _PREFIXES]
    on_path = shutil.which("cuvmm")
    # The `cuvmm` in PATH may be the script that started us.
    own = [on_path] if on_path and not _is_script(on_path) else []
    return _first(beside + own, "the program cuvmm")


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def library_candidates(name: str) -> list[str]:
    """Returns the paths where one of cuvmm's libraries may be."""
    return [os.path.join(prefix, folder, name) for prefix in _PREFIXES
            for folder in _LIBRARY_FOLDERS]


def _library(name: str) -> str:
    return _first(library_candidates(name), name)


_ENDS_A_NAME = " \t\n:;"


def _loadable(path: str) -> str:
    """Returns a path to the same file that LD_PRELOAD and LD_LIBRARY_PATH can hold.

    They cannot hold blanks, colons or semicolons, so a path with any of these is reached by a
    symbolic link in a folder that only this user can access.
    """
    if not any(letter in path for letter in _ENDS_A_NAME):
        return path
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = os.path.join(runtime, "cuvmm") if runtime else f"/tmp/cuvmm-{os.getuid()}"
    os.makedirs(own, mode=0o700, exist_ok=True)
    about = os.lstat(own)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise NotInstalled(f"{own} is not a folder of this user alone")
    folder = os.path.join(own, "link-" + hashlib.sha256(os.fsencode(path)).hexdigest()[:16])
    link = os.path.join(folder, os.path.basename(path))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not os.path.islink(link) or os.readlink(link) != path:
        draft = os.path.join(folder, f".{os.getpid()}")
        os.symlink(path, draft)
        os.replace(draft, link)
    return link


def preload_library() -> str:
    """Returns the path for LD_PRELOAD."""
    return _loadable(_library("libcuvmm_preload.so"))


def sim_folder() -> str:
    """Returns the simulated driver's folder, for LD_LIBRARY_PATH."""
    return _loadable(os.path.dirname(_library(os.path.join("cuvmm", "sim", "libcuda.so.1"))))
