# SPDX-License-Identifier: Apache-2.0
"""cuvmm's options and the values that each accepts, as src/base/options.def defines them."""

from __future__ import annotations

import re
from typing import Callable, Mapping, NamedTuple, Optional


class Kind(NamedTuple):
    """The type of an option's value."""

    allowed: str
    accepts: Callable[[str], bool]


_NUMBER = r"([0-9]+)(?:\.([0-9]+))?"
_SIZE = re.compile(rf" *{_NUMBER} *(?:B|([KMGTPE])(?:i?B)?)? *", re.I | re.A)
_SHARE = re.compile(rf" *{_NUMBER}% *")
_TIME = re.compile(rf" *{_NUMBER} *(us|ms|s|m|h)? *", re.I | re.A)
_MOST_DEVICES = 1024
MOST_WEIGHT = 10_000
_DAY_US = 24 * 3600 * 10**6
_US = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}


def _bytes(text: str) -> Optional[int]:
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    whole, fraction, unit = int(found[1]), found[2] or "0", found[3]
    shift = 10 * " KMGTPE".index(unit.upper()) if unit else 0
    if whole >= 1 << (64 - shift) or (shift == 0 and int(fraction)):
        return None
    return (whole << shift) + (int(fraction) << shift) // 10**len(fraction)


def _is_limit(text: str) -> bool:
    share = _SHARE.fullmatch(text)
    if share is not None:
        return int(share[1]) + (int(share[2] or "0") > 0) <= 100
    return text.strip(" ").lower() in ("none", "unlimited") or _bytes(text) is not None


def _is_stack_interval(text: str) -> bool:
    return text.strip(" ").lower() in ("off", "on", "all") or 0 < (_bytes(text) or 0) <= 1 << 40


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    number = float(f"{found[1]}.{found[2] or '0'}")
    return number == 0 if found[3] is None else number * _US[found[3].lower()] <= _DAY_US


def _is_device_list(text: str) -> bool:
    devices = [one.strip(" ") for one in text.split(",")]
    if not all(re.fullmatch("[0-9]+", one) for one in devices):
        return False
    numbers = [int(one) for one in devices]
    return max(numbers) < _MOST_DEVICES and len(set(numbers)) == len(numbers)


def _is_spill(text: str) -> bool:
    to, colon, limit = text.partition(":")
    to = to.strip(" ").lower()
    return to in ("host", "peer", "auto") and (not colon or _is_limit(limit)) \
        or (to == "off" and not colon)


def _choice(*words: str) -> Kind:
    known = [word.lower() for word in words]
    return Kind(", ".join(words), lambda text: text.strip(" ").lower() in known)


def _whole(least: int, most: int) -> Kind:
    def accepts(text: str) -> bool:
        number = re.fullmatch(" *(-?[0-9]+) *", text)
        return number is not None and least <= int(number[1]) <= most
    return Kind(f"a whole number from {least} to {most}", accepts)


_TEXT = Kind("any text", lambda text: True)
_LIMIT = Kind("a size (16G), a share (80%), or none", _is_limit)
_DURATION = Kind("a time with a unit, up to 1 day (10m, 1s, 250ms, 50us)", _is_time)
_SWITCH = _choice("off", "on")

OPTIONS = {
    "mode": _choice("VMM", "MONITOR", "OFF"),
    "limit": _LIMIT,
    "trace_file": _TEXT,
    "stacks": Kind("off, on, all, or a size (256K)", _is_stack_interval),
    "log_level": _choice("ERROR", "WARNING", "INFO", "DEBUG"),
    "log_file": _TEXT,
    "grow": _choice("loose", "tight"),
    "cache": _LIMIT,
    "free": _choice("exact", "relaxed"),
    "wait": _DURATION,
    "compact": _choice("auto", "all", "on", "off"),
    "spill": Kind("off, host, peer, auto; all but off with a size or share (host:32G, auto:50%)",
                  _is_spill),
    "spill_peers": Kind("device numbers (0,1), each once", _is_device_list),
    "spill_move": _SWITCH,
    "control": _SWITCH,
    "publish": _SWITCH,
    "pause_ahead": _LIMIT,
    "resize": _choice("auto", "elide", "off"),
    "schedule": _choice("off", "fifo", "round_robin", "priority", "fair"),
    "schedule_window": _DURATION,
    "client": _TEXT,
    "priority": _whole(-100, 100),
    "weight": _whole(1, MOST_WEIGHT),
    "node": _choice("off", "auto", "require"),
    "node_socket": _TEXT,
    "node_wait": _DURATION,
    "name": _TEXT,
    "group": _TEXT,
    "guarantee": _LIMIT,
    "cap": _whole(1, 100),
}


_MIB = 1 << 20


def _is_alignment(text: str) -> bool:
    size = _bytes(text) or 0
    return size >= 4096 and size & (size - 1) == 0


def _is_driver_version(text: str) -> bool:
    found = re.fullmatch(r" *([0-9]+)\.([0-9]+) *", text)
    return found is not None and int(found[1]) <= 999 and int(found[2]) <= 99


def _is_order(text: str) -> bool:
    return re.fullmatch(" *(eager|lazy|random:[0-9]+) *", text, re.I) is not None


_CALL = "cu[A-Za-z0-9_]+"


def _is_list_of(part: str) -> Callable[[str], bool]:
    return lambda text: all(re.fullmatch(part, one.strip(" ")) for one in text.split(","))


# The settings of the simulated driver, as src/base/sim_options.def defines them.
SIM_OPTIONS = {
    "devices": _whole(0, 8),
    "memory": Kind("a size (16G)", lambda text: _bytes(text) is not None),
    "card": Kind("a name of up to 64 letters, digits, and . _ -",
                 lambda text: re.fullmatch(" *[A-Za-z0-9_-][A-Za-z0-9._-]{0,63} *", text) is not None),
    "peers": _SWITCH,
    "driver": Kind("a CUDA version (13.0)", _is_driver_version),
    "order": Kind("eager, lazy, random:SEED", _is_order),
    "backing": _choice("memory", "none"),
    "fault": Kind("FUNCTION:NUMBER=CUDA_ERROR_... or =SIGKILL, several with commas",
                  _is_list_of(f"{_CALL}: *0*[1-9][0-9]* *=(SIGKILL|CUDA_ERROR_.*)")),
    "delay": Kind("FUNCTION=TIME (cuMemMap=25us), several with commas",
                  lambda text: all(re.fullmatch(_CALL, name) and _is_time(time) for name, _, time in
                                   (one.strip(" ").partition("=") for one in text.split(",")))),
    "leaks": _choice("off", "report"),
    "granularity": Kind("a power of two from 4K up (2M)", _is_alignment),
    "log_level": OPTIONS["log_level"],
}


def sim_variables_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Returns the environment variables of the simulated driver's settings, like variables_of()."""
    unknown = sorted(str(name) for name in settings if str(name).lower() not in SIM_OPTIONS)
    if unknown:
        raise TypeError(f"the simulated driver has no setting {', '.join(unknown)}; there are "
                        f"{', '.join(SIM_OPTIONS)}")
    variables = {}
    for name, value in settings.items():
        if value is None:
            continue
        text = as_text(value)
        kind = SIM_OPTIONS[name.lower()]
        if text and not kind.accepts(text):
            raise ValueError(f"invalid {name}: {value!r}; allowed: {kind.allowed}")
        variables[f"VMM_SIM_{name.upper()}"] = text
    return variables


def as_text(value: object) -> str:
    """Returns an option's value as the library reads it: True and False become on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _check_limit(value: object, text: str) -> None:
    size = _bytes(text)
    if size is not None and size < 2 * _MIB:
        number = text.strip(" ")
        more = f"; {number} is {number} bytes, {number}G is {number} GiB" \
            if size and number.isdecimal() else ""
        raise ValueError(f"invalid limit: {value!r}: a limit must be at least 2 MiB{more}")


def variables_of(options: Mapping[str, object]) -> dict[str, str]:
    """Returns the environment variables of `options`, without those whose value is None.

    Raises TypeError if an option is unknown, and ValueError if a value is invalid.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise TypeError(f"cuvmm has no option {', '.join(unknown)}; there are "
                        f"{', '.join(OPTIONS)}")
    variables = {}
    for name, value in options.items():
        if value is None:
            continue
        text = as_text(value)
        if text and not OPTIONS[name].accepts(text):  # an empty value counts as unset
            raise ValueError(f"invalid {name}: {value!r}; allowed: {OPTIONS[name].allowed}")
        if name == "limit":
            _check_limit(value, text)
        variables[f"VMM_{name.upper()}"] = text
    return variables
