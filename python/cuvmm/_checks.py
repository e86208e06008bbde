# SPDX-License-Identifier: Apache-2.0
"""What is given to C is checked first: ctypes cuts numbers off in silence."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsIndex

from .errors import InvalidArgument


def whole(name: str, value: SupportsIndex, bits: int = 64) -> int:
    """`value` as an unsigned number of so many bits."""
    number = operator.index(value)
    if number < 0:
        raise InvalidArgument(f"{name} is negative: {number}")
    if number >> bits:
        raise OverflowError(f"{name} does not fit into {bits} bits: {number}")
    return number


def signed(name: str, value: SupportsIndex) -> int:
    """`value` as a C int32_t."""
    number = operator.index(value)
    if not -2**31 <= number < 2**31:
        raise OverflowError(f"{name} does not fit into 32 bits: {number}")
    return number


def stream_handle(stream: Any) -> Any:
    """A CUstream, given as a number; None is the current context's default stream."""
    return whole("stream", stream) if hasattr(stream, "__index__") else stream


def microseconds(timeout: float) -> int:
    """Seconds, as every wait of this package takes them, rounded up."""
    if not 0 <= timeout < math.inf:
        raise InvalidArgument(f"a timeout is a number of seconds, from 0 on: {timeout}")
    return whole("timeout", math.ceil(timeout * 1_000_000))
