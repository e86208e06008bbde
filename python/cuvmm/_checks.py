# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments before they reach C: ctypes truncates integers silently."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsIndex

from .errors import InvalidArgument


def whole(name: str, value: SupportsIndex, bits: int = 64) -> int:
    """Returns `value` as an unsigned integer of `bits` bits.

    Raises InvalidArgument if it is negative and OverflowError if it does not fit.
    """
    number = operator.index(value)
    if number < 0:
        raise InvalidArgument(f"{name} is negative: {number}")
    if number >> bits:
        raise OverflowError(f"{name} does not fit into {bits} bits: {number}")
    return number


def signed(name: str, value: SupportsIndex) -> int:
    """Returns `value` as a C int32_t. Raises OverflowError if it does not fit."""
    number = operator.index(value)
    if not -2**31 <= number < 2**31:
        raise OverflowError(f"{name} does not fit into 32 bits: {number}")
    return number


def text(name: str, value: str) -> bytes:
    """Returns `value` for C. Raises InvalidArgument if C would not see all of it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is no string: {value!r}")
    if "\0" in value:
        raise InvalidArgument(f"{name} has a null character: {value!r}")
    return value.encode("utf-8", "surrogateescape")


def stream_handle(stream: Any) -> Any:
    """Returns a stream's CUstream for C. None is the current context's default stream."""
    return whole("stream", stream) if hasattr(stream, "__index__") else stream


def microseconds(timeout: float) -> int:
    """Converts a timeout in seconds to microseconds, rounded up.

    Raises InvalidArgument if it is negative, infinite or not a number.
    """
    if not 0 <= timeout < math.inf:
        raise InvalidArgument(f"a timeout is a number of seconds, from 0 on: {timeout}")
    return whole("timeout", math.ceil(timeout * 1_000_000))
