# SPDX-License-Identifier: Apache-2.0
"""Compares the outputs of two runs of one program (tests/gpu/matrix/outputs.py).

Bitwise, unless two native runs differ themselves: then an output may differ by SPREADS times as much
as in that native pair, and outputs that were bitwise the same in it still have to be.
"""
import array
import json
import math
import pathlib

SPREADS = 4  # two runs are a small sample of how far runs differ


def outputs_of(folder):
    return json.loads((pathlib.Path(folder) / "outputs.json").read_text(encoding="utf-8"))


def values_of(folder, one):
    values = array.array("d")
    with (pathlib.Path(folder) / "values.bin").open("rb") as file:
        file.seek(one["at"] * 8)
        values.fromfile(file, one["count"])
    return values


def distance(a, b):
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else math.inf


def kind_of(one):
    return {key: one.get(key) for key in ("name", "type", "shape", "raised")}


def words_for(one):
    return f"raises {one['raised']} ({one.get('text', '')})" if "raised" in one else f"is {one.get('type')} {one.get('shape')}"


def largest_distance(first, second, one, other):
    """Returns the largest difference of an output's values and how many differ, None if there are none
    to compare."""
    if "at" not in one or "at" not in other:
        return None
    distances = [distance(a, b) for a, b in zip(values_of(first, one), values_of(second, other))]
    return max(distances, default=0.0), sum(value > 0 for value in distances), len(distances)


def spread_of(first, second):
    """Returns by how much each output that differs between two native runs does. Infinite if they differ
    in more than values."""
    spread = {}
    for one, other in zip(outputs_of(first), outputs_of(second)):
        if one["digest"] != other["digest"]:
            found = largest_distance(first, second, one, other) if kind_of(one) == kind_of(other) else None
            spread[one["name"]] = found[0] if found else math.inf
    return spread


def first_difference(native, other, spread=None):
    """Returns the first difference in words, None if there is none."""
    natives, others = outputs_of(native), outputs_of(other)
    for one, its in zip(natives, others):
        if one["digest"] == its["digest"] and kind_of(one) == kind_of(its):
            continue
        if kind_of(one) != kind_of(its):
            if one["name"] != its["name"]:
                return f"{its['name']}, which {words_for(its)}, instead of {one['name']}"
            return f"{one['name']} {words_for(its)}, natively it {words_for(one)}"
        allowed = SPREADS * (spread or {}).get(one["name"], 0.0)
        found = largest_distance(native, other, one, its)
        if found is None:
            if allowed != math.inf:
                return f"{one['name']}: other bytes"
            continue
        largest, count, all_values = found
        # Bytes may differ where values do not: -0 and 0, or one NaN and another.
        if largest > allowed or allowed == 0.0:
            beyond = f", {allowed:.3g} allowed by the native pair" if allowed else ""
            return f"{one['name']}: {count} of {all_values} values differ, by {largest:.3g} at most{beyond}"
    if len(natives) != len(others):
        return f"{len(others)} outputs instead of {len(natives)}"
    return None
