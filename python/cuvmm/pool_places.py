# SPDX-License-Identifier: Apache-2.0
"""Where pools take their memory from (docs/pools.md)."""

from __future__ import annotations

import enum
from ctypes import c_int32
from typing import Iterable

from . import _capi
from ._checks import signed, whole
from .errors import InvalidArgument


class Placement(enum.IntEnum):
    """The place from which a granule is taken first. Full places are skipped.

    - PACK: the devices in the order given
    - STRIPE: neighbouring granules on devices in turn
    - LOCAL_THEN_PEER: the device of the caller's current context
    """
    PACK = 0
    STRIPE = 1
    LOCAL_THEN_PEER = 2


class HostUse(enum.IntEnum):
    """Whether granules may be in host memory; LAST means only when the devices are full."""
    NEVER = 0
    LAST = 1
    ONLY = 2


class Places:
    """The places a pool takes memory from. All `devices` can access all of it.

    `granule` is in bytes; 0 means the recommended one. `host_node` is a NUMA node. Memory of
    `shareable` places can be granted to other processes (ShareHost.send_of_pool), and takes longer
    to create.
    """

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

    def __repr__(self) -> str:
        return (f"Places(devices={self.devices}, granule={self.granule}, placement=Placement.{self.placement.name}, "
                f"host=HostUse.{self.host.name}, host_node={self.host_node}, shareable={self.shareable})")

    def _in_words(self) -> str:
        host = f"host node {self.host_node}"
        if self.host is HostUse.ONLY:
            return host
        devices = f"device{'s' if len(self.devices) > 1 else ''} {', '.join(map(str, self.devices))}"
        return f"{devices}, then {host}" if self.host is HostUse.LAST else devices

    def _in_c(self) -> _capi.Places:
        devices = (c_int32 * len(self.devices))(*self.devices)
        return _capi.Places(granule=self.granule, devices=devices, device_count=len(self.devices),
                            placement=self.placement, host=self.host, host_node=self.host_node,
                            shareable=int(self.shareable))
