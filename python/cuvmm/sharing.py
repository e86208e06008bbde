# SPDX-License-Identifier: Apache-2.0
"""Memory of one process in another (docs/sharing.md). Timeouts are in seconds."""

from __future__ import annotations

import enum
import os
import weakref
from ctypes import byref, c_int32, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional, Union

from . import _capi
from ._checks import microseconds, signed, whole
from ._fields import fields
from ._owned import Owned
from .array import DeviceArray, Shape
from .errors import CuvmmError, InvalidArgument
from .elastic_pool import ElasticPool

Path = Union[str, "os.PathLike[str]"]


class Access(enum.IntEnum):
    """What an importer may do with granted memory."""
    READ_WRITE = 0
    READ_ONLY = 1


class ShareEventKind(enum.IntEnum):
    """What an importer has done."""
    CAME = 1
    FETCHED = 2
    ACKNOWLEDGED = 3
    RELEASED = 4
    LEFT = 5


class ShareEvent(NamedTuple):
    """What the importer `peer` has done, with which grant; `status` is what it acknowledges."""
    kind: ShareEventKind
    peer: int
    grant: int
    status: int


class SharedBufferInfo(NamedTuple):
    """A buffer as it was made; the address is 0 until it is mapped."""
    address: int
    size: int
    granule: int
    chunk_size: int
    chunk_count: int


class SharedImportInfo(NamedTuple):
    """What was granted: `device` as this process counts devices."""
    grant: int
    size: int
    chunk_count: int
    tag: int
    access: Access
    device: int


def _path(path: Optional[Path]) -> Optional[bytes]:
    return None if path is None else os.fsencode(path)


def _view(address: int, size: int, device: int, owner: Owned, shape: Optional[Shape],
          dtype: Any, is_read_only: bool = False) -> DeviceArray:
    """All of `owner`'s memory as bytes, or what a shape and a type take of it."""
    array = DeviceArray(address, size if shape is None else shape,
                        "uint8" if shape is None else dtype, device, owner=owner,
                        is_read_only=is_read_only)
    if array.nbytes > size:
        raise InvalidArgument(f"an array of {array.nbytes} bytes in memory of {size}")
    return array


class SharedBuffer(Owned):
    """The exporter's memory, in chunks that can be granted. What importers hold of it stays theirs
    after its end."""

    _kind = "buffer"

    def __init__(self, size: int, *, device: int = 0, chunk_size: int = 0) -> None:
        super().__init__()
        self._device = signed("device", device)
        options = _capi.SharedBufferOptions(device=self._device, size=whole("size", size),
                                            chunk_size=whole("chunk_size", chunk_size))
        buffer = c_void_p()
        self._lib.shared_buffer_create(byref(options), byref(buffer))
        self._handle = buffer

    def _end(self, handle: Any) -> None:
        self._lib.shared_buffer_destroy(handle)

    def map(self) -> int:
        """Maps it for its device; the address. Once."""
        address = c_uint64()
        self._lib.shared_buffer_map(self._open, byref(address))
        return address.value

    def info(self) -> SharedBufferInfo:
        """Its size, its chunks and its address."""
        info = _capi.SharedBufferInfo()
        self._lib.get_shared_buffer_info(self._open, byref(info))
        return fields(info, SharedBufferInfo)

    def array(self, shape: Optional[Shape] = None, dtype: Any = "float32") -> DeviceArray:
        """Its first bytes as an array, all of them as uint8 where no shape is given. It has to be
        mapped."""
        info = self.info()
        if info.address == 0:
            raise InvalidArgument("the buffer is not mapped")
        return _view(info.address, info.size, self._device, self, shape, dtype)

    def export_chunk(self, chunk: int) -> int:
        """A file descriptor of one chunk, which the caller closes."""
        descriptor = c_int32()
        self._lib.shared_buffer_export(self._open, whole("chunk", chunk), byref(descriptor))
        return descriptor.value


class ShareHost(Owned):
    """The exporter's socket: at `path`, or at the place where importers of the same user look.
    After its end importers keep the memory they have."""

    _kind = "host"

    def __init__(self, path: Optional[Path] = None) -> None:
        super().__init__()
        host = c_void_p()
        self._lib.share_listen(_path(path), byref(host))
        self._handle = host

    def _end(self, handle: Any) -> None:
        self._lib.share_stop(handle)

    def wait(self, timeout: float) -> ShareEvent:
        """The next event; TimedOut where there is none. Importers are served in here alone."""
        event = _capi.ShareEvent()
        self._lib.share_wait(self._open, microseconds(timeout), byref(event))
        return fields(event, ShareEvent, kind=ShareEventKind(event.kind))

    def send(self, peer: int, buffer: SharedBuffer, *, first_chunk: int = 0, chunk_count: int = 0,
             access: Access = Access.READ_WRITE, tag: int = 0) -> int:
        """Grants chunks of a buffer, all from the first one on where no count is given; the grant's
        number. NotFound where the importer has gone."""
        grant = _capi.ShareGrant(first_chunk=whole("first_chunk", first_chunk),
                                 chunk_count=whole("chunk_count", chunk_count),
                                 tag=whole("tag", tag), access=Access(access))
        number = c_uint64()
        self._lib.share_send(self._open, whole("peer", peer), buffer._open, byref(grant),
                             byref(number))
        return number.value

    def send_of_pool(self, peer: int, pool: ElasticPool, offset: int, size: int, *,
                     access: Access = Access.READ_WRITE, tag: int = 0) -> int:
        """The same of a pool whose places are shareable: whole granules, allocated to the last
        byte."""
        grant = _capi.ShareGrant(tag=whole("tag", tag), access=Access(access))
        number = c_uint64()
        self._lib.share_send_of_pool(self._open, whole("peer", peer), pool._open,
                                     whole("offset", offset), whole("size", size), byref(grant),
                                     byref(number))
        return number.value


class SharedMapping(Owned):
    """Granted memory at addresses of this process; unmapped at its end."""

    _kind = "mapping"

    def __init__(self, of: "SharedImport", device: int, hint: int) -> None:
        super().__init__()
        mapping, address = c_void_p(), c_uint64()
        self._device = signed("device", device)
        self._lib.shared_import_map(of._open, self._device, whole("hint", hint), byref(mapping),
                                    byref(address))
        self._import = of  # must outlive its mappings
        self._handle = mapping
        self._address = address.value
        about = of.info()
        self._size = about.size
        self._is_read_only = about.access is Access.READ_ONLY

    def _end(self, handle: Any) -> None:
        self._lib.shared_mapping_unmap(handle)

    @property
    def address(self) -> int:
        """Where it begins."""
        self._open
        return self._address

    def array(self, shape: Optional[Shape] = None, dtype: Any = "float32") -> DeviceArray:
        """Its first bytes as an array, all of them as uint8 where no shape is given."""
        return _view(self.address, self._size, self._device, self, shape, dtype,
                     self._is_read_only)


class SharedImport(Owned):
    """Memory that was granted to this process. Its end unmaps it and tells the exporter."""

    _kind = "import"
    _patience = 5.0  # seconds that close() waits for the exporter's answer

    def __init__(self, session: "ShareSession", handle: Any) -> None:
        super().__init__()
        self._session = session
        self._mappings: "weakref.WeakSet[SharedMapping]" = weakref.WeakSet()
        self._handle = handle

    def _end(self, handle: Any) -> None:
        try:
            self._release(handle, self._patience)
        except CuvmmError:
            pass  # the exporter has exited; the import has ended anyway

    def _release(self, handle: Any, timeout: float) -> None:
        for mapping in list(self._mappings):
            mapping.close()
        session = self._session._open if self._session.is_open else None
        self._lib.share_release(session, handle, microseconds(timeout))

    def release(self, timeout: float) -> None:
        """Ends the import, unmaps it and waits for the exporter's answer. It has ended whatever
        the answer is."""
        microseconds(timeout)
        self._open
        handle = self._take()
        if handle is not None:
            self._release(handle, timeout)

    def info(self) -> SharedImportInfo:
        """What was granted."""
        info = _capi.SharedImportInfo()
        self._lib.get_shared_import_info(self._open, byref(info))
        return fields(info, SharedImportInfo, access=Access(info.access))

    def map(self, device: Optional[int] = None, *, hint: int = 0) -> SharedMapping:
        """Maps it, as often as wanted, for any device that can reach it; where none is given for
        the one it is of. `hint`: addresses that would be liked."""
        mapping = SharedMapping(self, self.info().device if device is None else device, hint)
        self._mappings.add(mapping)
        return mapping

    def acknowledge(self, status: int = 0, *, timeout: float = 5.0) -> None:
        """Tells the exporter's program; 0 says that all is well."""
        self._lib.share_acknowledge(self._session._open, self._open,
                                    whole("status", status, 32), microseconds(timeout))


class ShareSession(Owned):
    """The importer's connection, to the exporter at `path` or at the usual place. NotFound where
    nobody listens. Imports stay mapped after its end."""

    _kind = "session"

    def __init__(self, path: Optional[Path] = None, *, timeout: float = 10.0) -> None:
        super().__init__()
        session = c_void_p()
        self._lib.share_connect(_path(path), microseconds(timeout), byref(session))
        self._handle = session

    def _end(self, handle: Any) -> None:
        self._lib.share_disconnect(handle)

    def receive(self, timeout: float) -> SharedImport:
        """The next grant, with all its chunks; TimedOut where there is none."""
        handle = c_void_p()
        self._lib.share_receive(self._open, microseconds(timeout), byref(handle))
        return SharedImport(self, handle)
