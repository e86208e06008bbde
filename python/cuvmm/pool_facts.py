# SPDX-License-Identifier: Apache-2.0
"""Statistics and results that pools return (docs/pools.md)."""

from __future__ import annotations

import enum
from typing import List, NamedTuple


class Activation(enum.Enum):
    """Whether a model's contents survived deactivation. LOST: the memory is new and undefined."""
    KEPT = 0
    LOST = 1


class Move(NamedTuple):
    """A movable allocation that compaction moved to another offset."""
    old_offset: int
    new_offset: int
    size: int


class Compaction(NamedTuple):
    """What a compaction did: its moves, and the bytes that it released.

    `physical_released` bytes became free by moving and sharing. `cached_released` bytes of free
    memory went back to the driver.
    """
    moves: List[Move]
    physical_released: int
    cached_released: int


class PlaceStats(NamedTuple):
    """A pool's memory on one device, or on one NUMA node of the host."""
    is_host: bool
    id: int
    physical_bytes: int


class ElasticPoolStats(NamedTuple):
    """Statistics of a pool, in bytes.

    `physical_bytes` counts memory that granules share only once. `free_bytes` are unallocated
    addresses, and `largest_free` is the largest allocation that would fit. `fragmentation` is 1 -
    largest_free / free_bytes.
    """
    capacity: int
    allocated_bytes: int
    physical_bytes: int
    mapped_granules: int
    free_bytes: int
    largest_free: int
    fragmentation: float


class ModelStats(NamedTuple):
    """Statistics of a model of a shared pool. A maximum of 2**64 - 1 means the pool's limit."""
    memory: ElasticPoolStats
    base_address: int
    minimum: int
    maximum: int
    priority: int
    is_active: bool


class SharedPoolStats(NamedTuple):
    """Statistics of a shared pool, in bytes. `physical_bytes` is the sum over all models."""
    physical_limit: int
    physical_bytes: int
    cached_bytes: int
    models: int
    granule: int
