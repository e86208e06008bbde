# SPDX-License-Identifier: Apache-2.0
"""Leaving the devices for a while (docs/pausing.md). Needs the preload library: `cuvmm run`."""

from __future__ import annotations

from contextlib import contextmanager
from ctypes import byref
from typing import Iterator, NamedTuple

from . import _capi
from ._checks import microseconds
from ._fields import fields

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


def pause(timeout: float = 10.0, *, strict: bool = False) -> PauseReport:
    """Moves what the process holds on its devices to the host, at unchanged addresses. From now on
    every thread's calls that touch memory or submit work wait, until resume(). Waits up to
    `timeout` seconds for what is under way. `strict` refuses where some memory cannot leave."""
    wait = microseconds(timeout)
    report = _capi.PauseReport()
    _capi.library().pause(wait, _STRICT if strict else 0, byref(report))
    return _report(report)


def resume(*, partly: bool = False) -> PauseReport:
    """Puts everything back and lets calls go on. OutOfPhysicalMemory where the devices have no
    room: the process stays paused and can be resumed later, or `partly` now, with the rest left on
    the host."""
    report = _capi.PauseReport()
    _capi.library().resume(_PARTLY if partly else 0, byref(report))
    return _report(report)


@contextmanager
def paused(timeout: float = 10.0, *, strict: bool = False) -> Iterator[PauseReport]:
    """Pauses the process, and resumes it at the end of the `with` block."""
    report = pause(timeout, strict=strict)
    try:
        yield report
    finally:
        resume()


def away_info() -> AwayInfo:
    """Which memory lies elsewhere now, by a pause or by VMM_SPILL."""
    info = _capi.AwayInfo()
    _capi.library().get_away_info(byref(info))
    return fields(info, AwayInfo, is_paused=bool(info.is_paused))
