# SPDX-License-Identifier: Apache-2.0
"""What calls raise: an exception a status of the C API, with its details as attributes."""

from __future__ import annotations

from typing import Dict, Type


class CuvmmError(Exception):
    """Anything that libcuvmm refuses. `driver_code` is a CUresult, where the driver was asked."""

    def __init__(self, message: str, *, driver_code: int = 0, system_code: int = 0,
                 offset: int = 0, size: int = 0, capacity: int = 0, requested: int = 0,
                 available: int = 0, model: str = "") -> None:
        super().__init__(message)
        self.driver_code = driver_code
        self.system_code = system_code
        self.offset = offset
        self.size = size
        self.capacity = capacity
        self.requested = requested
        self.available = available
        self.model = model


class InvalidArgument(CuvmmError, ValueError):
    """Numbers that do not fit."""


class InvalidGranule(CuvmmError, ValueError):
    """No power of two, smaller than 64 KiB, or no multiple of the driver's."""


class InvalidOffset(CuvmmError, IndexError):
    """Bytes beyond the capacity: offset, size, capacity."""


class AlreadyMapped(CuvmmError):
    """Some of these bytes are allocated: offset, size."""


class NotMapped(CuvmmError):
    """Some of these bytes are not allocated, or their model is not active: offset, size."""


class OutOfPhysicalMemory(CuvmmError, MemoryError):
    """requested, available."""


class OutOfAddresses(CuvmmError, MemoryError):
    """No contiguous addresses of that size: requested, available."""


class ModelAlreadyExists(CuvmmError, KeyError):
    """model."""

    __str__ = Exception.__str__  # a KeyError would put quotes around the message


class ModelNotFound(CuvmmError, KeyError):
    """model."""

    __str__ = Exception.__str__


class NotSupported(CuvmmError):
    """No CUDA device, no path between devices, or too old a driver."""


class DeviceLost(CuvmmError):
    """An error that stays: the context is dead."""


class DriverFailed(CuvmmError):
    """The driver refused: driver_code."""


class SystemFailed(CuvmmError, OSError):
    """The operating system refused: system_code."""


class TimedOut(CuvmmError, TimeoutError):
    """It took too long."""


class NotFound(CuvmmError, LookupError):
    """There is no such thing."""


class AlreadyExists(CuvmmError):
    """There is one of that name."""


BY_STATUS: Dict[int, Type[CuvmmError]] = {
    1: InvalidArgument, 2: InvalidGranule, 3: InvalidOffset, 4: AlreadyMapped, 5: NotMapped,
    6: OutOfPhysicalMemory, 7: OutOfAddresses, 8: ModelAlreadyExists, 9: ModelNotFound,
    10: NotSupported, 11: DeviceLost, 12: DriverFailed, 13: SystemFailed, 14: TimedOut,
    15: NotFound, 16: AlreadyExists,
}
