# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each error status of the C API, with the details as attributes."""

from __future__ import annotations

from typing import Dict, Type


class CuvmmError(Exception):
    """The base class of all errors that libcuvmm reports.

    Attributes that do not apply to an error are 0 or "". `driver_code` is a CUresult, `system_code`
    an errno.
    """

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
    """An argument is out of range or does not fit the others."""


class InvalidGranule(CuvmmError, ValueError):
    """The granule is not a power of two, is below 64 KiB, or is not a multiple of the driver's."""


class InvalidOffset(CuvmmError, IndexError):
    """The bytes reach beyond the capacity. See `offset`, `size` and `capacity`."""


class AlreadyMapped(CuvmmError):
    """Some of the bytes are already allocated. See `offset` and `size`."""


class NotMapped(CuvmmError):
    """Some of the bytes are not allocated, or their model is inactive. See `offset` and `size`."""


class OutOfPhysicalMemory(CuvmmError, MemoryError):
    """There is not enough physical memory. See `requested` and `available`."""


class OutOfAddresses(CuvmmError, MemoryError):
    """No contiguous addresses of that size are free. See `requested` and `available`."""


class ModelAlreadyExists(CuvmmError, KeyError):
    """A model of that name is already registered. See `model`."""

    __str__ = Exception.__str__  # a KeyError would put quotes around the message


class ModelNotFound(CuvmmError, KeyError):
    """No model of that name is registered. See `model`."""

    __str__ = Exception.__str__


class NotSupported(CuvmmError):
    """There is no CUDA device, no path between devices, or the driver is too old.

    Also raised by calls that need the preload library when it is not loaded.
    """


class DeviceLost(CuvmmError):
    """The driver reported an error that persists: the context is dead."""


class DriverFailed(CuvmmError):
    """A driver call failed. See `driver_code`."""


class SystemFailed(CuvmmError, OSError):
    """A system call failed. See `system_code`."""


class TimedOut(CuvmmError, TimeoutError):
    """The call did not complete within its timeout."""


class NotFound(CuvmmError, LookupError):
    """The requested object or process does not exist."""


class AlreadyExists(CuvmmError):
    """An object of that name already exists."""


BY_STATUS: Dict[int, Type[CuvmmError]] = {
    1: InvalidArgument, 2: InvalidGranule, 3: InvalidOffset, 4: AlreadyMapped, 5: NotMapped,
    6: OutOfPhysicalMemory, 7: OutOfAddresses, 8: ModelAlreadyExists, 9: ModelNotFound,
    10: NotSupported, 11: DeviceLost, 12: DriverFailed, 13: SystemFailed, 14: TimedOut,
    15: NotFound, 16: AlreadyExists,
}
