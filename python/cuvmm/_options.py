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
    return text.strip(" ").lower() in ("off", "on", "all") or bool(_bytes(text))


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
_DURATION = Kind("a time up to 1 day (10m, 1s, 250ms, 50us)", _is_time)
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


def as_text(value: object) -> str:
    """Returns an option's value as the library reads it: True and False become on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


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
        variables[f"VMM_{name.upper()}"] = text
    return variables
