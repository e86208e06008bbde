# SPDX-License-Identifier: Apache-2.0
"""Clients of the scheduler (docs/scheduling.md). Needs the preload library: `cuvmm run`."""

from __future__ import annotations

import enum
from contextlib import contextmanager
from ctypes import byref, c_uint32
from typing import Iterator, NamedTuple

from . import _capi
from ._checks import signed
from ._fields import fields
from ._owned import Owned


class Policy(enum.IntEnum):
    """By what clients' work is put in order."""
    OFF = 0
    FIFO = 1
    ROUND_ROBIN = 2
    PRIORITY = 3
    FAIR = 4


class ClientFigures(NamedTuple):
    """What a client's work has cost so far; times in nanoseconds."""
    operations: int
    bytes: int
    queued_ns: int
    longest_queued_ns: int
    device_ns: int
    waits_for_room: int


def set_policy(policy: Policy) -> None:
    """Turns scheduling on, changes the policy, or turns it off. Policy.OFF returns once everything
    that was submitted has been given to the driver."""
    _capi.library().set_policy(Policy(policy))


class Client(Owned):
    """A part of this process whose GPU work is put in order by the policy. `priority` from -100 to
    100, higher goes first; `weight` from 1 to 10000. Its end waits until its work has been given
    to the driver, and leaves its threads without a client."""

    _kind = "client"

    def __init__(self, name: str, *, priority: int = 0, weight: int = 1) -> None:
        super().__init__()
        number = c_uint32()
        self._lib.client_create(name.encode(), signed("priority", priority),
                                signed("weight", weight), byref(number))
        self._handle = number.value

    def _end(self, handle: int) -> None:
        self._lib.client_destroy(handle)

    @property
    def number(self) -> int:
        """The client's number, from 1 on."""
        return self._open

    def bind(self) -> None:
        """From now on the calling thread's work is this client's."""
        self._lib.client_bind(self._open)

    @staticmethod
    def unbind() -> None:
        """The calling thread has no client any more."""
        _capi.library().client_unbind()

    @contextmanager
    def bound(self) -> Iterator["Client"]:
        """The calling thread's work is this client's inside the `with` block, and nobody's after
        it."""
        self.bind()
        try:
            yield self
        finally:
            self.unbind()

    def bind_others(self) -> None:
        """The work of every thread that is not bound itself is this client's, that of threads still
        to come too."""
        self._lib.client_bind_others(self._open)

    @staticmethod
    def unbind_others() -> None:
        """Ends bind_others()."""
        _capi.library().client_bind_others(0)

    def figures(self) -> ClientFigures:
        """What its work has cost so far."""
        figures = _capi.ClientFigures()
        self._lib.client_get_figures(self._open, byref(figures))
        return fields(figures, ClientFigures)
