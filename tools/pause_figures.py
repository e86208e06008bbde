# SPDX-License-Identifier: Apache-2.0
"""Reads the output of tools/gpu_parts/pause.sh, and writes its figures as JSON.

    pause_figures.py <LOG

A figure is the median of several pauses. Exits with 1 if there is none.
"""
import json
import re
import statistics
import sys

HEAD = re.compile(r"^-- (.*)$")
LINK = re.compile(r"^link (out|back): ([\d.]+) GB/s")
TOUCHED = re.compile(r"^touched 8 GiB by \d+ threads: ([\d.]+) ms$")
DONE = re.compile(r"^\d+: (paused|resumed): ([\d.]+) (GiB|MiB) in ([\d.]+) ms, held for ([\d.]+) ms")
PARTS = re.compile(r"^\d+: of that: (.*) ms$")
WAYS = {"paused": "pause", "resumed": "resume"}
GIB = 1 << 30


def figures(lines):
    found, links, head, way = {}, {}, "", ""

    def add(name, value):
        found.setdefault(f"{head}_{way}_{name}", []).append(value)

    for line in lines:
        line = line.rstrip()
        if match := HEAD.match(line):
            head = match[1].replace(" ", "_").lower()
        elif match := LINK.match(line):
            links[match[1]] = float(match[2])
        elif match := TOUCHED.match(line):
            found.setdefault("touched_8_gib_ms", []).append(float(match[1]))
        elif match := DONE.match(line):
            way = WAYS[match[1]]
            size = float(match[2]) * (GIB if match[3] == "GiB" else GIB / 1024)
            add("ms", float(match[4]))
            add("held_ms", float(match[5]))
            add("gb_a_second", size / float(match[4]) / 1e6)
        elif match := PARTS.match(line):
            for part in match[1].split(", "):
                words = part.rsplit(" ", 1)
                add(words[0].replace(" ", "_") + "_ms", float(words[1]))
    shown = {f"link_{way}_gb_a_second": speed for way, speed in links.items()}
    shown.update({name: round(statistics.median(values), 2) for name, values in found.items()})
    if "touched_8_gib_ms" in shown and "out" in links and "8_gib_cold_pause_ms" in shown:
        bound = max(shown["touched_8_gib_ms"], 8 * GIB / links["out"] / 1e6)
        shown["8_gib_cold_pause_of_bound"] = round(shown["8_gib_cold_pause_ms"] / bound, 3)
    for name in [name for name in shown if name.endswith("_gb_a_second") and "link" not in name]:
        way = "out" if "_pause_" in name else "back"
        if way in links:
            shown[name.replace("gb_a_second", "of_link")] = round(shown[name] / links[way], 4)
    return shown


if __name__ == "__main__":
    shown = figures(sys.stdin)
    print(json.dumps(shown, indent=1))
    sys.exit(0 if any(name.endswith("_ms") for name in shown) else 1)
