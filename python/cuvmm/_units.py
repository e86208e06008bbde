# SPDX-License-Identifier: Apache-2.0
"""Formats sizes and times with a unit."""

from __future__ import annotations

from typing import List, Tuple

Units = List[Tuple[int, str]]

SIZE_UNITS: Units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]
TIME_UNITS: Units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")]


def unit_for(largest: float, units: Units) -> Tuple[int, str]:
    """Returns the largest unit in which `largest` is at least 1."""
    for scale, name in units:
        if largest >= scale:
            return scale, name
    return units[-1]


def number(value: float) -> str:
    """Formats to three significant digits, without trailing zeros."""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def size(value: float) -> str:
    """Formats a number of bytes: 1536 is "1.5 KiB"."""
    scale, name = unit_for(value, SIZE_UNITS)
    return f"{number(value / scale)} {name}"


def time(value_ns: float) -> str:
    """Formats a number of nanoseconds: 1500 is "1.5 µs"."""
    scale, name = unit_for(value_ns, TIME_UNITS)
    return f"{number(value_ns / scale)} {name}"
