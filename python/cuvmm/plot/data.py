# SPDX-License-Identifier: Apache-2.0
"""The data of a plot (docs/internals/picture_format.md); formats its sizes and times."""

import base64
import json
import os
import unicodedata

from .._units import SIZE_UNITS, TIME_UNITS, number, size, time, unit_for

SCHEMA = 1


class NotOurs(ValueError):
    """The file was not written by `cuvmm plot`."""


class NothingToDraw(ValueError):
    """The traces contain neither device memory nor operations."""


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
    if all(picture.is_empty for picture in pictures):
        raise NothingToDraw("nothing to draw: no device memory was taken, and no work was started")
    return pictures


def printable(text):
    """Replaces control characters, which would end a line or turn its direction."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


class Picture:
    """One downsampled trace. The fields of the format are attributes."""

    # Data written by 0.2.0 lacks these.
    device_count = 1
    is_native = False
    limits = ()
    spilled_bytes = ()
    spilled_peak_bytes = 0

    def __init__(self, fields):
        self.__dict__.update(fields)
        self.label = printable(os.path.basename(self.command[0])) if self.command else "trace"
        self.note = printable(self.note)
        self.lanes = [dict(lane, name=printable(lane["name"])) for lane in self.lanes]

    @property
    def has_map(self):
        return self.address_bytes > 0

    @property
    def has_memory(self):
        return self.has_map or self.requested_peak_bytes > 0 or self.physical_peak_bytes > 0

    @property
    def has_backing(self):
        """Whether the trace tells what memory backs the addresses.

        PyTorch's and RMM's do not, nor does the driver tell how much it takes for its allocations.
        """
        if self.is_native and self.physical_bytes == self.requested_bytes:
            return False
        return self.physical_peak_bytes > 0 or max(self.mapped_bytes) > 0

    @property
    def backing_name(self):
        return "requested of the driver" if self.is_native else "physical"

    @property
    def has_timeline(self):
        return self.has_memory or self.refusal_count > 0

    @property
    def has_shares(self):
        """Whether fragmentation is known, or something was granted beyond a request."""
        return self.has_map and (bool(self.fragmentation) or any(self.rounding_waste))

    @property
    def is_empty(self):
        return not self.has_timeline and not self.lanes

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
        parts = [f"device {self.device}"] if self.device_count > 1 else []
        if self.has_memory:
            parts.append(f"peak requested {size(self.requested_peak_bytes)}")
        else:
            parts.append("no device memory was taken")
        if self.has_backing:
            parts.append(f"peak {self.backing_name} {size(self.physical_peak_bytes)}")
        if self.spilled_peak_bytes:
            parts.append(f"peak spilled {size(self.spilled_peak_bytes)}")
        if self.refusal_count:
            word = "allocation" if self.refusal_count == 1 else "allocations"
            parts.append(f"{self.refusal_count} {word} refused (largest {size(self.largest_refusal_bytes)})")
        elif self.has_memory:
            parts.append("nothing refused")
        return " · ".join(parts)

    def title(self, width=None):
        """Returns the label, shortened to a width, and how the memory was served."""
        label = shortened(self.label, width) if width else self.label
        mode = {"VMM": "served by cuvmm", "MONITOR": "the driver's own memory, watched",
                "OFF": "off"}.get(self.mode.upper(), self.mode)
        return f"{label}: {mode}" if mode else label

    def limit(self):
        """Returns (most bytes, name) of the limits or the device's memory; None if unknown."""
        bounds = [bound for _, bound in self.limit_steps()]
        if not bounds:
            return None
        has_limit = self.limit_bytes is not None or any(limit["bytes"] for limit in self.limits)
        amount = " to ".join(dict.fromkeys(map(size, (min(bounds), max(bounds)))))
        return max(bounds), f"{'limit' if has_limit else 'device memory'} ({amount})"

    def limit_steps(self):
        """Returns pairs of ns since the start and the limit from then on.

        Where there is no limit, the device's memory is one.
        """
        steps = [(limit["time_ns"] - self.begin_ns, limit["bytes"]) for limit in self.limits]
        if not steps and self.limit_bytes is not None:
            steps = [(0, self.limit_bytes)]
        if not steps or steps[0][0] > 0:
            steps.insert(0, (0, None))
        bounds = [(at, self.device_bytes if bound is None else bound) for at, bound in steps]
        return [step for step in bounds if step[1]]


def memory_bound(pictures):
    """Returns the most memory that any of the pictures shows: they share its scale.

    A limit far above the memory in use is left out, since it would flatten everything else.
    """
    most = max(max(picture.requested_bytes + picture.mapped_bytes + picture.physical_bytes)
               for picture in pictures)
    limits = [limit[0] for picture in pictures if (limit := picture.limit())]
    return max([1, most] + [limit for limit in limits if limit <= 2.5 * most or most == 0])


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
    """Formats a power of two, rounded to three digits."""
    scale, name = unit_for(value * 1000, TIME_UNITS)
    number = value * 1000 / scale
    return f"{number:.0f} {name}" if number >= 100 else f"{number:.3g} {name}"


def shortened(text, width):
    """Leaves out the middle of a text that is too wide. Wide letters count twice."""
    def width_of(letters):
        return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in letters)
    if width_of(text) <= width:
        return text
    while width_of(text) > width - 1:
        middle = len(text) // 2
        text = text[:middle] + text[middle + 1:]
    middle = (len(text) + 1) // 2
    return f"{text[:middle]}…{text[middle:]}"
