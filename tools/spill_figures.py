# SPDX-License-Identifier: Apache-2.0
"""Reads the output of training with less memory than its peak, and writes its figures as JSON.

    spill_figures.py WORKLOAD... <LINES

A setting's total time is the median of its runs. `_over` is its ratio to cuvmm's time without a
limit in the same rounds (train_runs.py). Exits with 1 if there is no figure.
"""
import json
import sys

from train_runs import median, paired, read


def name_of(setting):
    place, _, share = setting.removeprefix("cuvmm").removeprefix("-").partition("@")
    if place == "":
        return "unlimited"
    if not setting.startswith("cuvmm"):
        return setting.replace("@", "_")
    return f"{place.replace('spill', 'host')}_{share}" if share else "not_needed"


def figures(lines, workloads):
    shown = {}
    for workload in workloads:
        prefix = f"{workload}_" if len(workloads) > 1 else ""
        runs, _ = read(lines, workload)
        for setting, own in runs.items():
            name = prefix + name_of(setting)
            if not own:
                continue
            shown[f"{name}_s"] = round(median(own, "total_s"), 2)
            shown[f"{name}_step_ms"] = round(median(own, "step_ms"), 1)
            shown[f"{name}_runs"] = len(own)
            if setting != "cuvmm":
                shown |= paired(f"{name}_over", own, runs.get("cuvmm", {}), digits=4)
    return shown


if __name__ == "__main__":
    shown = figures(sys.stdin.readlines(), sys.argv[1:])
    print(json.dumps(shown, indent=1))
    sys.exit(0 if any(name.endswith("_over") for name in shown) else 1)
