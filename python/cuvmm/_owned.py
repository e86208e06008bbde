# SPDX-License-Identifier: Apache-2.0
"""The base class of objects that own a resource of the library."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Optional, Type, TypeVar

from . import _capi
from .errors import CuvmmError, InvalidArgument

Self = TypeVar("Self", bound="Owned")


class Owned:
    """A resource of the library, released by close(), by a `with` block or on destruction.

    A forked child does not own its parent's objects: closing one there releases nothing, and using
    one raises InvalidArgument. No thread may use an object while another closes it.
    """

    _kind = "object"
    _handle: Any = None

    def __init__(self) -> None:
        self._handle: Any = None
        self._owner = os.getpid()
        self._lib = _capi.library()

    def _end(self, handle: Any) -> None:
        raise NotImplementedError

    def _describe(self) -> str:
        """What repr() says of an open object."""
        return "open"

    def __repr__(self) -> str:
        if not self.is_open:
            state = "closed"
        elif self._owner != os.getpid():
            state = "belongs to the parent process"
        else:
            try:
                state = self._describe()
            except CuvmmError as error:
                state = f"open ({error})"
        return f"<cuvmm.{type(self).__name__}: {state}>"

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except CuvmmError:
            pass  # there is no caller to raise to

    def close(self) -> None:
        """Releases the resource. Does nothing if it is already closed.

        If the library refuses, raises its error and leaves the object open.
        """
        handle = self._take()
        if handle is None:
            return
        try:
            self._end(handle)
        except CuvmmError:
            self._handle = handle  # refused, so the object still exists
            raise

    def _take(self) -> Any:
        """Returns the handle and detaches it from this object.

        Returns None if there is nothing to release: the object is closed, or belongs to the parent
        process.
        """
        if getattr(self, "_owner", None) != os.getpid():
            self._handle = None
            return None
        # Atomic, so of two threads that close the object one releases it. A lock would also be taken
        # by __del__, which may run at any moment, and be held in a forked child.
        return self.__dict__.pop("_handle", None) or None

    @property
    def is_open(self) -> bool:
        """Whether the object can still be used."""
        return bool(getattr(self, "_handle", None))

    @property
    def _open(self) -> Any:
        if not self._handle:
            raise InvalidArgument(f"the {self._kind} is closed")
        if self._owner != os.getpid():
            raise InvalidArgument(f"the {self._kind} belongs to the parent process")
        return self._handle
