# SPDX-License-Identifier: Apache-2.0
"""The environment in which a child process runs under cuvmm."""

from __future__ import annotations

import os
import re
from typing import Mapping, MutableMapping, Optional, Union

from . import places
from ._options import sim_variables_of, variables_of

# Variables that make PyTorch (whose variable has two names) and JAX request stream-ordered memory
# from the driver. Either all of a framework's variables are set, or none.
_FRAMEWORKS = (("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),
               ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")), \
              (("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"),
               ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"))


def _first_in(variables: MutableMapping[str, str], name: str, entry: str,
              separator: str = os.pathsep) -> None:
    known = variables.get(name, "")
    if entry not in known.split(separator):
        variables[name] = entry + separator + known if known else entry


def _is_of_driver(library: str) -> bool:
    return os.path.basename(library).startswith(("libcuda.so", "libnvidia-ml.so"))


def _preload(variables: MutableMapping[str, str], library: str) -> None:
    """Puts `library` into LD_PRELOAD: behind other tools, but before the driver's own libraries."""
    known = [one for one in re.split(r"[:\s]+", variables.get("LD_PRELOAD", "")) if one and one != library]
    at = next((number for number, one in enumerate(known) if _is_of_driver(one)), len(known))
    variables["LD_PRELOAD"] = ":".join([*known[:at], library, *known[at:]])


def env(base: Optional[Mapping[str, str]] = None, *, sim: Union[bool, Mapping[str, object]] = False,
        frameworks: bool = False, **options: object) -> dict[str, str]:
    """Returns a copy of `base` (default: this process's environment) for a program run under cuvmm.

    Use it with anything that starts processes itself: subprocess, multiprocessing, Slurm, or Ray's
    runtime_env:

        subprocess.run(["python", "train.py"], env=cuvmm.env(limit="16G", trace_file="run.trace"))

    `options` are cuvmm's options in lower case without VMM_: mode, limit, trace_file and so on.
    True and False mean on and off: `control=True` lets pause() and resume() reach the program. An
    unknown option raises TypeError, and an invalid value ValueError.

    `sim` selects the simulated driver; a mapping gives its settings, such as {"memory": "8G"},
    which raise the same exceptions. Anything else raises TypeError.
    `frameworks` makes PyTorch and JAX use stream-ordered memory, unless their allocator variables
    are already set.
    """
    if not isinstance(sim, (bool, Mapping)):
        raise TypeError(f'sim must be True, False or a mapping such as {{"memory": "8G"}}, not {sim!r}')
    own = variables_of(options)
    of_sim = sim_variables_of(sim) if isinstance(sim, Mapping) else {}
    variables = dict(os.environ if base is None else base)
    _preload(variables, places.preload_library())
    if sim or isinstance(sim, Mapping):
        _first_in(variables, "LD_LIBRARY_PATH", places.sim_folder())
    variables.update(own)
    variables.update(of_sim)
    if frameworks:
        for settings in _FRAMEWORKS:
            if not any(name in variables for name, _ in settings):
                variables.update(settings)
    return variables
