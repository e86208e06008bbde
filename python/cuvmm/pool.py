# SPDX-License-Identifier: Apache-2.0
"""Elastic and shared pools (docs/pools.md)."""

import ctypes
import enum
import operator
from collections import namedtuple
from ctypes import byref, c_int32, c_uint64, c_void_p

from . import _capi
from .array import DeviceArray, size_of, type_string
from .errors import InvalidArgument


def _whole(name, value, bits=64):
    """`value` as a number that C has room for: ctypes would cut it off in silence."""
    number = operator.index(value)
    if number < 0:
        raise InvalidArgument(f"{name} is negative: {number}")
    if number >> bits:
        raise OverflowError(f"{name} does not fit into {bits} bits: {number}")
    return number


def _signed(name, value):
    number = operator.index(value)
    if not -2**31 <= number < 2**31:
        raise OverflowError(f"{name} does not fit into 32 bits: {number}")
    return number


def _stream(stream):
    return _whole("stream", stream) if hasattr(stream, "__index__") else stream


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
    """Where pools take memory from; all devices may use all of it."""

    def __init__(self, devices=(0,), granule=0, placement=Placement.PACK, host=HostUse.NEVER,
                 host_node=0):
        self.devices = tuple(_whole("device", device, 31) for device in devices)
        if not self.devices:
            raise InvalidArgument("devices is empty: a pool needs one device at least")
        self.granule = _whole("granule", granule)
        self.placement = Placement(placement)
        self.host = HostUse(host)
        self.host_node = _signed("host_node", host_node)

    def _in_c(self):
        devices = (c_int32 * len(self.devices))(*self.devices)
        return _capi.Places(granule=self.granule, devices=devices, device_count=len(self.devices),
                            placement=self.placement, host=self.host, host_node=self.host_node)


Move = namedtuple("Move", "old_offset new_offset size")
Compaction = namedtuple("Compaction", "moves physical_released cached_released")
PlaceStats = namedtuple("PlaceStats", "is_host id physical_bytes")


def _fields(struct):
    """A ctypes struct as a named tuple, without what is reserved."""
    values = {}
    for name, kind in struct._fields_:
        if not name.startswith("reserved"):
            value = getattr(struct, name)
            values[name] = _fields(value) if issubclass(kind, ctypes.Structure) else value
    return namedtuple(type(struct).__name__, values)(**values)


def engine_info():
    """Which engine this process has: kind 1 is the preload library's."""
    info = _capi.EngineInfo()
    _capi.library().get_engine_info(byref(info))
    return _fields(info)


def device_info(device=0):
    """A device's physical memory as this process has it."""
    info = _capi.DeviceInfo()
    _capi.library().get_device_info(_signed("device", device), byref(info))
    return _fields(info)


def _traits(movable, evictable):
    return (1 if movable else 0) | (2 if evictable else 0)


def _number(call, *arguments):
    number = c_uint64()
    call(*arguments, byref(number))
    return number.value


def _compaction(call, *arguments):
    moves = []
    counts = _capi.Compaction()

    @_capi.Moved
    def moved(_, move):
        one = move.contents
        moves.append(Move(one.from_, one.to, one.size))

    call(*arguments, moved, None, byref(counts))
    return Compaction(moves, counts.physical_released, counts.cached_released)


class _Owner:
    """What owns a pool of the library: a context manager, and gives it back when it ends."""

    _destroy = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self):
        """Waits for the fences and gives everything back. A second time does nothing."""
        pool, self._pool = getattr(self, "_pool", None), None
        if pool:
            getattr(self._lib, self._destroy)(pool)

    @property
    def _open(self):
        if not self._pool:
            raise InvalidArgument("the pool is closed")
        return self._pool


class ElasticPool(_Owner):
    """Addresses whose memory comes as it is allocated, and goes with a granule's last byte."""

    _destroy = "elastic_pool_destroy"

    def __init__(self, capacity, places=None, *, most_capacity=0, physical_limit=0):
        self._pool = None
        self._lib = _capi.library()
        places = places or Places()
        options = _capi.ElasticPoolOptions(
            places=places._in_c(), most_capacity=_whole("most_capacity", most_capacity),
            physical_limit=_whole("physical_limit", physical_limit))
        pool = c_void_p()
        self._lib.elastic_pool_create(_whole("capacity", capacity), byref(options), byref(pool))
        self._pool = pool
        self._device = places.devices[0]

    @property
    def base_address(self):
        return self._lib.elastic_pool_base_address(self._open)

    @property
    def capacity(self):
        return self._lib.elastic_pool_capacity(self._open)

    @property
    def granule(self):
        return self._lib.elastic_pool_granule(self._open)

    def allocate(self, size, *, movable=False):
        """Finds a place. Its offset."""
        return _number(self._lib.elastic_pool_allocate, self._open, _whole("size", size),
                       _traits(movable, False))

    def allocate_at(self, offset, size, *, movable=False):
        """At that offset. Its address."""
        return _number(self._lib.elastic_pool_allocate_at, self._open, _whole("offset", offset),
                       _whole("size", size), _traits(movable, False))

    def deallocate(self, offset, size):
        self._lib.elastic_pool_deallocate(self._open, _whole("offset", offset),
                                          _whole("size", size))

    def array(self, shape, dtype="float32", *, offset=None):
        """Allocates an array, at that offset or where there is room."""
        shape = shape if hasattr(shape, "__iter__") else (shape,)
        size = size_of(shape, type_string(dtype))
        if offset is None:
            offset = self.allocate(size)
        else:
            self.allocate_at(offset, size)
        return DeviceArray(self.base_address + offset, offset, shape, dtype, self._device,
                           self.deallocate)

    def is_mapped(self, offset, size=1):
        return self._lib.elastic_pool_is_mapped(self._open, _whole("offset", offset),
                                                _whole("size", size)) != 0

    def grow(self, capacity):
        self._lib.elastic_pool_grow(self._open, _whole("capacity", capacity))

    def trim(self):
        return self._lib.elastic_pool_trim(self._open)

    def fence(self, stream):
        """`stream`: a CUstream as a number (torch: stream.cuda_stream, cupy: stream.ptr)."""
        self._lib.elastic_pool_fence(self._open, _stream(stream))

    def compact(self):
        return _compaction(self._lib.elastic_pool_compact, self._open)

    def stats(self):
        stats = _capi.ElasticPoolStats()
        self._lib.elastic_pool_get_stats(self._open, byref(stats))
        return _fields(stats)

    def places(self):
        most = 65
        places = (_capi.PlaceStats * most)()
        count = self._lib.elastic_pool_get_places(self._open, places, most)
        return [PlaceStats(bool(one.is_host), one.id, one.physical_bytes)
                for one in places[:count]]


class SharedPool(_Owner):
    """Many models' addresses over memory for those that work now."""

    _destroy = "shared_pool_destroy"

    def __init__(self, physical_limit, places=None):
        self._pool = None
        self._lib = _capi.library()
        self._callbacks = {}  # by model: what the library has pointers to
        places = places or Places()
        in_c = places._in_c()
        pool = c_void_p()
        limit = _whole("physical_limit", physical_limit)
        self._lib.shared_pool_create(limit, byref(in_c), byref(pool))
        self._pool = pool
        self._device = places.devices[0]

    def register_model(self, model, capacity, *, minimum=0, maximum=0, priority=0, reclaim=None,
                       lost=None):
        """The model's first address. `reclaim(wanted)` is to give memory back; `lost(offset, size)`
        is told whose contents are gone. Both run on the thread of who needs memory."""
        options = _capi.ModelOptions(minimum=_whole("minimum", minimum),
                                     maximum=_whole("maximum", maximum),
                                     priority=_signed("priority", priority))
        if reclaim is not None:
            options.reclaim = _capi.Reclaim(lambda _, __, wanted: reclaim(wanted))
        if lost is not None:
            options.lost = _capi.Lost(lambda _, __, offset, size: lost(offset, size))
        address = _number(self._lib.shared_pool_register_model, self._open, model.encode(),
                          _whole("capacity", capacity), byref(options))
        self._callbacks[model] = options
        return address

    def unregister_model(self, model):
        self._lib.shared_pool_unregister_model(self._open, model.encode())
        self._callbacks.pop(model, None)

    def allocate(self, model, size, *, movable=False, evictable=False):
        return _number(self._lib.shared_pool_allocate, self._open, model.encode(),
                       _whole("size", size), _traits(movable, evictable))

    def allocate_at(self, model, offset, size, *, movable=False, evictable=False):
        return _number(self._lib.shared_pool_allocate_at, self._open, model.encode(),
                       _whole("offset", offset), _whole("size", size), _traits(movable, evictable))

    def deallocate(self, model, offset, size):
        self._lib.shared_pool_deallocate(self._open, model.encode(), _whole("offset", offset),
                                         _whole("size", size))

    def array(self, model, shape, dtype="float32", *, evictable=False):
        """Allocates an array for the model."""
        shape = shape if hasattr(shape, "__iter__") else (shape,)
        offset = self.allocate(model, size_of(shape, type_string(dtype)), evictable=evictable)
        base = self.model_stats(model).base_address
        return DeviceArray(base + offset, offset, shape, dtype, self._device,
                           lambda at, size: self.deallocate(model, at, size))

    def fence(self, model, stream):
        self._lib.shared_pool_fence(self._open, model.encode(), _stream(stream))

    def compact(self, model):
        return _compaction(self._lib.shared_pool_compact, self._open, model.encode())

    def deactivate(self, model):
        self._lib.shared_pool_deactivate(self._open, model.encode())

    def activate(self, model):
        activation = c_int32()
        self._lib.shared_pool_activate(self._open, model.encode(), byref(activation))
        return Activation(activation.value)

    def model_stats(self, model):
        stats = _capi.ModelStats()
        self._lib.shared_pool_get_model_stats(self._open, model.encode(), byref(stats))
        return _fields(stats)

    def stats(self):
        stats = _capi.SharedPoolStats()
        self._lib.shared_pool_get_stats(self._open, byref(stats))
        return _fields(stats)

    def trim(self):
        return self._lib.shared_pool_trim(self._open)
