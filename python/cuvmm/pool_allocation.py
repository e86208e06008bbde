# SPDX-License-Identifier: Apache-2.0
"""Allocations in pools, and helpers shared by both kinds of pools (docs/pools.md)."""

from __future__ import annotations

from ctypes import byref, c_uint64
from types import TracebackType
from typing import Any, Callable, List, Optional, Type

from . import _capi
from ._checks import whole
from ._owned import Owned
from .errors import InvalidArgument
from .pool_facts import Compaction, Move

_MOVABLE = 1
_EVICTABLE = 2


class PoolAllocation:
    """Bytes allocated in a pool. A context manager that frees them.

    Calls of the pool take the offset; kernels and the driver take the address. If compaction moves
    the bytes, it reports their new offset but does not update this object.
    """

    def __init__(self, offset: int, address: int, size: int, pool: Any,
                 model: Optional[str] = None) -> None:
        self.offset = offset
        self.address = address
        self.size = size
        self._of = (pool, model)
        self._is_freed = False

    def __repr__(self) -> str:
        return f"PoolAllocation(offset={self.offset}, address={self.address:#x}, size={self.size})"

    def __enter__(self) -> "PoolAllocation":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.free()

    def free(self) -> None:
        """Frees the bytes, after waiting for the pool's fences. Does nothing the second time."""
        pool, model = self._of
        if self._is_freed or not pool.is_open:
            return
        if model is None:
            pool.deallocate(self.offset, self.size)
        else:
            pool.deallocate(model, self.offset, self.size)
        self._is_freed = True


def free_allocation(allocation: PoolAllocation, size: Optional[int], pool: Owned,
                    model: Optional[str] = None) -> None:
    """Frees all of `allocation`.

    Raises TypeError if a size was given, and InvalidArgument if the allocation belongs to another
    pool or model.
    """
    if size is not None:
        raise TypeError("an allocation has a size of its own")
    if allocation._of != (pool, model):
        raise InvalidArgument("the allocation is of another pool or model")
    allocation.free()


def size_given(size: Optional[int]) -> int:
    if size is None:
        raise TypeError("an offset needs a size")
    return whole("size", size)


def traits(movable: bool, evictable: bool) -> int:
    return (_MOVABLE if movable else 0) | (_EVICTABLE if evictable else 0)


def number_of(call: Callable[..., None], *arguments: Any) -> int:
    number = c_uint64()
    call(*arguments, byref(number))
    return number.value


def placed_by(call: Callable[..., None], *arguments: Any) -> _capi.PoolAllocation:
    placed = _capi.PoolAllocation()
    call(*arguments, byref(placed))
    return placed


def compaction_of(call: Callable[..., None], *arguments: Any) -> Compaction:
    moves: List[Move] = []
    counts = _capi.Compaction()

    @_capi.Moved
    def moved(_: Any, move: Any) -> None:
        one = move.contents
        moves.append(Move(one.from_, one.to, one.size))

    call(*arguments, moved, None, byref(counts))
    return Compaction(moves, counts.physical_released, counts.cached_released)
