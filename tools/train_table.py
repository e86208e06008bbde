# SPDX-License-Identifier: Apache-2.0
"""Medians of training runs by several allocators: a table, and a JSON file of the same rows.

    train_table.py LINES WORKLOAD PEAK_MIB JSON
"""
import json
import re
import statistics
import sys

PEERS = ("native", "expandable", "async")
SUMMARY = re.compile(
    r"peak_reserved +(\d+) MiB.* retries (\d+) .*median ([\d.]+) ms total ([\d.]+) s")


def read(lines, workload):
    """What each setting's runs said, in the order in which the settings were tried."""
    runs, refused = {}, {}
    for line in lines:
        words = line.split()
        if len(words) < 3 or words[0] != workload:
            continue
        found = SUMMARY.search(line)
        if found:
            runs.setdefault(words[1], []).append([float(x) for x in found.groups()])
        elif "OOM after" in line:
            refused[words[1]] = refused.get(words[1], 0) + 1
            runs.setdefault(words[1], [])
    return runs, refused


def median_total(runs, setting):
    return statistics.median(run[3] for run in runs[setting]) if runs.get(setting) else None


def ratio(total, base):
    return round(total / base, 3) if total and base else None


def row(setting, runs, refused, peak):
    peers = [total for total in (median_total(runs, peer) for peer in PEERS) if total]
    own = median_total(runs, setting)
    one = {"setting": setting, "runs": len(runs[setting]), "out_of_memory": refused.get(setting, 0)}
    if runs[setting]:
        reserved, retries, step, _ = (statistics.median(column) for column in zip(*runs[setting]))
        one |= {
            "reserved_mib": round(reserved),
            "over_peak": round(reserved / peak, 3),
            "retries": round(retries),
            "step_ms": step,
            "total_s": own,
            "of_best_peer": ratio(own, min(peers, default=None)),
            "of_own_unlimited": ratio(own, median_total(runs, setting.split("@")[0])),
        }
    return one


def print_table(rows):
    heads = ["setting", "runs", "out_of_memory", "reserved_mib", "over_peak", "retries", "step_ms",
             "total_s", "of_best_peer", "of_own_unlimited"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for one in rows:
        print("| " + " | ".join(str(one.get(head, "")) for head in heads) + " |")


def main():
    lines, workload, peak, target = sys.argv[1:]
    with open(lines, encoding="utf-8") as file:
        runs, refused = read(file, workload)
    rows = [row(setting, runs, refused, int(peak)) for setting in runs]
    print_table(rows)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(rows, file)
    failed = [one["setting"] for one in rows
              if one["setting"].split("@")[0] == "cuvmm" and (one["out_of_memory"] or not one["runs"])]
    if failed or not rows:
        sys.exit(f"did not finish: {', '.join(failed) or 'anything'}")


if __name__ == "__main__":
    main()
