# SPDX-License-Identifier: Apache-2.0
"""Conversion of C structs to named tuples."""

from __future__ import annotations

import ctypes
from typing import Any, Type, TypeVar

T = TypeVar("T")


def fields(struct: ctypes.Structure, into: Type[T], /, **instead: Any) -> T:
    """Returns a named tuple of type `into`, filled from the struct's members of the same names.

    Keyword arguments in `instead` override members, or supply fields that the struct lacks.
    """
    return into(**{name: instead.get(name, getattr(struct, name, None))
                   for name in into._fields})  # type: ignore[attr-defined]
