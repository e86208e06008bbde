# SPDX-License-Identifier: Apache-2.0
"""Shared pools (docs/pools.md)."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from ctypes import byref, c_int32, c_void_p
from threading import Lock
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Union
from weakref import WeakSet, ref

from . import _capi
from ._checks import signed, stream_handle, text, whole
from ._fields import fields
from ._owned import Owned
from ._units import size as size_text
from .array import DeviceArray, Shape, dimensions, size_of, type_string
from .pool_allocation import (PoolAllocation, compaction_of, free_allocation, number_of, placed_by,
                              size_given, traits)
from .pool_facts import Activation, Compaction, ElasticPoolStats, ModelStats, SharedPoolStats
from .pool_places import Places


class SharedPool(Owned):
    """A pool in which every model has addresses, and the models in use have memory.

    `physical_limit` bounds the memory of all models together. Closing the pool waits for all
    fences, then releases everything.
    """

    _kind = "pool"

    def __init__(self, physical_limit: int, places: Optional[Places] = None) -> None:
        super().__init__()
        # Kept alive, since the library has pointers to them.
        self._callbacks: Dict[str, _capi.ModelOptions] = {}
        # A callback may unregister its own model, and then still has to return.
        self._last_unregistered: Deque[_capi.ModelOptions] = deque(maxlen=64)
        self._evictable: Dict[str, "WeakSet[PoolAllocation]"] = {}
        self._evictable_lock = Lock()
        places = places or Places()
        in_c = places._in_c()
        pool = c_void_p()
        self._lib.shared_pool_create(whole("physical_limit", physical_limit), byref(in_c),
                                     byref(pool))
        self._handle = pool
        self._device = places.devices[0]
        self._places = places

    def _end(self, handle: Any) -> None:
        self._lib.shared_pool_destroy(handle)

    def _describe(self) -> str:
        stats = self.stats()
        return (f"{stats.models} model{'' if stats.models == 1 else 's'}, "
                f"{size_text(stats.physical_bytes)} of at most {size_text(stats.physical_limit)} "
                f"of memory on {self._places._in_words()}")

    def register_model(self, model: str, capacity: int, *, minimum: int = 0, maximum: int = 0,
                       priority: int = 0, reclaim: Optional[Callable[[int], object]] = None,
                       lost: Optional[Callable[[int, int], object]] = None) -> int:
        """Registers a model with `capacity` bytes of addresses. Returns its first address.

        `minimum` bytes of physical memory are reserved for it, used or not. `maximum` limits its
        physical memory; 0 means the pool's limit. A model never loses memory to one of lower
        `priority`.

        `reclaim(wanted)` asks the model to release that many bytes. `lost(offset, size)` notifies
        it that these bytes have lost their contents. Both run on the thread that needs memory and
        may call the pool. Exceptions that they raise are printed and ignored.

        Raises ModelAlreadyExists if the name is taken.
        """
        options = _capi.ModelOptions(minimum=whole("minimum", minimum),
                                     maximum=whole("maximum", maximum),
                                     priority=signed("priority", priority))
        if reclaim is not None:
            options.reclaim = _capi.Reclaim(lambda _, __, wanted: reclaim(wanted))
        this = ref(self)

        def are_lost(_: Any, __: Any, offset: int, size: int) -> None:
            pool = this()
            if pool is not None:
                pool._forget_evicted(model, offset, size)
            if lost is not None:
                lost(offset, size)
        options.lost = _capi.Lost(are_lost)
        address = number_of(self._lib.shared_pool_register_model, self._open, text("model", model),
                          whole("capacity", capacity), byref(options))
        self._callbacks[model] = options
        return address

    def _forget_evicted(self, model: str, offset: int, size: int) -> None:
        """Marks allocations as freed whose bytes an eviction took: others may have them by now."""
        # An inactive model keeps its allocations, and loses only their contents.
        if not self.model_stats(model).is_active:
            return
        with self._evictable_lock:
            for one in list(self._evictable.get(model, ())):
                if one.offset < offset + size and offset < one.offset + one.size:
                    one._is_freed = True

    def _placed(self, made: _capi.PoolAllocation, size: int, model: str, evictable: bool
                ) -> PoolAllocation:
        allocation = PoolAllocation(made.offset, made.address, size, self, model)
        if evictable:
            with self._evictable_lock:
                self._evictable.setdefault(model, WeakSet()).add(allocation)
        return allocation

    def unregister_model(self, model: str) -> None:
        """Releases everything the model holds.

        Waits for the model's fences, and for its callbacks on other threads.
        """
        # Remove it first: another thread may register the name again as soon as it is free.
        kept = self._callbacks.pop(model, None)
        try:
            self._lib.shared_pool_unregister_model(self._open, text("model", model))
        except Exception:
            if kept is not None:
                self._callbacks.setdefault(model, kept)
            raise
        with self._evictable_lock:
            self._evictable.pop(model, None)
        if kept is not None:
            self._last_unregistered.append(kept)

    @contextmanager
    def model(self, model: str, capacity: int, *, minimum: int = 0, maximum: int = 0,
              priority: int = 0, reclaim: Optional[Callable[[int], object]] = None,
              lost: Optional[Callable[[int, int], object]] = None) -> Iterator[int]:
        """Registers the model, and unregisters it at the end of the `with` block.

        The value of the block is the model's first address.
        """
        base = self.register_model(model, capacity, minimum=minimum, maximum=maximum,
                                   priority=priority, reclaim=reclaim, lost=lost)
        try:
            yield base
        finally:
            if self.is_open:
                self.unregister_model(model)

    def allocate(self, model: str, size: int, *, movable: bool = False, evictable: bool = False
                 ) -> PoolAllocation:
        """Allocates `size` bytes at any free offset of the model.

        If the pool's limit is reached, memory is reclaimed from other models. `evictable` bytes may
        in turn be evicted, and are then no longer allocated: freeing the object does nothing then.
        Raises OutOfAddresses or OutOfPhysicalMemory if there is no room.
        """
        size = whole("size", size)
        made = placed_by(self._lib.shared_pool_allocate, self._open, text("model", model), size,
                         traits(movable, evictable))
        return self._placed(made, size, model, evictable)

    def allocate_at(self, model: str, offset: int, size: int, *, movable: bool = False,
                    evictable: bool = False) -> PoolAllocation:
        """Allocates like allocate(), but at exactly `offset`, which need not be aligned.

        Raises AlreadyMapped if any of these bytes is allocated or withheld.
        """
        offset, size = whole("offset", offset), whole("size", size)
        made = placed_by(self._lib.shared_pool_allocate_at, self._open, text("model", model), offset,
                         size, traits(movable, evictable))
        return self._placed(made, size, model, evictable)

    def deallocate(self, model: str, allocated: Union[PoolAllocation, int],
                   size: Optional[int] = None) -> None:
        """Frees a PoolAllocation of the model, or the `size` allocated bytes at an offset.

        Waits for the model's fences.
        """
        if isinstance(allocated, PoolAllocation):
            free_allocation(allocated, size, self, model)
        else:
            self._lib.shared_pool_deallocate(self._open, text("model", model),
                                             whole("offset", allocated), size_given(size))

    def array(self, model: str, shape: Shape, dtype: Any = "float32", *, evictable: bool = False
              ) -> DeviceArray:
        """Allocates an array for the model."""
        shape = dimensions(shape)
        made = self.allocate(model, size_of(shape, type_string(dtype)), evictable=evictable)
        return DeviceArray(made.address, shape, dtype, self._device, owner=self, allocation=made)

    def fence(self, model: str, stream: Any) -> None:
        """Declares that the work submitted to `stream` so far uses the model's memory.

        `stream` is as for ElasticPool.fence().
        """
        self._lib.shared_pool_fence(self._open, text("model", model), stream_handle(stream))

    def compact(self, model: str) -> Compaction:
        """Packs the model's allocated bytes into less memory, like ElasticPool.compact()."""
        return compaction_of(self._lib.shared_pool_compact, self._open, text("model", model))

    def deactivate(self, model: str) -> None:
        """Unmaps all of the model's memory and keeps it.

        When the pool reclaims from this model, it takes this memory first. Waits for the model's
        fences; no thread may submit work that uses the model's memory during the call.
        """
        self._lib.shared_pool_deactivate(self._open, text("model", model))

    def activate(self, model: str) -> Activation:
        """Maps the model's memory at its old addresses. Returns whether its contents were kept."""
        activation = c_int32()
        self._lib.shared_pool_activate(self._open, text("model", model), byref(activation))
        return Activation(activation.value)

    @contextmanager
    def active(self, model: str) -> Iterator[Activation]:
        """Activates the model, and deactivates it at the end of the `with` block.

        The value of the block says whether the model's contents were kept.
        """
        activation = self.activate(model)
        try:
            yield activation
        finally:
            if self.is_open:
                self.deactivate(model)

    def model_stats(self, model: str) -> ModelStats:
        """Returns the model's statistics."""
        stats = _capi.ModelStats()
        self._lib.shared_pool_get_model_stats(self._open, text("model", model), byref(stats))
        return fields(stats, ModelStats, memory=fields(stats.memory, ElasticPoolStats),
                      is_active=bool(stats.is_active))

    def stats(self) -> SharedPoolStats:
        """Returns the pool's statistics."""
        stats = _capi.SharedPoolStats()
        self._lib.shared_pool_get_stats(self._open, byref(stats))
        return fields(stats, SharedPoolStats)

    def trim(self) -> int:
        """Releases the cached memory of the pool's places to the driver.

        Returns the number of bytes released.
        """
        return self._lib.shared_pool_trim(self._open)
