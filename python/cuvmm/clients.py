# SPDX-License-Identifier: Apache-2.0
"""Clients of the scheduler (docs/scheduling.md).

They need the preload library (`cuvmm run`). Without it every call here raises NotSupported.
"""

from __future__ import annotations

import enum
from contextlib import contextmanager
from ctypes import byref, c_uint32
from typing import Iterator, NamedTuple

from . import _capi
from ._checks import signed, text
from ._fields import fields
from ._owned import Owned


class Policy(enum.IntEnum):
    """The order in which clients' work is issued to the driver.

    - OFF: every thread calls the driver itself
    - FIFO: the client that submitted first
    - ROUND_ROBIN: the client chosen least recently
    - PRIORITY: the highest priority, which rises with waiting
    - FAIR: device time by weight
    """
    OFF = 0
    FIFO = 1
    ROUND_ROBIN = 2
    PRIORITY = 3
    FAIR = 4


class ClientFigures(NamedTuple):
    """What a client's work has cost so far. Times are in nanoseconds.

    `operations` have been issued to the driver, and copied or set `bytes` bytes. They waited
    `queued_ns` in total. `device_ns` is measured on the device.
    """
    operations: int
    bytes: int
    queued_ns: int
    longest_queued_ns: int
    device_ns: int
    waits_for_room: int


def set_policy(policy: Policy) -> None:
    """Turns scheduling on, changes the policy, or turns scheduling off.

    Policy.OFF returns once everything submitted has been issued to the driver.
    """
    _capi.library().set_policy(Policy(policy))


class Client(Owned):
    """A part of this process whose GPU work the policy schedules.

    `priority` ranges from -100 to 100, higher first; `weight` from 1 to 10000. Closing the client
    waits until all of its work has been issued to the driver, and leaves threads bound to it
    without a client.
    """

    _kind = "client"

    def __init__(self, name: str, *, priority: int = 0, weight: int = 1) -> None:
        super().__init__()
        number = c_uint32()
        self._lib.client_create(text("name", name), signed("priority", priority),
                                signed("weight", weight), byref(number))
        self._handle = number.value
        self._terms = f"{name!r}, priority {priority}, weight {weight}"

    def _end(self, handle: int) -> None:
        self._lib.client_destroy(handle)

    def _describe(self) -> str:
        return f"{self._terms}, number {self.number}"

    @property
    def number(self) -> int:
        """The client's number, starting at 1. Numbers are never reused."""
        return self._open

    def bind(self) -> None:
        """Binds the calling thread: work that it submits from now on belongs to this client."""
        self._lib.client_bind(self._open)

    @staticmethod
    def unbind() -> None:
        """Leaves the calling thread without a client."""
        _capi.library().client_unbind()

    @contextmanager
    def bound(self) -> Iterator["Client"]:
        """Binds the calling thread to this client inside the `with` block.

        Afterwards the thread has no client, even if it had one before.
        """
        self.bind()
        try:
            yield self
        finally:
            self.unbind()

    def bind_others(self) -> None:
        """Binds all threads that are not bound individually, including threads that start later."""
        self._lib.client_bind_others(self._open)

    @staticmethod
    def unbind_others() -> None:
        """Ends the binding made by bind_others()."""
        _capi.library().client_bind_others(0)

    def figures(self) -> ClientFigures:
        """Returns what the client's work has cost so far."""
        figures = _capi.ClientFigures()
        self._lib.client_get_figures(self._open, byref(figures))
        return fields(figures, ClientFigures)
