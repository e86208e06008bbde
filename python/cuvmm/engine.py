# SPDX-License-Identifier: Apache-2.0
"""The engine behind all calls of the library, and its devices (docs/library.md)."""

from __future__ import annotations

import enum
from ctypes import byref
from typing import NamedTuple

from . import _capi
from ._checks import signed
from ._fields import fields


class EngineKind(enum.IntEnum):
    """Whose engine this process uses.

    - OWN: libcuvmm's
    - PRELOADED: that of the preload library (`cuvmm run`)
    """
    OWN = 0
    PRELOADED = 1


class Mode(enum.IntEnum):
    """How the program's own allocations are treated (VMM_MODE)."""
    VMM = 0
    MONITOR = 1
    OFF = 2


class EngineInfo(NamedTuple):
    """The engine of this process. Versions are integers: 200 is 0.2.0, and 13000 is CUDA 13.0."""
    kind: EngineKind
    mode: Mode
    version: int
    driver_version: int
    device_count: int


class DeviceInfo(NamedTuple):
    """A device's physical memory as this process uses it, in bytes.

    `granule` is the driver's. `limit` is VMM_LIMIT, or 2**64 - 1 without one. `physical_in_use` is
    behind addresses or kept aside by pools; `physical_cached` is free but kept for later
    allocations.
    """
    granule: int
    memory: int
    limit: int
    physical_in_use: int
    physical_cached: int


def engine_info() -> EngineInfo:
    """Returns which engine this process uses.

    Starts the engine and the driver if they are not running yet. Raises NotSupported if there is no
    CUDA device.
    """
    info = _capi.EngineInfo()
    _capi.library().get_engine_info(byref(info))
    return fields(info, EngineInfo, kind=EngineKind(info.kind), mode=Mode(info.mode))


def device_info(device: int = 0) -> DeviceInfo:
    """Returns a device's physical memory as this process uses it."""
    info = _capi.DeviceInfo()
    _capi.library().get_device_info(signed("device", device), byref(info))
    return fields(info, DeviceInfo)


def version() -> str:
    """Returns the version of the loaded library, for example "0.2.0"."""
    number = _capi.library().version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
