# SPDX-License-Identifier: Apache-2.0
"""Reads the output of tools/gpu_parts/schedule.sh, and writes its figures as JSON.

    schedule_figures.py <LOG

A figure is the median of several rounds. Figures that are missing from the log are left out.
"""
import json
import re
import statistics
import sys

HEAD = re.compile(r"^-- (.*)$")
ANSWERS = re.compile(r"^(.+?) +(?:(\d+) us +(\d+) us|- +-) +(?:([\d.]+)%|-)$")
SHARES = re.compile(r"^(together|policy fair, 3:1) +([\d.]+)% +([\d.]+)%$")
LAUNCH = re.compile(r"^Launch +([\d.]+) ns")
COUNT = re.compile(r"^\[ *(=+|SKIPPED) *\] (\d+) tests")
TORCH = re.compile(r"^FIGURES (\{.*\})$")

NAMES = {
    "the first alone": "alone", "the other alone": "other_alone", "together": "together",
    "stream priorities": "stream_priorities", "policy fifo": "fifo",
    "policy round_robin": "round_robin", "policy priority": "priority", "policy fair, 3:1": "fair",
}
SUITE = "the contract suite as one client"
OTHERS_KERNEL_US = 200
ANSWERS_SHARE = 0.1  # 20 kernels of 50 us every 10 ms: not available to the other client


def read(lines):
    """Returns each figure's values, by name."""
    found, others, part = {}, {}, ""

    def add(name, value):
        found.setdefault(name, []).append(value)

    for line in lines:
        if head := HEAD.match(line):
            part = head[1]
        elif torch := TORCH.match(line):
            others.update(json.loads(torch[1]))
        elif shares := SHARES.match(line):
            if part.startswith("two clients, round"):
                add(f"{NAMES[shares[1]]}_heavy_share", float(shares[2]) / 100)
        elif launch := LAUNCH.match(line):
            add({"calls natively": "launch_natively_ns", "calls under cuvmm": "launch_unscheduled_ns",
                 "calls as one client": "launch_submitted_ns"}.get(part, "launch_ns"), float(launch[1]))
        elif (row := ANSWERS.match(line)) and row[1] in NAMES and part.startswith("two clients"):
            window = re.search(r"WINDOW=(\S+)", part)
            name = (f"window_{window[1]}_" if window else "") + NAMES[row[1]]
            if row[2]:
                add(f"{name}_p50_us", int(row[2]))
                add(f"{name}_p99_us", int(row[3]))
            if row[4]:
                add(f"{name}_other_busy", float(row[4]) / 100)
    return found, others


def programs(lines):
    """Returns the suite's result in the form of tools/tell.sh. A suite that differs has failed."""
    heading = f"-- {SUITE}"
    if heading not in lines:
        return []
    said = lines[lines.index(heading):]
    told = {"program": "contract suite, scheduled", "mode": "vmm",
            "result": "failed" if f"failed: {SUITE}" in said else "passed"}
    for line in said:
        if count := COUNT.match(line):
            told["skipped" if count[1] == "SKIPPED" else "tests"] = int(count[2])
    return [told]


def figures(lines):
    lines = [line.rstrip() for line in lines]
    found, others = read(lines)
    is_of_sweep = {name for name in found if name.startswith("window_")}
    shown = {name: round(statistics.median(values), 4) for name, values in found.items()
             if name not in is_of_sweep or name.split("_")[2] in ("alone", "other", "priority", "fair")}
    for prefix in ("together", "stream_priorities", "fifo", "round_robin", "priority", "fair"):
        if f"{prefix}_p99_us" in shown and "alone_p99_us" in shown:
            shown[f"{prefix}_beyond_alone_us"] = (
                shown[f"{prefix}_p99_us"] - shown["alone_p99_us"] - OTHERS_KERNEL_US)
        if f"{prefix}_other_busy" in shown and "other_alone_other_busy" in shown:
            left = max(0.01, shown["other_alone_other_busy"] - ANSWERS_SHARE)
            shown[f"{prefix}_kept"] = round(shown[f"{prefix}_other_busy"] / left, 4)
    if "fair_heavy_share" in shown:  # weights 3 and 1
        heavy = shown["fair_heavy_share"]
        shown["fair_share_error"] = round(abs(heavy / max(0.001, 1 - heavy) / 3 - 1), 4)
    return {**shown, **others, "programs": programs(lines)}


if __name__ == "__main__":
    sys.stdin.reconfigure(errors="replace")
    print(json.dumps(figures(sys.stdin), indent=1))
