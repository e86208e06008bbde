# SPDX-License-Identifier: Apache-2.0
"""The engine behind all calls, and its devices (docs/library.md)."""

from __future__ import annotations

import enum
from ctypes import byref
from typing import NamedTuple

from . import _capi
from ._checks import signed
from ._fields import fields


class EngineKind(enum.IntEnum):
    """Whose engine this process has."""
    OWN = 0
    PRELOADED = 1


class Mode(enum.IntEnum):
    """What is done with the program's own allocations (VMM_MODE)."""
    VMM = 0
    MONITOR = 1
    OFF = 2


class EngineInfo(NamedTuple):
    """The engine. Versions are numbers: 100 is 0.1.0, and 13000 is CUDA 13.0."""
    kind: EngineKind
    mode: Mode
    version: int
    driver_version: int
    device_count: int


class DeviceInfo(NamedTuple):
    """A device's physical memory as this process has it, in bytes. Without VMM_LIMIT the limit is
    2**64 - 1."""
    granule: int
    memory: int
    limit: int
    physical_in_use: int
    physical_cached: int


def engine_info() -> EngineInfo:
    """Which engine this process has. Starts it, and the driver, where they are not yet."""
    info = _capi.EngineInfo()
    _capi.library().get_engine_info(byref(info))
    return fields(info, EngineInfo, kind=EngineKind(info.kind), mode=Mode(info.mode))


def device_info(device: int = 0) -> DeviceInfo:
    """A device's physical memory as this process has it."""
    info = _capi.DeviceInfo()
    _capi.library().get_device_info(signed("device", device), byref(info))
    return fields(info, DeviceInfo)


def version() -> str:
    """The version of the library that is loaded, "0.1.0"."""
    number = _capi.library().version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
