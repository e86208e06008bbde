# SPDX-License-Identifier: Apache-2.0
"""An interactive plot (hover, zoom) as one self-contained HTML file, made without any package."""

import base64
import html as markup
import json
import os
import re
import struct
import zlib

from . import data

HERE = os.path.dirname(os.path.abspath(__file__))


def draw(pictures, path):
    title = "cuvmm: " + ", ".join(picture.label for picture in pictures)
    bound = data.memory_bound(pictures)
    content = json.dumps([fields_of(picture, bound) for picture in pictures],
                         separators=(",", ":"))
    parts = {"TITLE": markup.escape(title), "STYLE": part("page.css"), "SCRIPT": part("page.js"),
             "FLAMES": part("flames.js"),
             "DATA": content.replace("<", "\\u003c")}  # cannot end the element
    # In one pass, since a file may be named like one of the places.
    document = re.sub("@([A-Z]+)@", lambda place: parts[place[1]], part("page.html"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(document)


def part(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def fields_of(picture, memory_bound):
    """Returns the part of a picture that is drawn, with the texts that all kinds of plots share."""
    limit = picture.limit()
    return {
        "title": picture.title(), "subtitle": picture.subtitle(), "note": picture.note,
        "duration_ns": picture.duration_ns, "begin_ns": picture.begin_ns,
        "columns": picture.columns, "rows": picture.rows, "address_bytes": picture.address_bytes,
        "cells": png(picture), "requested": picture.requested_bytes,
        "mapped": picture.mapped_bytes, "physical": picture.physical_bytes,
        "spilled": picture.spilled_bytes if picture.spilled_peak_bytes else [],
        "memory_bound": memory_bound, "has_map": picture.has_map,
        "has_timeline": picture.has_timeline, "has_backing": picture.has_backing,
        "has_shares": picture.has_shares,
        "limit": {"name": limit[1], "steps": picture.limit_steps()} if limit else None,
        "backing_name": picture.backing_name,
        "refusals": picture.refusals, "samples": picture.sample_columns,
        "fragmentation": rounded(picture.fragmentation), "waste": rounded(picture.rounding_waste),
        "lanes": picture.lanes, "lanes_are_clients": picture.lanes_are_clients,
        "flames": picture.flames,
        "sizes": bars(picture.sizes, data.size),
        "lifetimes": bars(picture.lifetimes_us, data.microseconds),
    }


def rounded(shares):
    return [round(share, 4) for share in shares]


def bars(counts, unit):
    first, last, names = data.buckets(counts, unit)
    return {"names": names, "counts": counts[first:last]}


def png(picture):
    """Returns the address map as the data URL of a PNG: red is used, green is mapped."""
    used, mapped = picture.cells("used"), picture.cells("mapped")
    lines = bytearray()
    for row_used, row_mapped in zip(used, mapped):
        line = bytearray(3 * len(row_used))
        line[0::3] = row_used
        line[1::3] = row_mapped
        lines += b"\0" + line  # no filter
    if not used:
        return ""
    content = (b"\x89PNG\r\n\x1a\n" +
               chunk(b"IHDR", struct.pack(">IIBBBBB", picture.columns, len(used), 8, 2, 0, 0, 0)) +
               chunk(b"IDAT", zlib.compress(bytes(lines), 9)) + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def chunk(kind, content):
    return (struct.pack(">I", len(content)) + kind + content +
            struct.pack(">I", zlib.crc32(kind + content)))
