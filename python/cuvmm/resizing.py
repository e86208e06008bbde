# SPDX-License-Identifier: Apache-2.0
"""Device memory that grows and shrinks where it lies (docs/life_of_a_resize.md)."""

from __future__ import annotations

from ctypes import byref, c_uint64
from typing import Any, NamedTuple

from . import _capi
from ._checks import signed, stream_handle, whole
from ._driver import driver
from ._fields import fields
from ._owned import Owned
from .array import DeviceArray, Shape
from .errors import InvalidArgument


class ResizableInfo(NamedTuple):
    """A buffer's size as it was last set, the most it can have, and the memory behind it now."""
    size: int
    most: int
    physical_bytes: int


class ResizeInfo(NamedTuple):
    """What VMM_RESIZE has done with the program's own copies so far."""
    elided_copies: int
    elided_bytes: int
    run_copies: int


def resize_info() -> ResizeInfo:
    """What VMM_RESIZE has done with the program's own copies so far."""
    info = _capi.ResizeInfo()
    _capi.library().get_resize_info(byref(info))
    return fields(info, ResizeInfo)


class ResizableBuffer(Owned):
    """Addresses for `most` bytes on a device, and memory for as many as it has now. Its address
    never changes. Its end waits for the current context's work, as cuMemFree does."""

    _kind = "buffer"

    def __init__(self, most: int, *, device: int = 0) -> None:
        super().__init__()
        address = c_uint64()
        self._device = signed("device", device)
        self._lib.reserve_resizable(self._device, whole("most", most), byref(address))
        self._handle = address.value

    def _end(self, handle: int) -> None:
        with driver().some_context(self._device):
            self._lib.release_resizable(handle)

    @property
    def address(self) -> int:
        """Where it begins."""
        return self._open

    def resize(self, size: int) -> None:
        """Sets the size. Growing waits for nothing, shrinking for the current context's work, or
        that of the device's primary one where none is current."""
        with driver().some_context(self._device):
            self._lib.resize(self._open, whole("size", size))

    def resize_ordered(self, size: int, stream: Any) -> None:
        """The same in the order of a stream, a CUstream as a number: work that it is given from now
        on finds the new size. Never waits."""
        with driver().some_context(self._device):
            self._lib.resize_ordered(self._open, whole("size", size), stream_handle(stream))

    def release_ordered(self, stream: Any) -> None:
        """Ends the buffer in the order of a stream. Refused, it is still there."""
        with driver().some_context(self._device):
            self._lib.release_resizable_ordered(self._open, stream_handle(stream))
        self._handle = None

    def info(self) -> ResizableInfo:
        """Its size, and the memory behind it."""
        info = _capi.ResizableInfo()
        self._lib.get_resizable_info(self._open, byref(info))
        return fields(info, ResizableInfo)

    def array(self, shape: Shape, dtype: Any = "float32") -> DeviceArray:
        """The buffer's first bytes as an array, valid as long as the buffer has them."""
        array = DeviceArray(self._open, shape, dtype, self._device, owner=self)
        size = self.info().size
        if array.nbytes > size:
            raise InvalidArgument(f"an array of {array.nbytes} bytes in a buffer of {size}")
        return array
