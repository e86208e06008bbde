# SPDX-License-Identifier: Apache-2.0
"""The data of a plot (docs/internals/picture_format.md); formats its sizes and times."""

import base64
import json
import os

SCHEMA = 1


class NotOurs(ValueError):
    """The file was not written by `cuvmm plot`."""


def read(path, labels=()):
    """Returns the pictures in a file, each with its label: the name of a trace, of any bytes."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if content.get("schema") != SCHEMA:
        raise NotOurs(f"data of schema {content.get('schema')}, this version draws {SCHEMA}")
    pictures = [Picture(fields) for fields in content["pictures"]]
    for picture, label in zip(pictures, labels):
        name = os.path.splitext(os.path.basename(os.fsencode(label)))[0]
        picture.label = printable(name.decode("utf-8", "replace"))
    return pictures


def printable(text):
    """Replaces control characters, which would end a line or turn its direction."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


class Picture:
    """One downsampled trace. The fields of the format are attributes."""

    device_count = 1  # data written by 0.2.0 lacks it

    def __init__(self, fields):
        self.__dict__.update(fields)
        self.label = printable(os.path.basename(self.command[0])) if self.command else "trace"
        self.note = printable(self.note)
        self.lanes = [dict(lane, name=printable(lane["name"])) for lane in self.lanes]

    def cells(self, name):
        """Returns the address map's cells as rows of bytes, the lowest addresses first."""
        cells = base64.b64decode(getattr(self, name))
        return [cells[i:i + self.columns] for i in range(0, len(cells), self.columns)]

    @property
    def duration_ns(self):
        return self.end_ns - self.begin_ns

    def times(self, columns):
        """Converts column indices to nanoseconds since the start of the picture."""
        return [column * self.duration_ns / self.columns for column in columns]

    def subtitle(self):
        """Returns the key figures in one line."""
        if not self.address_bytes:
            return "no device memory was taken"
        parts = [f"device {self.device}"] if self.device_count > 1 else []
        parts += [f"peak requested {size(self.requested_peak_bytes)}",
                  f"peak physical {size(self.physical_peak_bytes)}"]
        if self.refusal_count:
            largest = max(refusal["asked_bytes"] for refusal in self.refusals)
            word = "allocation" if self.refusal_count == 1 else "allocations"
            parts.append(f"{self.refusal_count} {word} refused (largest {size(largest)})")
        else:
            parts.append("nothing refused")
        return " · ".join(parts)

    def title(self):
        mode = {"VMM": "served by cuvmm", "MONITOR": "the driver's own memory, watched",
                "OFF": "off"}.get(self.mode.upper(), self.mode)
        return f"{self.label}: {mode}" if mode else self.label

    def limit(self):
        """Returns (bytes, name) of the memory limit or the device's memory; None if unknown."""
        if self.limit_bytes is not None:
            return self.limit_bytes, f"limit ({size(self.limit_bytes)})"
        if self.device_bytes:
            return self.device_bytes, f"device memory ({size(self.device_bytes)})"
        return None


SIZE_UNITS = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]
TIME_UNITS = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")]


def unit_for(largest, units):
    """Returns the largest unit in which `largest` is at least 1."""
    for scale, name in units:
        if largest >= scale:
            return scale, name
    return units[-1]


def number(value):
    """Formats to three significant digits, without trailing zeros."""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def size(value):
    scale, name = unit_for(value, SIZE_UNITS)
    return f"{number(value / scale)} {name}"


def time(value_ns):
    scale, name = unit_for(value_ns, TIME_UNITS)
    return f"{number(value_ns / scale)} {name}"


def buckets(counts, unit):
    """Returns (first, end, names) of the buckets from the first to the last that is not empty.

    Bucket n counts values from 2^(n-1) to 2^n - 1.
    """
    used = [i for i, count in enumerate(counts) if count]
    if not used:
        return 0, 0, []
    names = [unit(0 if i == 0 else 1 << (i - 1)) for i in range(used[0], used[-1] + 1)]
    return used[0], used[-1] + 1, names


def microseconds(value):
    """Formats to two significant digits, since buckets begin at powers of two."""
    scale, name = unit_for(value * 1000, TIME_UNITS)
    return f"{float(f'{value * 1000 / scale:.2g}'):g} {name}"
