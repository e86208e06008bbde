# SPDX-License-Identifier: Apache-2.0
"""Elastic pools (docs/pools.md)."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, List, Optional, Union

from . import _capi
from ._checks import stream_handle, whole
from ._fields import fields
from ._owned import Owned
from ._units import size as size_text
from .array import DeviceArray, Shape, dimensions, size_of, type_string
from .pool_allocation import (PoolAllocation, compaction_of, free_allocation, placed_by, size_given,
                              traits)
from .pool_facts import Compaction, ElasticPoolStats, PlaceStats
from .pool_places import Places

_MOST_PLACES = 65


class ElasticPool(Owned):
    """Reserved addresses that get memory as they are allocated.

    A granule's memory is released when its last byte is freed. `capacity` bytes of addresses are
    reserved, rounded up to granules, and grow() can extend them up to `most_capacity`; 0 means four
    times the capacity if that is free, else the capacity. `physical_limit` bounds the pool's
    memory; 0 means whatever the devices and VMM_LIMIT allow. Closing the pool waits for its fences,
    then releases everything.
    """

    _kind = "pool"

    def __init__(self, capacity: int, places: Optional[Places] = None, *, most_capacity: int = 0,
                 physical_limit: int = 0) -> None:
        super().__init__()
        places = places or Places()
        options = _capi.ElasticPoolOptions(places=places._in_c(),
                                           most_capacity=whole("most_capacity", most_capacity),
                                           physical_limit=whole("physical_limit", physical_limit))
        pool = c_void_p()
        self._lib.elastic_pool_create(whole("capacity", capacity), byref(options), byref(pool))
        self._handle = pool
        self._device = places.devices[0]
        self._places = places

    def _end(self, handle: Any) -> None:
        self._lib.elastic_pool_destroy(handle)

    def _describe(self) -> str:
        stats = self.stats()
        return (f"{size_text(stats.allocated_bytes)} of {size_text(stats.capacity)} allocated, "
                f"{size_text(stats.physical_bytes)} of memory on {self._places._in_words()}")

    @property
    def base_address(self) -> int:
        """The address of offset 0."""
        return self._lib.elastic_pool_base_address(self._open)

    @property
    def capacity(self) -> int:
        """The size of the pool's addresses, in bytes."""
        return self._lib.elastic_pool_capacity(self._open)

    @property
    def granule(self) -> int:
        """The unit in which memory is mapped and released, in bytes."""
        return self._lib.elastic_pool_granule(self._open)

    def allocate(self, size: int, *, movable: bool = False) -> PoolAllocation:
        """Allocates `size` bytes at any free offset that is a multiple of 512.

        Compaction may move a `movable` allocation to another offset. Raises OutOfAddresses or
        OutOfPhysicalMemory if there is no room.
        """
        size = whole("size", size)
        made = placed_by(self._lib.elastic_pool_allocate, self._open, size, traits(movable, False))
        return PoolAllocation(made.offset, made.address, size, self)

    def allocate_at(self, offset: int, size: int, *, movable: bool = False) -> PoolAllocation:
        """Allocates `size` bytes at exactly `offset`, which need not be aligned.

        Raises AlreadyMapped if any of these bytes is allocated, or withheld because compaction made
        granules share memory.
        """
        offset, size = whole("offset", offset), whole("size", size)
        made = placed_by(self._lib.elastic_pool_allocate_at, self._open, offset, size,
                         traits(movable, False))
        return PoolAllocation(made.offset, made.address, size, self)

    def deallocate(self, allocated: Union[PoolAllocation, int], size: Optional[int] = None) -> None:
        """Frees a PoolAllocation, or the `size` allocated bytes at an offset.

        By offset, the bytes can be an allocation, a part of one, or several adjacent ones. Waits
        for the pool's fences.
        """
        if isinstance(allocated, PoolAllocation):
            free_allocation(allocated, size, self)
        else:
            self._lib.elastic_pool_deallocate(self._open, whole("offset", allocated), size_given(size))

    def array(self, shape: Shape, dtype: Any = "float32", *, offset: Optional[int] = None
              ) -> DeviceArray:
        """Allocates an array, at `offset` if given, else at any free offset."""
        shape = dimensions(shape)
        size = size_of(shape, type_string(dtype))
        made = self.allocate(size) if offset is None else self.allocate_at(offset, size)
        return DeviceArray(made.address, shape, dtype, self._device, owner=self, allocation=made)

    def is_mapped(self, offset: int, size: int = 1) -> bool:
        """Whether all of these bytes are allocated and have memory. False beyond the capacity."""
        return self._lib.elastic_pool_is_mapped(self._open, whole("offset", offset),
                                                whole("size", size)) != 0

    def grow(self, capacity: int) -> None:
        """Grows the pool to `capacity` bytes of addresses, up to most_capacity. Moves nothing."""
        self._lib.elastic_pool_grow(self._open, whole("capacity", capacity))

    def trim(self) -> int:
        """Releases the cached memory of the pool's places to the driver.

        Returns the number of bytes released.
        """
        return self._lib.elastic_pool_trim(self._open)

    def fence(self, stream: Any) -> None:
        """Declares that the work submitted to `stream` so far uses the pool.

        Nothing is unmapped, moved or freed before that work is done. `stream` is a CUstream as an
        integer (torch: stream.cuda_stream, cupy: stream.ptr); None is the current context's default
        stream.
        """
        self._lib.elastic_pool_fence(self._open, stream_handle(stream))

    def compact(self) -> Compaction:
        """Packs the allocated bytes into less memory, and releases the rest.

        Waits for the pool's fences first. Only movable allocations change their offset; the result
        lists their moves. Until this returns, no thread may submit work that uses the pool. Raises
        TimedOut if new fences keep arriving.
        """
        return compaction_of(self._lib.elastic_pool_compact, self._open)

    def stats(self) -> ElasticPoolStats:
        """Returns the pool's statistics, in constant time."""
        stats = _capi.ElasticPoolStats()
        self._lib.elastic_pool_get_stats(self._open, byref(stats))
        return fields(stats, ElasticPoolStats)

    def places(self) -> List[PlaceStats]:
        """Returns the pool's memory by place."""
        places = (_capi.PlaceStats * _MOST_PLACES)()
        count = self._lib.elastic_pool_get_places(self._open, places, _MOST_PLACES)
        return [PlaceStats(bool(one.is_host), one.id, one.physical_bytes)
                for one in places[:count]]
