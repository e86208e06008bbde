# SPDX-License-Identifier: Apache-2.0
"""Memory shared between processes of one user (docs/sharing.md). Timeouts are in seconds."""

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
from ._units import size as size_text
from .array import DeviceArray, Shape
from .errors import CuvmmError, InvalidArgument
from .elastic_pool import ElasticPool

Path = Union[str, "os.PathLike[str]"]


class Access(enum.IntEnum):
    """How an importer may use granted memory."""
    READ_WRITE = 0
    READ_ONLY = 1


class ShareEventKind(enum.IntEnum):
    """What an importer did.

    - CAME: it connected
    - FETCHED: it has received the whole grant
    - ACKNOWLEDGED: it acknowledged the grant
    - RELEASED: it released the grant
    - LEFT: it disconnected or exited
    """
    CAME = 1
    FETCHED = 2
    ACKNOWLEDGED = 3
    RELEASED = 4
    LEFT = 5


class ShareEvent(NamedTuple):
    """What the importer `peer` did with a grant. `status` is the value it acknowledged with."""
    kind: ShareEventKind
    peer: int
    grant: int
    status: int


class SharedBufferInfo(NamedTuple):
    """A shared buffer's size and chunks, in bytes. The address is 0 until the buffer is mapped."""
    address: int
    size: int
    granule: int
    chunk_size: int
    chunk_count: int


class SharedImportInfo(NamedTuple):
    """What was granted. `device` is numbered as in this process."""
    grant: int
    size: int
    chunk_count: int
    tag: int
    access: Access
    device: int


def _path(path: Optional[Path]) -> Optional[bytes]:
    return None if path is None else os.fsencode(path)


def _where(path: Optional[Path]) -> str:
    return "the default path" if path is None else os.fsdecode(path)


def _view(address: int, size: int, device: int, owner: Owned, shape: Optional[Shape],
          dtype: Any, is_read_only: bool = False) -> DeviceArray:
    """Returns memory of `owner` as an array: all of it as uint8 if no shape is given."""
    array = DeviceArray(address, size if shape is None else shape,
                        "uint8" if shape is None else dtype, device, owner=owner,
                        is_read_only=is_read_only)
    if array.nbytes > size:
        raise InvalidArgument(f"an array of {array.nbytes} bytes in memory of {size}")
    return array


class SharedBuffer(Owned):
    """The exporter's memory, in chunks that can be granted to importers.

    `size` is rounded up to chunks. `chunk_size` is the unit of grants, a multiple of the granule; 0
    means one chunk in all. Importers keep the memory they hold after the buffer is closed. Raises
    NotSupported if the device cannot export memory.
    """

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

    def _describe(self) -> str:
        info = self.info()
        place = f"mapped at {info.address:#x}" if info.address != 0 else "not mapped"
        return (f"{size_text(info.size)} in {info.chunk_count} chunk{'' if info.chunk_count == 1 else 's'}, "
                f"{place}, device {self._device}")

    def map(self) -> int:
        """Maps the buffer for its device and returns the address. Can be called once."""
        address = c_uint64()
        self._lib.shared_buffer_map(self._open, byref(address))
        return address.value

    def info(self) -> SharedBufferInfo:
        """Returns the buffer's size, chunks and address."""
        info = _capi.SharedBufferInfo()
        self._lib.get_shared_buffer_info(self._open, byref(info))
        return fields(info, SharedBufferInfo)

    def array(self, shape: Optional[Shape] = None, dtype: Any = "float32") -> DeviceArray:
        """Returns the buffer's first bytes as an array; without a shape, all of them as uint8.

        Raises InvalidArgument if the buffer is not mapped, or smaller than the array.
        """
        info = self.info()
        if info.address == 0:
            raise InvalidArgument("the buffer is not mapped")
        return _view(info.address, info.size, self._device, self, shape, dtype)

    def export_chunk(self, chunk: int) -> int:
        """Returns a file descriptor for one chunk. The caller closes it."""
        descriptor = c_int32()
        self._lib.shared_buffer_export(self._open, whole("chunk", chunk), byref(descriptor))
        return descriptor.value


class ShareHost(Owned):
    """The exporter's socket, at `path` or at the user's default path, where importers look.

    After it is closed, importers keep the memory they have. Raises AlreadyExists if a living
    process listens at that path.
    """

    _kind = "host"

    def __init__(self, path: Optional[Path] = None) -> None:
        super().__init__()
        host = c_void_p()
        self._lib.share_listen(_path(path), byref(host))
        self._handle = host
        self._path = path

    def _end(self, handle: Any) -> None:
        self._lib.share_stop(handle)

    def _describe(self) -> str:
        return f"listening at {_where(self._path)}"

    def wait(self, timeout: float) -> ShareEvent:
        """Waits for the next event and returns it. Importers are served only inside this call.

        Raises TimedOut if there is no event in time.
        """
        event = _capi.ShareEvent()
        self._lib.share_wait(self._open, microseconds(timeout), byref(event))
        return fields(event, ShareEvent, kind=ShareEventKind(event.kind))

    def send(self, peer: int, buffer: SharedBuffer, *, first_chunk: int = 0, chunk_count: int = 0,
             access: Access = Access.READ_WRITE, tag: int = 0) -> int:
        """Grants chunks of a buffer to an importer. Returns the grant's number.

        Does not wait for the importer. A `chunk_count` of 0 means all chunks from `first_chunk` on.
        `tag` is for the programs' own use. Raises NotFound if the importer is gone.
        """
        grant = _capi.ShareGrant(first_chunk=whole("first_chunk", first_chunk),
                                 chunk_count=whole("chunk_count", chunk_count),
                                 tag=whole("tag", tag), access=Access(access))
        number = c_uint64()
        self._lib.share_send(self._open, whole("peer", peer), buffer._open, byref(grant),
                             byref(number))
        return number.value

    def send_of_pool(self, peer: int, pool: ElasticPool, offset: int, size: int, *,
                     access: Access = Access.READ_WRITE, tag: int = 0) -> int:
        """Grants a part of a pool whose places are shareable, like send().

        The part must be whole granules that are allocated to the last byte.
        """
        grant = _capi.ShareGrant(tag=whole("tag", tag), access=Access(access))
        number = c_uint64()
        self._lib.share_send_of_pool(self._open, whole("peer", peer), pool._open,
                                     whole("offset", offset), whole("size", size), byref(grant),
                                     byref(number))
        return number.value


class SharedMapping(Owned):
    """Granted memory mapped at addresses of this process. Closing it unmaps the memory."""

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

    def _describe(self) -> str:
        access = "read-only" if self._is_read_only else "read-write"
        return f"{size_text(self._size)} at {self._address:#x}, {access}, device {self._device}"

    @property
    def address(self) -> int:
        """The address of the first byte."""
        self._open
        return self._address

    def array(self, shape: Optional[Shape] = None, dtype: Any = "float32") -> DeviceArray:
        """Returns the mapping's first bytes as an array; without a shape, all of them as uint8."""
        return _view(self.address, self._size, self._device, self, shape, dtype,
                     self._is_read_only)


class SharedImport(Owned):
    """Memory granted to this process. Closing it unmaps the memory and notifies the exporter."""

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

    def _describe(self) -> str:
        info = self.info()
        access = "read-only" if info.access is Access.READ_ONLY else "read-write"
        return f"grant {info.grant} of {size_text(info.size)}, {access}, device {info.device}"

    def release(self, timeout: float) -> None:
        """Unmaps the memory, ends the import and waits for the exporter's answer.

        The import has ended even if this raises an error.
        """
        microseconds(timeout)
        self._open
        handle = self._take()
        if handle is not None:
            self._release(handle, timeout)

    def info(self) -> SharedImportInfo:
        """Returns what was granted."""
        info = _capi.SharedImportInfo()
        self._lib.get_shared_import_info(self._open, byref(info))
        return fields(info, SharedImportInfo, access=Access(info.access))

    def map(self, device: Optional[int] = None, *, hint: int = 0) -> SharedMapping:
        """Maps the memory for `device`, by default its own; any device that can reach it will do.

        Can be called any number of times. `hint` is the preferred address, or 0.
        """
        mapping = SharedMapping(self, self.info().device if device is None else device, hint)
        self._mappings.add(mapping)
        return mapping

    def acknowledge(self, status: int = 0, *, timeout: float = 5.0) -> None:
        """Reports `status` to the exporting program; 0 means success."""
        self._lib.share_acknowledge(self._session._open, self._open,
                                    whole("status", status, 32), microseconds(timeout))


class ShareSession(Owned):
    """The importer's connection to the exporter at `path`, or at the default path.

    Raises NotFound if no process listens there. Imports stay mapped after the session is closed.
    """

    _kind = "session"

    def __init__(self, path: Optional[Path] = None, *, timeout: float = 10.0) -> None:
        super().__init__()
        session = c_void_p()
        self._lib.share_connect(_path(path), microseconds(timeout), byref(session))
        self._handle = session
        self._path = path

    def _end(self, handle: Any) -> None:
        self._lib.share_disconnect(handle)

    def _describe(self) -> str:
        return f"connected to {_where(self._path)}"

    def receive(self, timeout: float) -> SharedImport:
        """Waits for the next grant and imports all of its chunks.

        Raises TimedOut if there is no grant in time.
        """
        handle = c_void_p()
        self._lib.share_receive(self._open, microseconds(timeout), byref(handle))
        return SharedImport(self, handle)
