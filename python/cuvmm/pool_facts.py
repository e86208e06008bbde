# SPDX-License-Identifier: Apache-2.0
"""What pools say of themselves (docs/pools.md)."""

from __future__ import annotations

import enum
from typing import List, NamedTuple


class Activation(enum.Enum):
    """What became of a model's contents while it was not active."""
    KEPT = 0
    LOST = 1


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
