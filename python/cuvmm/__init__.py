# SPDX-License-Identifier: Apache-2.0
"""cuvmm: addresses apart from the memory behind them.

All of libcuvmm by ctypes: pools (ElasticPool, SharedPool), buffers that grow where they lie
(ResizableBuffer), memory of one process in another (SharedBuffer, ShareHost, ShareSession), clients
of the scheduler (Client) and leaving the devices for a while (pause, resume). Their arrays are seen
by torch, cupy and numba without a copy, by __cuda_array_interface__. Whatever ends is a context
manager. Sizes are in bytes, timeouts in seconds.

`run()` runs a program under cuvmm, `env()` is the environment of one that others start, pause() and
resume() take it off the devices and put it back, top() says what all hold, stats() and Trace what a
trace says; a notebook shows a Trace as a picture. `cuvmm.ray` keeps Ray's fractions of a GPU.
`python -m cuvmm` is the command line. Importing this package loads no library; the first call of it
does.
"""

from ._version import __version__
from .array import DeviceArray
from .clients import Client, ClientFigures, Policy, set_policy
from .commands import Trace, advise, run, stats, top
from .elastic_pool import ElasticPool
from .engine import DeviceInfo, EngineInfo, EngineKind, Mode, device_info, engine_info, version
from .environment import env
from .errors import (AlreadyExists, AlreadyMapped, CuvmmError, DeviceLost, DriverFailed,
                     InvalidArgument, InvalidGranule, InvalidOffset, ModelAlreadyExists,
                     ModelNotFound, NotFound, NotMapped, NotSupported, OutOfAddresses,
                     OutOfPhysicalMemory, SystemFailed, TimedOut)
from .pausing import AwayInfo, PauseReport, away_info, pause, paused, resume
from .pool_allocation import PoolAllocation
from .pool_facts import (Activation, Compaction, ElasticPoolStats, ModelStats, Move, PlaceStats,
                         SharedPoolStats)
from .pool_places import HostUse, Placement, Places
from .resizing import ResizableBuffer, ResizableInfo, ResizeInfo, resize_info
from .shared_pool import SharedPool
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
    "SharedMapping", "SharedPool", "SharedPoolStats", "SystemFailed", "TimedOut", "Trace", "advise",
    "away_info", "device_info", "engine_info", "env", "pause", "paused", "resize_info", "resume",
    "run", "set_policy", "stats", "top", "version",
]
