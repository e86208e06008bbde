# SPDX-License-Identifier: Apache-2.0
"""A simulated CUDA driver, for tests on machines without a GPU.

    subprocess.run(["pytest"], env=cuvmm_sim.env(devices=2, memory="8G"))
"""

from __future__ import annotations

import os
from typing import Mapping, Optional

__version__ = "0.2.0"
__all__ = ["SETTINGS", "env", "folder"]

SETTINGS = ("devices", "memory", "card", "peers", "driver", "order", "backing", "fault", "delay",
            "leaks", "granularity", "log_level")


def folder() -> str:
    """Returns the folder with the simulated libcuda.so.1 and libnvidia-ml.so.1."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver")


def env(base: Optional[Mapping[str, str]] = None, **settings: object) -> dict[str, str]:
    """Returns a copy of `base` (default: this process's environment) for a simulated program.

    The settings are those of the driver in lower case, without VMM_SIM_ (see SETTINGS). None leaves
    a setting as it is; an unknown one raises TypeError. A process that has already loaded a driver
    keeps it: pass the environment to a new process.
    """
    for name in settings:
        if name not in SETTINGS:
            raise TypeError(f"there is no setting '{name}'; there are {', '.join(SETTINGS)}")
    variables = dict(os.environ if base is None else base)
    known = variables.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    rest = [one for one in known if one and one != folder()]
    variables["LD_LIBRARY_PATH"] = os.pathsep.join([folder(), *rest])
    for name, value in settings.items():
        if value is not None:
            variables[f"VMM_SIM_{name.upper()}"] = str(value)
    return variables
