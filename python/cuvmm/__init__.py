# SPDX-License-Identifier: Apache-2.0
"""cuvmm: addresses apart from the memory behind them.

All of libcuvmm by ctypes: pools (ElasticPool, SharedPool), buffers that grow where they lie
(ResizableBuffer), memory of one process in another (SharedBuffer, ShareHost, ShareSession), clients
of the scheduler (Client) and leaving the devices for a while (pause, resume). Their arrays are seen
by torch, cupy and numba without a copy, by __cuda_array_interface__. Whatever ends is a context
manager. Sizes are in bytes, timeouts in seconds.

`env()` is the environment of a child process that runs under cuvmm; `python -m cuvmm` is the command
line. Importing this package loads no library; the first call of it does.
"""

from .array import DeviceArray
from .clients import Client, ClientFigures, Policy, set_policy
from .engine import DeviceInfo, EngineInfo, EngineKind, Mode, device_info, engine_info, version
from .environment import env
from .errors import (AlreadyExists, AlreadyMapped, CuvmmError, DeviceLost, DriverFailed,
                     InvalidArgument, InvalidGranule, InvalidOffset, ModelAlreadyExists,
                     ModelNotFound, NotFound, NotMapped, NotSupported, OutOfAddresses,
                     OutOfPhysicalMemory, SystemFailed, TimedOut)
from .pausing import AwayInfo, PauseReport, away_info, pause, paused, resume
from .pool import (Activation, Compaction, ElasticPool, ElasticPoolStats, HostUse, ModelStats, Move,
                   Placement, Places, PlaceStats, PoolAllocation, SharedPool, SharedPoolStats)
from .resizing import ResizableBuffer, ResizableInfo, ResizeInfo, resize_info
from .sharing import (Access, SharedBuffer, SharedBufferInfo, SharedImport, SharedImportInfo,
                      SharedMapping, ShareEvent, ShareEventKind, ShareHost, ShareSession)

__all__ = [
    "Access", "Activation", "AlreadyExists", "AlreadyMapped", "AwayInfo", "Client", "ClientFigures",
    "Compaction", "CuvmmError", "DeviceArray", "DeviceInfo", "DeviceLost", "DriverFailed",
    "ElasticPool", "ElasticPoolStats", "EngineInfo", "EngineKind", "HostUse", "InvalidArgument",
    "InvalidGranule", "InvalidOffset", "Mode", "ModelAlreadyExists", "ModelNotFound", "ModelStats",
    "Move", "NotFound", "NotMapped", "NotSupported", "OutOfAddresses", "OutOfPhysicalMemory",
    "PauseReport", "PlaceStats", "Placement", "Places", "Policy", "PoolAllocation",
    "ResizableBuffer", "ResizableInfo", "ResizeInfo", "ShareEvent", "ShareEventKind", "ShareHost",
    "ShareSession", "SharedBuffer", "SharedBufferInfo", "SharedImport", "SharedImportInfo",
    "SharedMapping", "SharedPool", "SharedPoolStats", "SystemFailed", "TimedOut", "away_info",
    "device_info", "engine_info", "env", "pause", "paused", "resize_info", "resume", "set_policy",
    "version",
]
