# SPDX-License-Identifier: Apache-2.0
"""cuvmm: addresses apart from the memory behind them.

Pools (ElasticPool, SharedPool) are libcuvmm's by ctypes. What they hold is seen by torch, cupy and
numba without a copy, by __cuda_array_interface__. `env()` is the environment of a child process
that runs under cuvmm; `python -m cuvmm` is the command line. Importing this package loads no library; the
first pool does.
"""

from .environment import env
from .errors import (AlreadyExists, AlreadyMapped, CuvmmError, DeviceLost, DriverFailed,
                     InvalidArgument, InvalidGranule, InvalidOffset, ModelAlreadyExists,
                     ModelNotFound, NotFound, NotMapped, NotSupported, OutOfAddresses,
                     OutOfPhysicalMemory, SystemFailed, TimedOut)
from .pool import (Activation, DeviceArray, ElasticPool, HostUse, Placement, Places, SharedPool,
                   device_info, engine_info)

__all__ = [
    "Activation", "AlreadyExists", "AlreadyMapped", "CuvmmError", "DeviceArray", "DeviceLost",
    "DriverFailed", "ElasticPool", "HostUse", "InvalidArgument", "InvalidGranule", "InvalidOffset",
    "ModelAlreadyExists", "ModelNotFound", "NotFound", "NotMapped", "NotSupported",
    "OutOfAddresses", "OutOfPhysicalMemory", "Placement", "Places", "SharedPool", "SystemFailed",
    "TimedOut", "device_info", "engine_info", "env",
]
