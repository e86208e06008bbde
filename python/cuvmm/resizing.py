# SPDX-License-Identifier: Apache-2.0
"""Device memory that grows and shrinks in place (docs/internals/life_of_a_resize.md)."""

from __future__ import annotations

from ctypes import byref, c_uint64
from typing import Any, NamedTuple

from . import _capi
from ._checks import signed, stream_handle, whole
from ._driver import driver
from ._fields import fields
from ._owned import Owned
from ._units import size as size_text
from .array import DeviceArray, Shape
from .errors import InvalidArgument


class ResizableInfo(NamedTuple):
    """A buffer's current size, its maximum size, and the memory behind it now, in bytes."""
    size: int
    most: int
    physical_bytes: int


class ResizeInfo(NamedTuple):
    """What VMM_RESIZE has done with the program's own copies so far.

    `elided_copies` copies of `elided_bytes` bytes were avoided. `run_copies` looked like a resize
    but were made.
    """
    elided_copies: int
    elided_bytes: int
    run_copies: int


def resize_info() -> ResizeInfo:
    """Returns what VMM_RESIZE has done with the program's own copies so far."""
    info = _capi.ResizeInfo()
    _capi.library().get_resize_info(byref(info))
    return fields(info, ResizeInfo)


class ResizableBuffer(Owned):
    """A buffer that reserves addresses for `most` bytes and has memory for its current size.

    Its size starts at 0 and its address never changes. Closing it waits for the current context's
    work, as cuMemFree does.
    """

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

    def _describe(self) -> str:
        info = self.info()
        return (f"{size_text(info.size)} of at most {size_text(info.most)} at {self.address:#x}, "
                f"device {self._device}")

    @property
    def address(self) -> int:
        """The address of the buffer's first byte."""
        return self._open

    def resize(self, size: int) -> None:
        """Sets the buffer's size in bytes.

        Growing waits for nothing. Shrinking waits for the work of the current context (the device's
        primary context if none is current); the remaining bytes keep their contents. Raises
        OutOfPhysicalMemory, or InvalidArgument beyond `most`, and then leaves the buffer unchanged.
        """
        with driver().some_context(self._device):
            self._lib.resize(self._open, whole("size", size))

    def resize_ordered(self, size: int, stream: Any) -> None:
        """Sets the size in stream order: work submitted to `stream` from now on finds the new size.

        `stream` is a CUstream as an integer; None is the default stream. Never waits.
        """
        with driver().some_context(self._device):
            self._lib.resize_ordered(self._open, whole("size", size), stream_handle(stream))

    def release_ordered(self, stream: Any) -> None:
        """Closes the buffer in stream order. On failure the buffer stays open."""
        with driver().some_context(self._device):
            self._lib.release_resizable_ordered(self._open, stream_handle(stream))
        self._handle = None

    def info(self) -> ResizableInfo:
        """Returns the buffer's size and the memory behind it."""
        info = _capi.ResizableInfo()
        self._lib.get_resizable_info(self._open, byref(info))
        return fields(info, ResizableInfo)

    def array(self, shape: Shape, dtype: Any = "float32") -> DeviceArray:
        """Returns the buffer's first bytes as an array, valid until the buffer shrinks below them.

        Raises InvalidArgument if the array is larger than the buffer's current size.
        """
        array = DeviceArray(self._open, shape, dtype, self._device, owner=self)
        size = self.info().size
        if array.nbytes > size:
            raise InvalidArgument(f"an array of {array.nbytes} bytes in a buffer of {size}")
        return array
