# SPDX-License-Identifier: Apache-2.0
"""Shared pools (docs/pools.md)."""

from __future__ import annotations

from contextlib import contextmanager
from ctypes import byref, c_int32, c_void_p
from typing import Any, Callable, Dict, Iterator, Optional, Union

from . import _capi
from ._checks import signed, stream_handle, whole
from ._fields import fields
from ._owned import Owned
from .array import DeviceArray, Shape, dimensions, size_of, type_string
from .pool_allocation import (PoolAllocation, compaction_of, free_allocation, number_of, placed_by,
                              size_given, traits)
from .pool_facts import Activation, Compaction, ElasticPoolStats, ModelStats, SharedPoolStats
from .pool_places import Places


class SharedPool(Owned):
    """Many models' addresses over memory for those that work now. Its end waits for all fences and
    gives everything back."""

    _kind = "pool"

    def __init__(self, physical_limit: int, places: Optional[Places] = None) -> None:
        super().__init__()
        # Kept alive, since the library has pointers to them.
        self._callbacks: Dict[str, _capi.ModelOptions] = {}
        places = places or Places()
        in_c = places._in_c()
        pool = c_void_p()
        self._lib.shared_pool_create(whole("physical_limit", physical_limit), byref(in_c),
                                     byref(pool))
        self._handle = pool
        self._device = places.devices[0]

    def _end(self, handle: Any) -> None:
        self._lib.shared_pool_destroy(handle)

    def register_model(self, model: str, capacity: int, *, minimum: int = 0, maximum: int = 0,
                       priority: int = 0, reclaim: Optional[Callable[[int], object]] = None,
                       lost: Optional[Callable[[int, int], object]] = None) -> int:
        """The model's first address. `reclaim(wanted)` is to give memory back; `lost(offset, size)`
        says whose contents are gone. Both run on the thread that needs memory, and may call the
        pool; what they raise is printed."""
        options = _capi.ModelOptions(minimum=whole("minimum", minimum),
                                     maximum=whole("maximum", maximum),
                                     priority=signed("priority", priority))
        if reclaim is not None:
            options.reclaim = _capi.Reclaim(lambda _, __, wanted: reclaim(wanted))
        if lost is not None:
            options.lost = _capi.Lost(lambda _, __, offset, size: lost(offset, size))
        address = number_of(self._lib.shared_pool_register_model, self._open, model.encode(),
                          whole("capacity", capacity), byref(options))
        self._callbacks[model] = options
        return address

    def unregister_model(self, model: str) -> None:
        """Gives everything of the model back, after its fences and its callbacks."""
        # Remove it first: another thread may register the name again as soon as it is free.
        kept = self._callbacks.pop(model, None)
        try:
            self._lib.shared_pool_unregister_model(self._open, model.encode())
        except Exception:
            if kept is not None:
                self._callbacks.setdefault(model, kept)
            raise

    @contextmanager
    def model(self, model: str, capacity: int, *, minimum: int = 0, maximum: int = 0,
              priority: int = 0, reclaim: Optional[Callable[[int], object]] = None,
              lost: Optional[Callable[[int, int], object]] = None) -> Iterator[int]:
        """Registers the model, and unregisters it at the end of the `with` block."""
        base = self.register_model(model, capacity, minimum=minimum, maximum=maximum,
                                   priority=priority, reclaim=reclaim, lost=lost)
        try:
            yield base
        finally:
            if self.is_open:
                self.unregister_model(model)

    def allocate(self, model: str, size: int, *, movable: bool = False, evictable: bool = False
                 ) -> PoolAllocation:
        """Allocates where the model has room. Where the limit is reached, memory is reclaimed from
        others. Evictable bytes may be taken in turn, and are then no longer allocated."""
        size = whole("size", size)
        made = placed_by(self._lib.shared_pool_allocate, self._open, model.encode(), size,
                         traits(movable, evictable))
        return PoolAllocation(made.offset, made.address, size, self, model)

    def allocate_at(self, model: str, offset: int, size: int, *, movable: bool = False,
                    evictable: bool = False) -> PoolAllocation:
        """The same at that offset, which may be any."""
        offset, size = whole("offset", offset), whole("size", size)
        made = placed_by(self._lib.shared_pool_allocate_at, self._open, model.encode(), offset,
                         size, traits(movable, evictable))
        return PoolAllocation(made.offset, made.address, size, self, model)

    def deallocate(self, model: str, allocated: Union[PoolAllocation, int],
                   size: Optional[int] = None) -> None:
        """Gives back an allocation of the model, or any of its allocated bytes by their offset and
        size. Waits for the model's fences."""
        if isinstance(allocated, PoolAllocation):
            free_allocation(allocated, size, self, model)
        else:
            self._lib.shared_pool_deallocate(self._open, model.encode(),
                                             whole("offset", allocated), size_given(size))

    def array(self, model: str, shape: Shape, dtype: Any = "float32", *, evictable: bool = False
              ) -> DeviceArray:
        """Allocates an array for the model."""
        shape = dimensions(shape)
        made = self.allocate(model, size_of(shape, type_string(dtype)), evictable=evictable)
        return DeviceArray(made.address, shape, dtype, self._device, owner=self, allocation=made)

    def fence(self, model: str, stream: Any) -> None:
        """What the stream has been given so far uses the model's memory."""
        self._lib.shared_pool_fence(self._open, model.encode(), stream_handle(stream))

    def compact(self, model: str) -> Compaction:
        """Holds the model's bytes in less memory, as an elastic pool does."""
        return compaction_of(self._lib.shared_pool_compact, self._open, model.encode())

    def deactivate(self, model: str) -> None:
        """Unmaps all memory of the model, which then is what is taken first when others need
        memory. Waits for its fences."""
        self._lib.shared_pool_deactivate(self._open, model.encode())

    def activate(self, model: str) -> Activation:
        """Maps it at its old addresses, and says whether it is what it was."""
        activation = c_int32()
        self._lib.shared_pool_activate(self._open, model.encode(), byref(activation))
        return Activation(activation.value)

    @contextmanager
    def active(self, model: str) -> Iterator[Activation]:
        """Activates the model, and deactivates it at the end of the `with` block."""
        activation = self.activate(model)
        try:
            yield activation
        finally:
            if self.is_open:
                self.deactivate(model)

    def model_stats(self, model: str) -> ModelStats:
        """The model's figures."""
        stats = _capi.ModelStats()
        self._lib.shared_pool_get_model_stats(self._open, model.encode(), byref(stats))
        return fields(stats, ModelStats, memory=fields(stats.memory, ElasticPoolStats),
                      is_active=bool(stats.is_active))

    def stats(self) -> SharedPoolStats:
        """The pool's figures."""
        stats = _capi.SharedPoolStats()
        self._lib.shared_pool_get_stats(self._open, byref(stats))
        return fields(stats, SharedPoolStats)

    def trim(self) -> int:
        """Gives the cached memory of the pool's places back to the driver; how many bytes."""
        return self._lib.shared_pool_trim(self._open)
