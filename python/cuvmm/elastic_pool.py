# SPDX-License-Identifier: Apache-2.0
"""Elastic pools (docs/pools.md)."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, List, Optional, Union

from . import _capi
from ._checks import stream_handle, whole
from ._fields import fields
from ._owned import Owned
from .array import DeviceArray, Shape, dimensions, size_of, type_string
from .pool_allocation import (PoolAllocation, compaction_of, free_allocation, placed_by, size_given,
                              traits)
from .pool_facts import Compaction, ElasticPoolStats, PlaceStats
from .pool_places import Places

_MOST_PLACES = 65


class ElasticPool(Owned):
    """Addresses whose memory comes as it is allocated, and goes with a granule's last byte. Its end
    waits for its fences and gives everything back."""

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

    def _end(self, handle: Any) -> None:
        self._lib.elastic_pool_destroy(handle)

    @property
    def base_address(self) -> int:
        """The address of offset 0."""
        return self._lib.elastic_pool_base_address(self._open)

    @property
    def capacity(self) -> int:
        """Its addresses, in bytes."""
        return self._lib.elastic_pool_capacity(self._open)

    @property
    def granule(self) -> int:
        """The steps in which memory comes and goes."""
        return self._lib.elastic_pool_granule(self._open)

    def allocate(self, size: int, *, movable: bool = False) -> PoolAllocation:
        """Allocates where there is room, at a multiple of 512 bytes."""
        size = whole("size", size)
        made = placed_by(self._lib.elastic_pool_allocate, self._open, size, traits(movable, False))
        return PoolAllocation(made.offset, made.address, size, self)

    def allocate_at(self, offset: int, size: int, *, movable: bool = False) -> PoolAllocation:
        """Allocates at that offset, which may be any."""
        offset, size = whole("offset", offset), whole("size", size)
        made = placed_by(self._lib.elastic_pool_allocate_at, self._open, offset, size,
                         traits(movable, False))
        return PoolAllocation(made.offset, made.address, size, self)

    def deallocate(self, allocated: Union[PoolAllocation, int], size: Optional[int] = None) -> None:
        """Gives back an allocation, or any allocated bytes by their offset and size. Waits for the
        pool's fences."""
        if isinstance(allocated, PoolAllocation):
            free_allocation(allocated, size, self)
        else:
            self._lib.elastic_pool_deallocate(self._open, whole("offset", allocated), size_given(size))

    def array(self, shape: Shape, dtype: Any = "float32", *, offset: Optional[int] = None
              ) -> DeviceArray:
        """Allocates an array, at that offset or where there is room."""
        shape = dimensions(shape)
        size = size_of(shape, type_string(dtype))
        made = self.allocate(size) if offset is None else self.allocate_at(offset, size)
        return DeviceArray(made.address, shape, dtype, self._device, owner=self, allocation=made)

    def is_mapped(self, offset: int, size: int = 1) -> bool:
        """Whether every one of these bytes is allocated and has memory."""
        return self._lib.elastic_pool_is_mapped(self._open, whole("offset", offset),
                                                whole("size", size)) != 0

    def grow(self, capacity: int) -> None:
        """Adds addresses, up to most_capacity. Nothing moves."""
        self._lib.elastic_pool_grow(self._open, whole("capacity", capacity))

    def trim(self) -> int:
        """Gives the cached memory of the pool's places back to the driver; how many bytes."""
        return self._lib.elastic_pool_trim(self._open)

    def fence(self, stream: Any) -> None:
        """What the stream has been given so far uses the pool. `stream`: a CUstream as a number
        (torch: stream.cuda_stream, cupy: stream.ptr)."""
        self._lib.elastic_pool_fence(self._open, stream_handle(stream))

    def compact(self) -> Compaction:
        """Holds the same bytes in less memory, after the pool's fences. Until it returns no thread
        may submit work that uses the pool."""
        return compaction_of(self._lib.elastic_pool_compact, self._open)

    def stats(self) -> ElasticPoolStats:
        """The pool's figures, at the same cost whatever it holds."""
        stats = _capi.ElasticPoolStats()
        self._lib.elastic_pool_get_stats(self._open, byref(stats))
        return fields(stats, ElasticPoolStats)

    def places(self) -> List[PlaceStats]:
        """The pool's memory by place."""
        places = (_capi.PlaceStats * _MOST_PLACES)()
        count = self._lib.elastic_pool_get_places(self._open, places, _MOST_PLACES)
        return [PlaceStats(bool(one.is_host), one.id, one.physical_bytes)
                for one in places[:count]]
