# SPDX-License-Identifier: Apache-2.0
"""Leaving the devices for a while (docs/pausing.md). This process needs the preload library for it,
`cuvmm run`; others need `cuvmm run --control`, or env(control=True)."""

from __future__ import annotations

import json
from contextlib import contextmanager
from ctypes import byref
from typing import Iterator, NamedTuple, Optional

from . import _capi
from ._checks import microseconds
from ._fields import fields
from .commands import command, error_of
from .errors import InvalidArgument

_STRICT = 1
_PARTLY = 1


class PauseReport(NamedTuple):
    """What a pause or a resume has done: bytes moved, bytes that stayed and why, and where the
    microseconds went."""
    moved: int
    stayed: int
    took_us: int
    held_us: int
    drain_us: int
    host_us: int
    copies_us: int
    maps_us: int
    chunks_us: int
    why: str


class AwayInfo(NamedTuple):
    """Memory that is not on its device, in bytes."""
    is_paused: bool
    paused_bytes: int
    ready_bytes: int
    spilled_bytes: int
    spilled_cached: int


def _report(report: _capi.PauseReport) -> PauseReport:
    return fields(report, PauseReport, why=report.why.decode(errors="replace"))


def _tell(process: int, *words: str) -> PauseReport:
    """Another process, by the command line."""
    if isinstance(process, bool) or not isinstance(process, int) or process <= 0:
        raise InvalidArgument(f"{process!r} is no process number")
    all_said = json.loads(command(*words, "--json", str(process), accept=(0, 1)))
    said = all_said["processes"][0]
    if not said["done"]:
        raise error_of(f"{process}: {said['text']}")
    return PauseReport(moved=said["moved_bytes"], stayed=said["stayed_bytes"], why=said["text"],
                       **{name: said[name] for name in PauseReport._fields
                          if name.endswith("_us")})


def pause(process: Optional[int] = None, *, timeout: float = 10.0, strict: bool = False
          ) -> PauseReport:
    """Moves what the process holds on its devices to the host, at unchanged addresses. From now on
    every thread's calls that touch memory or submit work wait, until resume(). Waits up to
    `timeout` seconds for what is under way. `strict` refuses where some memory cannot leave.

    This process, unless the number of another of this user's is given. NotFound where that cannot
    be reached, TimedOut where its work did not end in time: then it goes on."""
    wait = microseconds(timeout)
    if process is not None:
        return _tell(process, "pause", "--timeout", f"{wait}us", *(["--strict"] if strict else []))
    report = _capi.PauseReport()
    _capi.library().pause(wait, _STRICT if strict else 0, byref(report))
    return _report(report)


def resume(process: Optional[int] = None, *, partly: bool = False) -> PauseReport:
    """Puts everything back and lets calls go on. OutOfPhysicalMemory where the devices have no
    room: the process stays paused and can be resumed later, or `partly` now, with the rest left on
    the host. This process, unless the number of another is given."""
    if process is not None:
        return _tell(process, "resume", *(["--partly"] if partly else []))
    report = _capi.PauseReport()
    _capi.library().resume(_PARTLY if partly else 0, byref(report))
    return _report(report)


@contextmanager
def paused(timeout: float = 10.0, *, strict: bool = False) -> Iterator[PauseReport]:
    """Pauses the process, and resumes it at the end of the `with` block."""
    report = pause(timeout=timeout, strict=strict)
    try:
        yield report
    finally:
        resume()


def away_info() -> AwayInfo:
    """Which memory lies elsewhere now, by a pause or by VMM_SPILL."""
    info = _capi.AwayInfo()
    _capi.library().get_away_info(byref(info))
    return fields(info, AwayInfo, is_paused=bool(info.is_paused))
