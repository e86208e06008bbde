# SPDX-License-Identifier: Apache-2.0
"""Elastic and shared pools (docs/pools.md)."""

from __future__ import annotations

import enum
from contextlib import contextmanager
from ctypes import byref, c_int32, c_uint64, c_void_p
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Type, Union

from . import _capi
from ._checks import signed, stream_handle, whole
from ._fields import fields
from ._owned import Owned
from .array import DeviceArray, Shape, dimensions, size_of, type_string
from .errors import InvalidArgument

_MOVABLE = 1
_EVICTABLE = 2
_MOST_PLACES = 65


class Placement(enum.IntEnum):
    """Which place a granule is taken from first."""
    PACK = 0
    STRIPE = 1
    LOCAL_THEN_PEER = 2


class HostUse(enum.IntEnum):
    """Whether granules may lie in the host's memory."""
    NEVER = 0
    LAST = 1
    ONLY = 2


class Activation(enum.Enum):
    """What became of a model's contents while it was not active."""
    KEPT = 0
    LOST = 1


class Places:
    """Where pools take memory from; all devices may use all of it. Memory of `shareable` places can
    be granted to other processes (ShareHost.send_of_pool), and takes longer to make."""

    def __init__(self, devices: Iterable[int] = (0,), granule: int = 0,
                 placement: Placement = Placement.PACK, host: HostUse = HostUse.NEVER,
                 host_node: int = 0, shareable: bool = False) -> None:
        self.devices = tuple(whole("device", device, 31) for device in devices)
        if not self.devices:
            raise InvalidArgument("devices is empty: a pool needs one device at least")
        self.granule = whole("granule", granule)
        self.placement = Placement(placement)
        self.host = HostUse(host)
        self.host_node = signed("host_node", host_node)
        self.shareable = bool(shareable)

    def _in_c(self) -> _capi.Places:
        devices = (c_int32 * len(self.devices))(*self.devices)
        return _capi.Places(granule=self.granule, devices=devices, device_count=len(self.devices),
                            placement=self.placement, host=self.host, host_node=self.host_node,
                            shareable=int(self.shareable))


class Move(NamedTuple):
    """A movable allocation that compaction has given another offset."""
    old_offset: int
    new_offset: int
    size: int


class Compaction(NamedTuple):
    """What a compaction has moved, and the bytes it has given back."""
    moves: List[Move]
    physical_released: int
    cached_released: int


class PlaceStats(NamedTuple):
    """The pool's bytes on one device, or on one NUMA node of the host."""
    is_host: bool
    id: int
    physical_bytes: int


class ElasticPoolStats(NamedTuple):
    """A pool in bytes. Fragmentation is 1 - largest_free / free_bytes, of addresses."""
    capacity: int
    allocated_bytes: int
    physical_bytes: int
    mapped_granules: int
    free_bytes: int
    largest_free: int
    fragmentation: float


class ModelStats(NamedTuple):
    """A model of a shared pool. A maximum of 2**64 - 1 is the pool's limit."""
    memory: ElasticPoolStats
    base_address: int
    minimum: int
    maximum: int
    priority: int
    is_active: bool


class SharedPoolStats(NamedTuple):
    """A shared pool in bytes."""
    physical_limit: int
    physical_bytes: int
    cached_bytes: int
    models: int
    granule: int


class PoolAllocation:
    """Bytes allocated in a pool: the pool's calls take the offset, kernels and the driver the
    address. A context manager that frees them. Compaction that moves them reports their new offset,
    and does not change this object."""

    def __init__(self, offset: int, address: int, size: int, pool: Owned, model: str = "") -> None:
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
        """Gives the bytes back, after the pool's fences. A second time does nothing."""
        pool, model = self._of
        if self._is_freed or not pool.is_open:
            return
        if isinstance(pool, SharedPool):
            pool.deallocate(model, self.offset, self.size)
        elif isinstance(pool, ElasticPool):
            pool.deallocate(self.offset, self.size)
        self._is_freed = True


def _free(allocation: PoolAllocation, size: Optional[int], pool: Owned, model: str = "") -> None:
    """Frees an allocation that is to be one of this pool and model, and all of it."""
    if size is not None:
        raise TypeError("an allocation has a size of its own")
    if allocation._of != (pool, model):
        raise InvalidArgument("the allocation is of another pool or model")
    allocation.free()


def _size(size: Optional[int]) -> int:
    if size is None:
        raise TypeError("an offset needs a size")
    return whole("size", size)


def _traits(movable: bool, evictable: bool) -> int:
    return (_MOVABLE if movable else 0) | (_EVICTABLE if evictable else 0)


def _number(call: Callable[..., None], *arguments: Any) -> int:
    number = c_uint64()
    call(*arguments, byref(number))
    return number.value


def _compaction(call: Callable[..., None], *arguments: Any) -> Compaction:
    moves: List[Move] = []
    counts = _capi.Compaction()

    @_capi.Moved
    def moved(_: Any, move: Any) -> None:
        one = move.contents
        moves.append(Move(one.from_, one.to, one.size))

    call(*arguments, moved, None, byref(counts))
    return Compaction(moves, counts.physical_released, counts.cached_released)


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
        offset = _number(self._lib.elastic_pool_allocate, self._open, size, _traits(movable, False))
        return PoolAllocation(offset, self.base_address + offset, size, self)

    def allocate_at(self, offset: int, size: int, *, movable: bool = False) -> PoolAllocation:
        """Allocates at that offset, which may be any."""
        offset, size = whole("offset", offset), whole("size", size)
        address = _number(self._lib.elastic_pool_allocate_at, self._open, offset, size,
                          _traits(movable, False))
        return PoolAllocation(offset, address, size, self)

    def deallocate(self, allocated: Union[PoolAllocation, int], size: Optional[int] = None) -> None:
        """Gives back an allocation, or any allocated bytes by their offset and size. Waits for the
        pool's fences."""
        if isinstance(allocated, PoolAllocation):
            _free(allocated, size, self)
        else:
            self._lib.elastic_pool_deallocate(self._open, whole("offset", allocated), _size(size))

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
        return _compaction(self._lib.elastic_pool_compact, self._open)

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


class SharedPool(Owned):
    """Many models' addresses over memory for those that work now. Its end waits for all fences and
    gives everything back."""

    _kind = "pool"

    def __init__(self, physical_limit: int, places: Optional[Places] = None) -> None:
        super().__init__()
        self._callbacks: Dict[str, _capi.ModelOptions] = {}  # what the library has pointers to
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
        address = _number(self._lib.shared_pool_register_model, self._open, model.encode(),
                          whole("capacity", capacity), byref(options))
        self._callbacks[model] = options
        return address

    def unregister_model(self, model: str) -> None:
        """Gives everything of the model back, after its fences and its callbacks."""
        # Taken out first: another thread may register the name anew as soon as it is free.
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
        offset = _number(self._lib.shared_pool_allocate, self._open, model.encode(), size,
                         _traits(movable, evictable))
        base = self.model_stats(model).base_address
        return PoolAllocation(offset, base + offset, size, self, model)

    def allocate_at(self, model: str, offset: int, size: int, *, movable: bool = False,
                    evictable: bool = False) -> PoolAllocation:
        """The same at that offset, which may be any."""
        offset, size = whole("offset", offset), whole("size", size)
        address = _number(self._lib.shared_pool_allocate_at, self._open, model.encode(), offset,
                          size, _traits(movable, evictable))
        return PoolAllocation(offset, address, size, self, model)

    def deallocate(self, model: str, allocated: Union[PoolAllocation, int],
                   size: Optional[int] = None) -> None:
        """Gives back an allocation of the model, or any of its allocated bytes by their offset and
        size. Waits for the model's fences."""
        if isinstance(allocated, PoolAllocation):
            _free(allocated, size, self, model)
        else:
            self._lib.shared_pool_deallocate(self._open, model.encode(),
                                             whole("offset", allocated), _size(size))

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
        return _compaction(self._lib.shared_pool_compact, self._open, model.encode())

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
