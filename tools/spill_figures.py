# SPDX-License-Identifier: Apache-2.0
"""Reads what training under less memory than its peak has printed, and writes its figures as JSON.

    spill_figures.py WORKLOAD... <LINES

A setting's total time is the median of its runs; `_over` is that over our own time without a limit.
Ends with 1 where there is none.
"""
import json
import statistics
import sys

from train_table import read


def name_of(setting):
    place, _, share = setting.removeprefix("cuvmm").removeprefix("-").partition("@")
    if place == "":
        return "unlimited"
    return f"{place.replace('spill', 'host')}_{share}" if share else "not_needed"


def figures(lines, workloads):
    totals, medians = {}, {}
    for workload in workloads:
        runs, _ = read(lines, workload)
        for setting, times in runs.items():
            if times:
                *_, medians[workload, name_of(setting)], totals[workload, name_of(setting)] = zip(*times)
    shown = {}
    for (workload, name), values in totals.items():
        total = statistics.median(values)
        prefix = f"{workload}_" if len(workloads) > 1 else ""
        shown[f"{prefix}{name}_s"] = round(total, 2)
        shown[f"{prefix}{name}_step_ms"] = round(statistics.median(medians[workload, name]), 1)
        shown[f"{prefix}{name}_runs"] = len(values)
        alone = totals.get((workload, "unlimited"))
        if alone and name != "unlimited":
            shown[f"{prefix}{name}_over"] = round(total / statistics.median(alone), 4)
    return shown


if __name__ == "__main__":
    shown = figures(sys.stdin.readlines(), sys.argv[1:])
    print(json.dumps(shown, indent=1))
    sys.exit(0 if any(name.endswith("_over") for name in shown) else 1)
