# SPDX-License-Identifier: Apache-2.0
"""Where pools take memory from (docs/pools.md)."""

from __future__ import annotations

import enum
from ctypes import c_int32
from typing import Iterable

from . import _capi
from ._checks import signed, whole
from .errors import InvalidArgument


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
