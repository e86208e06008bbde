# SPDX-License-Identifier: Apache-2.0
"""From C structs to named tuples."""

from __future__ import annotations

import ctypes
from typing import Any, Type, TypeVar

T = TypeVar("T")


def fields(struct: ctypes.Structure, into: Type[T], /, **instead: Any) -> T:
    """A named tuple of the struct's members of the same names; `instead` names others' values."""
    return into(**{name: instead.get(name, getattr(struct, name, None))
                   for name in into._fields})  # type: ignore[attr-defined]
