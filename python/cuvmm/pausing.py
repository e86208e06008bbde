# SPDX-License-Identifier: Apache-2.0
"""Moving memory off the devices for a while (docs/pausing.md).

To pause itself, a process needs the preload library (`cuvmm run`). To be paused by others, it must
run under `cuvmm run --control` or env(control=True).
"""

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
    """What a pause or a resume did. Sizes are in bytes, times in microseconds.

    `moved` bytes moved. `stayed` bytes could not leave, or have not come back; `why` gives the
    reason. The program was stopped for `held_us`. `drain_us` to `chunks_us` are the five parts of
    `took_us`: draining work, getting host memory, copying, mapping, and taking or releasing device
    memory. `off_devices`: whether a deep pause took contexts and modules off the devices too; if it
    did not, `why` gives the reason.
    """
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
    off_devices: bool = False


class AwayInfo(NamedTuple):
    """Memory that is not on its device, in bytes.

    `paused_bytes` were moved by a pause and are not back yet. `ready_bytes` of host memory are
    pinned for a pause. `spilled_bytes` are mapped at a device's addresses but resident elsewhere
    (VMM_SPILL), and `spilled_cached` bytes elsewhere are free and kept for later use.
    """
    is_paused: bool
    paused_bytes: int
    ready_bytes: int
    spilled_bytes: int
    spilled_cached: int


def _report(report: _capi.PauseReport) -> PauseReport:
    return fields(report, PauseReport, why=report.why.decode(errors="replace"), off_devices=False)


def _tell(process: int, *words: str) -> PauseReport:
    """Pauses or resumes another process through the command line."""
    if isinstance(process, bool) or not isinstance(process, int) or process <= 0:
        raise InvalidArgument(f"{process!r} is not a process ID")
    # A `cuvmm run` stands for all programs that it has started.
    programs = json.loads(command(*words, "--json", str(process), accept=(0, 1, 3)))["processes"]
    reasons = [one.get("why_on_devices") or one["text"] for one in programs]
    for one, why in zip(programs, reasons):
        if not one["done"]:
            raise error_of(f"{one['process']}: {why}")

    def total(name: str) -> int:
        return sum(one[name] for one in programs)
    return PauseReport(moved=total("moved_bytes"), stayed=total("stayed_bytes"),
                       why="; ".join(dict.fromkeys(why for why in reasons if why)),
                       off_devices=all(one["off_devices"] for one in programs),
                       **{name: total(name) for name in PauseReport._fields
                          if name.endswith("_us")})


def pause(process: Optional[int] = None, *, timeout: float = 10.0, strict: bool = False,
          deep: bool = False) -> PauseReport:
    """Moves everything that a process holds on its devices to the host, at unchanged addresses.

    From now until resume(), calls that touch memory or submit work block, in every thread. First
    waits up to `timeout` seconds for work in flight. With `strict`, fails if some memory cannot
    leave.

    Acts on this process, or on the process with the id `process`, which must belong to the same
    user. If that is a `cuvmm run`, acts on all programs that it has started, and the report has
    their sums. Raises NotFound if that process cannot be reached, and TimedOut if its work does not end
    in time; the program then continues.

    With `deep`, which only another process can ask for, the driver's checkpoint then takes contexts
    and modules off the devices too. If the driver refuses that, the process is only paused.
    """
    wait = microseconds(timeout)
    if process is not None:
        flags = (["--strict"] if strict else []) + (["--deep"] if deep else [])
        return _tell(process, "pause", "--timeout", f"{wait}us", *flags)
    if deep:
        raise InvalidArgument("a process cannot take itself off its devices: name another one")
    report = _capi.PauseReport()
    _capi.library().pause(wait, _STRICT if strict else 0, byref(report))
    return _report(report)


def resume(process: Optional[int] = None, *, partly: bool = False) -> PauseReport:
    """Moves everything back to the devices and lets the blocked calls continue.

    Raises OutOfPhysicalMemory if the devices have no room: the process stays paused, and resume()
    can be called again. With `partly`, it continues anyway, and what does not fit stays on the
    host.

    Acts on this process, or on the process with the id `process`.
    """
    if process is not None:
        return _tell(process, "resume", *(["--partly"] if partly else []))
    report = _capi.PauseReport()
    _capi.library().resume(_PARTLY if partly else 0, byref(report))
    return _report(report)


@contextmanager
def paused(timeout: float = 10.0, *, strict: bool = False) -> Iterator[PauseReport]:
    """Pauses this process inside the `with` block, and resumes it at the end.

    The value of the block is the PauseReport of the pause.
    """
    report = pause(timeout=timeout, strict=strict)
    try:
        yield report
    finally:
        resume()


def away_info() -> AwayInfo:
    """Returns how much memory is off its device now, because of a pause or VMM_SPILL."""
    info = _capi.AwayInfo()
    _capi.library().get_away_info(byref(info))
    return fields(info, AwayInfo, is_paused=bool(info.is_paused))
