# SPDX-License-Identifier: Apache-2.0
"""ctypes bindings of libcuvmm's C API: structs, functions and the search for the library."""

from __future__ import annotations

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int32,
                    c_uint32, c_uint64, c_void_p)
from typing import Any, Callable, Iterator, Optional

from . import places
from .errors import BY_STATUS, CuvmmError

SONAME = "libcuvmm.so.0"


class Error(Structure):
    _fields_ = [("status", c_int32), ("driver_code", c_int32), ("system_code", c_int32),
                ("reserved0", c_int32), ("offset", c_uint64), ("size", c_uint64),
                ("capacity", c_uint64), ("requested", c_uint64), ("available", c_uint64),
                ("reserved", c_uint64 * 8), ("model", c_char * 128), ("message", c_char * 256)]


class EngineInfo(Structure):
    _fields_ = [("kind", c_int32), ("mode", c_int32), ("version", c_uint32),
                ("driver_version", c_int32), ("device_count", c_int32), ("reserved", c_int32 * 11)]


class DeviceInfo(Structure):
    _fields_ = [("granule", c_uint64), ("memory", c_uint64), ("limit", c_uint64),
                ("physical_in_use", c_uint64), ("physical_cached", c_uint64),
                ("reserved", c_uint64 * 11)]


class Places(Structure):
    _fields_ = [("granule", c_uint64), ("devices", POINTER(c_int32)), ("device_count", c_uint64),
                ("placement", c_int32), ("host", c_int32), ("host_node", c_int32),
                ("shareable", c_int32), ("reserved", c_uint64 * 8)]


class ElasticPoolOptions(Structure):
    _fields_ = [("places", Places), ("most_capacity", c_uint64), ("physical_limit", c_uint64),
                ("reserved", c_uint64 * 8)]


class Move(Structure):
    _fields_ = [("from_", c_uint64), ("to", c_uint64), ("size", c_uint64)]


class Compaction(Structure):
    _fields_ = [("moves", c_uint64), ("physical_released", c_uint64),
                ("cached_released", c_uint64), ("reserved", c_uint64 * 5)]


class ElasticPoolStats(Structure):
    _fields_ = [("capacity", c_uint64), ("allocated_bytes", c_uint64),
                ("physical_bytes", c_uint64), ("mapped_granules", c_uint64),
                ("free_bytes", c_uint64), ("largest_free", c_uint64), ("fragmentation", c_double),
                ("reserved", c_uint64 * 8)]


class PlaceStats(Structure):
    _fields_ = [("is_host", c_int32), ("id", c_int32), ("physical_bytes", c_uint64)]


Moved = CFUNCTYPE(None, c_void_p, POINTER(Move))
Reclaim = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64)
Lost = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64)


class ModelOptions(Structure):
    _fields_ = [("minimum", c_uint64), ("maximum", c_uint64), ("priority", c_int32),
                ("reserved0", c_int32), ("reclaim", Reclaim), ("lost", Lost), ("user", c_void_p),
                ("reserved", c_uint64 * 8)]


class ModelStats(Structure):
    _fields_ = [("memory", ElasticPoolStats), ("base_address", c_uint64), ("minimum", c_uint64),
                ("maximum", c_uint64), ("priority", c_int32), ("is_active", c_int32),
                ("reserved", c_uint64 * 8)]


class SharedPoolStats(Structure):
    _fields_ = [("physical_limit", c_uint64), ("physical_bytes", c_uint64),
                ("cached_bytes", c_uint64), ("models", c_uint64), ("granule", c_uint64),
                ("reserved", c_uint64 * 8)]


class SharedBufferOptions(Structure):
    _fields_ = [("device", c_int32), ("reserved0", c_int32), ("size", c_uint64),
                ("chunk_size", c_uint64), ("reserved", c_uint64 * 5)]


class SharedBufferInfo(Structure):
    _fields_ = [("address", c_uint64), ("size", c_uint64), ("granule", c_uint64),
                ("chunk_size", c_uint64), ("chunk_count", c_uint64), ("reserved", c_uint64 * 3)]


class ShareEvent(Structure):
    _fields_ = [("kind", c_int32), ("status", c_uint32), ("peer", c_uint64), ("grant", c_uint64),
                ("reserved", c_uint64 * 5)]


class ShareGrant(Structure):
    _fields_ = [("first_chunk", c_uint64), ("chunk_count", c_uint64), ("tag", c_uint64),
                ("access", c_int32), ("reserved0", c_int32), ("reserved", c_uint64 * 4)]


class SharedImportInfo(Structure):
    _fields_ = [("grant", c_uint64), ("size", c_uint64), ("chunk_count", c_uint64),
                ("tag", c_uint64), ("access", c_int32), ("device", c_int32),
                ("descriptor", c_int32), ("reserved0", c_int32), ("reserved", c_uint64 * 4)]


class ResizableInfo(Structure):
    _fields_ = [("size", c_uint64), ("most", c_uint64), ("physical_bytes", c_uint64),
                ("reserved", c_uint64 * 5)]


class ResizeInfo(Structure):
    _fields_ = [("elided_copies", c_uint64), ("elided_bytes", c_uint64), ("run_copies", c_uint64),
                ("reserved", c_uint64 * 5)]


class ClientFigures(Structure):
    _fields_ = [("operations", c_uint64), ("bytes", c_uint64), ("queued_ns", c_uint64),
                ("longest_queued_ns", c_uint64), ("device_ns", c_uint64),
                ("waits_for_room", c_uint64), ("reserved", c_uint64 * 10)]


class PauseReport(Structure):
    _fields_ = [("moved", c_uint64), ("stayed", c_uint64), ("took_us", c_uint64),
                ("held_us", c_uint64), ("drain_us", c_uint64), ("host_us", c_uint64),
                ("copies_us", c_uint64), ("maps_us", c_uint64), ("chunks_us", c_uint64),
                ("reserved", c_uint64 * 7), ("why", c_char * 128)]


class AwayInfo(Structure):
    _fields_ = [("is_paused", c_uint64), ("paused_bytes", c_uint64), ("ready_bytes", c_uint64),
                ("spilled_bytes", c_uint64), ("spilled_cached", c_uint64),
                ("reserved", c_uint64 * 11)]


class PoolAllocation(Structure):
    _fields_ = [("offset", c_uint64), ("address", c_uint64), ("size", c_uint64)]


POOL = c_void_p
OBJECT = c_void_p  # any other object created by the library
MADE = POINTER(c_void_p)
CLIENT = c_uint32
NUMBER = POINTER(c_uint64)
ALLOCATION = POINTER(PoolAllocation)
CALLBACK_MOVED = (Moved, c_void_p, POINTER(Compaction))

# Calls that return a status. Each takes a cuvmm_error* after these arguments.
CHECKED = {
    "get_engine_info": (POINTER(EngineInfo),),
    "get_device_info": (c_int32, POINTER(DeviceInfo)),
    "elastic_pool_create": (c_uint64, POINTER(ElasticPoolOptions), POINTER(POOL)),
    "elastic_pool_allocate": (POOL, c_uint64, c_uint32, ALLOCATION),
    "elastic_pool_allocate_at": (POOL, c_uint64, c_uint64, c_uint32, ALLOCATION),
    "elastic_pool_deallocate": (POOL, c_uint64, c_uint64),
    "elastic_pool_grow": (POOL, c_uint64),
    "elastic_pool_fence": (POOL, c_void_p),
    "elastic_pool_compact": (POOL, *CALLBACK_MOVED),
    "shared_pool_create": (c_uint64, POINTER(Places), POINTER(POOL)),
    "shared_pool_register_model": (POOL, c_char_p, c_uint64, POINTER(ModelOptions), NUMBER),
    "shared_pool_unregister_model": (POOL, c_char_p),
    "shared_pool_allocate": (POOL, c_char_p, c_uint64, c_uint32, ALLOCATION),
    "shared_pool_allocate_at": (POOL, c_char_p, c_uint64, c_uint64, c_uint32, ALLOCATION),
    "shared_pool_deallocate": (POOL, c_char_p, c_uint64, c_uint64),
    "shared_pool_fence": (POOL, c_char_p, c_void_p),
    "shared_pool_compact": (POOL, c_char_p, *CALLBACK_MOVED),
    "shared_pool_deactivate": (POOL, c_char_p),
    "shared_pool_activate": (POOL, c_char_p, POINTER(c_int32)),
    "shared_pool_get_model_stats": (POOL, c_char_p, POINTER(ModelStats)),
    "shared_buffer_create": (POINTER(SharedBufferOptions), MADE),
    "shared_buffer_map": (OBJECT, NUMBER),
    "get_shared_buffer_info": (OBJECT, POINTER(SharedBufferInfo)),
    "shared_buffer_export": (OBJECT, c_uint64, POINTER(c_int32)),
    "shared_buffer_destroy": (OBJECT,),
    "share_listen": (c_char_p, MADE),
    "share_wait": (OBJECT, c_uint64, POINTER(ShareEvent)),
    "share_send": (OBJECT, c_uint64, OBJECT, POINTER(ShareGrant), NUMBER),
    "share_send_of_pool": (OBJECT, c_uint64, POOL, c_uint64, c_uint64, POINTER(ShareGrant), NUMBER),
    "share_stop": (OBJECT,),
    "share_connect": (c_char_p, c_uint64, MADE),
    "share_receive": (OBJECT, c_uint64, MADE),
    "get_shared_import_info": (OBJECT, POINTER(SharedImportInfo)),
    "shared_import_map": (OBJECT, c_int32, c_uint64, MADE, NUMBER),
    "shared_mapping_unmap": (OBJECT,),
    "share_acknowledge": (OBJECT, OBJECT, c_uint32, c_uint64),
    "share_release": (OBJECT, OBJECT, c_uint64),
    "share_disconnect": (OBJECT,),
    "reserve_resizable": (c_int32, c_uint64, NUMBER),
    "resize": (c_uint64, c_uint64),
    "resize_ordered": (c_uint64, c_uint64, c_void_p),
    "get_resizable_info": (c_uint64, POINTER(ResizableInfo)),
    "release_resizable": (c_uint64,),
    "release_resizable_ordered": (c_uint64, c_void_p),
    "get_resize_info": (POINTER(ResizeInfo),),
    "set_policy": (c_int32,),
    "client_create": (c_char_p, c_int32, c_int32, POINTER(CLIENT)),
    "client_destroy": (CLIENT,),
    "client_bind": (CLIENT,),
    "client_bind_others": (CLIENT,),
    "client_unbind": (),
    "client_get_figures": (CLIENT, POINTER(ClientFigures)),
    "pause": (c_uint64, c_uint32, POINTER(PauseReport)),
    "resume": (c_uint32, POINTER(PauseReport)),
    "get_away_info": (POINTER(AwayInfo),),
}

# Calls that cannot fail: result type, then argument types.
PLAIN = {
    "version": (c_uint32,),
    "status_name": (c_char_p, c_int32),
    "elastic_pool_destroy": (None, POOL),
    "elastic_pool_base_address": (c_uint64, POOL),
    "elastic_pool_capacity": (c_uint64, POOL),
    "elastic_pool_granule": (c_uint64, POOL),
    "elastic_pool_is_mapped": (c_int32, POOL, c_uint64, c_uint64),
    "elastic_pool_trim": (c_uint64, POOL),
    "elastic_pool_get_stats": (None, POOL, POINTER(ElasticPoolStats)),
    "elastic_pool_get_places": (c_uint64, POOL, POINTER(PlaceStats), c_uint64),
    "shared_pool_destroy": (None, POOL),
    "shared_pool_get_stats": (None, POOL, POINTER(SharedPoolStats)),
    "shared_pool_trim": (c_uint64, POOL),
}


def candidates() -> Iterator[str]:
    """Yields the paths at which to look for libcuvmm, in order.

    CUVMM_LIBRARY, if set, is the only one. Otherwise they are the wheel, installation or build tree
    that contains this package, then the loader's own search path.
    """
    named = os.environ.get("CUVMM_LIBRARY")
    if named:
        yield named
        return
    yield from places.library_candidates(SONAME)
    yield SONAME


class Library:
    """The loaded library, with one method per C function, named without the cuvmm_ prefix.

    Methods of functions in CHECKED return None and raise a CuvmmError on failure.
    """

    def __init__(self) -> None:
        self.path, self.handle = self._open()
        for name, arguments in CHECKED.items():
            setattr(self, name, self._checked(name, arguments))
        for name, (answer, *taken) in PLAIN.items():
            function = getattr(self.handle, "cuvmm_" + name)
            function.restype = answer
            function.argtypes = taken
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"libcuvmm has no call {name}")

    @staticmethod
    def _open() -> tuple[str, ctypes.CDLL]:
        why: Optional[OSError] = None
        for path in candidates():
            if "/" in path and not os.path.exists(path):
                continue
            try:
                return path, ctypes.CDLL(path)
            except OSError as error:
                why = error
        raise CuvmmError(f"{SONAME} cannot be loaded ({why or 'there is no such file'}); "
                         "CUVMM_LIBRARY can name it") from why

    def _checked(self, name: str, arguments: tuple[Any, ...]) -> Callable[..., None]:
        function = getattr(self.handle, "cuvmm_" + name)
        function.restype = c_int32
        function.argtypes = (*arguments, POINTER(Error))

        def call(*given: Any) -> None:
            error = Error()
            status = function(*given, byref(error))
            if status != 0:
                raise raised(status, error)

        return call


def raised(status: int, error: Error) -> CuvmmError:
    """Returns the exception for a status and the error details that came with it."""
    kind = BY_STATUS.get(status, CuvmmError)
    return kind(error.message.decode(errors="replace"), driver_code=error.driver_code,
                system_code=error.system_code, offset=error.offset, size=error.size,
                capacity=error.capacity, requested=error.requested, available=error.available,
                model=error.model.decode(errors="replace"))


_library: Optional[Library] = None


def library() -> Library:
    """Returns libcuvmm, loading it on the first call."""
    global _library
    if _library is None:
        _library = Library()
    return _library
