# SPDX-License-Identifier: Apache-2.0
"""cuvmm: CUDA addresses independent of the memory behind them.

This package wraps all of libcuvmm with ctypes:

- pools whose memory follows their allocations: ElasticPool, SharedPool;
- buffers that grow in place: ResizableBuffer;
- memory shared between processes: SharedBuffer, ShareHost, ShareSession;
- clients of the scheduler: Client;
- moving this process's memory off the devices for a while: pause(), resume().

Their arrays implement __cuda_array_interface__, so torch, cupy and numba use them without a copy.
Every object that must be closed is a context manager. Sizes are in bytes, timeouts in seconds.

Other processes can be run and controlled too. run() runs a program under cuvmm, and env() returns
the environment for one that is started by other means. pause() and resume() also act on another
process. top() lists the memory of all processes under cuvmm, stats() and advise() summarize a
trace, and a notebook displays a Trace as a plot. `cuvmm.ray` enforces Ray's fractions of a GPU.

`python -m cuvmm` is the command line. Importing this package loads no library; the first call that
needs libcuvmm loads it.
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
