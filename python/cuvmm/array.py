# SPDX-License-Identifier: Apache-2.0
"""Device memory as arrays that torch, cupy and numba use without a copy."""

from __future__ import annotations

import ctypes
import math
import operator
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Dict, Iterable, Optional, SupportsIndex, Tuple, Type,
                    Union)

from ._driver import driver
from ._owned import Owned
from ._units import size as size_text
from .errors import InvalidArgument

if TYPE_CHECKING:
    from .pool_allocation import PoolAllocation

Shape = Union[SupportsIndex, Iterable[SupportsIndex]]

# The type codes of __cuda_array_interface__ for the type names of torch, cupy and numpy.
TYPES = {
    "bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4",
    "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4",
    "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}
TYPE_NAMES = {code: name for name, code in TYPES.items()}


def type_string(dtype: Any) -> str:
    """Returns the __cuda_array_interface__ typestr of a dtype.

    Accepts a name ("float32"), a typestr ("<f4"), a numpy scalar type (numpy.float32) or a numpy
    dtype (numpy.dtype("f4")). Raises InvalidArgument for any other.
    """
    if isinstance(dtype, str):
        if dtype in TYPES:
            return TYPES[dtype]
        if dtype in TYPES.values():
            return dtype
    name = getattr(dtype, "str", None)  # a numpy.dtype
    if isinstance(name, str):
        return name
    name = getattr(dtype, "__name__", "")  # a numpy scalar type
    if name in TYPES:
        return TYPES[name]
    raise InvalidArgument(f"no such type: {dtype!r}")


class DeviceArray:
    """A C-contiguous array in the library's memory, exposed by __cuda_array_interface__.

    A context manager that frees the array. The array is valid until free() is called, until its
    pool, model, buffer or mapping is closed, or until its model is deactivated. It does not keep
    that owner alive: by then, views that cupy or torch made of the array must be gone, or at least
    unused.
    """

    def __init__(self, address: int, shape: Shape, dtype: Any, device: int, *,
                 owner: Optional[Owned] = None, allocation: Optional["PoolAllocation"] = None,
                 is_read_only: bool = False) -> None:
        self.shape = dimensions(shape)
        self.typestr = type_string(dtype)
        self.address = address
        self.nbytes = size_of(self.shape, self.typestr)
        self._device = device
        self._owner = owner
        self._allocation = allocation
        self._is_read_only = is_read_only
        self._is_freed = False

    def __repr__(self) -> str:
        access = ", read-only" if self._is_read_only else ""
        why = self._why_invalid()
        return (f"<cuvmm.DeviceArray: {self.shape} {TYPE_NAMES.get(self.typestr, self.typestr)}, "
                f"{size_text(self.nbytes)} at {self.address:#x}, device {self._device}{access}"
                f"{'; ' if why else ''}{why}>")

    @property
    def offset(self) -> int:
        """The array's offset in its pool; 0 outside of pools."""
        return self._allocation.offset if self._allocation is not None else 0

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        self._check()
        return {"shape": self.shape, "typestr": self.typestr, "strides": None,
                "data": (self.address, self._is_read_only), "version": 3}

    def __enter__(self) -> "DeviceArray":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.free()

    def free(self) -> None:
        """Frees the array. Does nothing the second time.

        In a pool this deallocates its memory. In a buffer or mapping the memory stays, and only the
        array becomes invalid.
        """
        if not self._is_freed and self._allocation is not None:
            self._allocation.free()
        self._is_freed = True

    def copy_from(self, host: Any) -> None:
        """Copies host data into the array.

        `host` is any object with the buffer protocol (bytes, array, a numpy array) of exactly
        `nbytes` bytes. Raises InvalidArgument if the size differs, if the memory is read-only, or
        if the array is no longer valid.
        """
        if self._is_read_only:
            raise InvalidArgument("the memory was granted for reading only")
        view = memoryview(host).cast("B")
        if view.nbytes != self.nbytes:
            raise InvalidArgument(f"{view.nbytes} bytes for an array of {self.nbytes}")
        source = (ctypes.c_char * view.nbytes).from_buffer_copy(view)
        self._copy("cuMemcpyHtoD_v2", self.address, source, self.nbytes)

    def tobytes(self) -> bytes:
        """Returns a copy of the array's contents as bytes."""
        target = ctypes.create_string_buffer(self.nbytes)
        self._copy("cuMemcpyDtoH_v2", target, self.address, self.nbytes)
        return target.raw

    def numpy(self) -> Any:
        """Returns a copy of the array's contents as a numpy array. Needs numpy."""
        import numpy
        return numpy.frombuffer(bytearray(self.tobytes()), dtype=self.typestr).reshape(self.shape)

    def _copy(self, name: str, *arguments: Any) -> None:
        self._check()
        with driver().primary_context(self._device):
            driver().call(name, *arguments)

    def _why_invalid(self) -> str:
        """Returns why the array cannot be used, or "" if it can."""
        if self._is_freed:
            return "it has been freed"
        if self._allocation is not None and self._allocation._is_freed:
            return "its memory has been freed or evicted"
        if self._owner is not None and not self._owner.is_open:
            return "its memory has been released"
        return ""

    def _check(self) -> None:
        why = self._why_invalid()
        if why:
            raise InvalidArgument(f"the array is no longer valid: {why}")


def dimensions(shape: Shape) -> Tuple[int, ...]:
    """Returns a shape as a tuple. A single integer is a shape of one dimension."""
    if isinstance(shape, SupportsIndex):
        shape = (shape,)
    return tuple(operator.index(length) for length in shape)


def size_of(shape: Tuple[int, ...], typestr: str) -> int:
    """Returns the size in bytes of an array of this shape and type.

    Raises InvalidArgument if any dimension is not positive.
    """
    if any(length <= 0 for length in shape):
        raise InvalidArgument(f"an array of shape {shape} has no bytes")
    return math.prod(shape) * int(typestr[2:])
