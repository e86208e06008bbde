# SPDX-License-Identifier: Apache-2.0
"""Training runs under several allocators, as a table and as a JSON file with the same rows.

    train_table.py LINES WORKLOAD PEAK_MIB JSON

Sizes and times are medians of a setting's runs; ratios compare runs of the same round
(train_runs.py). The best peer is the allocator for which cuvmm's ratio is largest.
"""
import json
import sys

from train_runs import median, paired, read

PEERS = ("native", "expandable", "async")
RATIOS = ("of_best_peer", "of_own_unlimited", "of_limited_expandable")


def over_best_peer(runs, setting):
    ratios = {peer: paired("of_best_peer", runs[setting], runs.get(peer, {})) for peer in PEERS}
    ratios = {peer: ratio for peer, ratio in ratios.items() if ratio}
    if not ratios:
        return {"of_best_peer": None}
    best = max(ratios, key=lambda peer: ratios[peer]["of_best_peer"])
    return {**ratios[best], "best_peer": best}


def over_limited_expandable(setting, runs):
    """The ratio to expandable segments with the same limit."""
    allocator, at, share = setting.partition("@")
    if not at or allocator == "expandable":
        return {}
    return paired("of_limited_expandable", runs[setting], runs.get(f"expandable@{share}", {}))


def row(setting, runs, refused, peak):
    own = runs[setting]
    one = {"setting": setting, "runs": len(own), "out_of_memory": refused.get(setting, 0)}
    if own:
        reserved = median(own, "reserved_mib")
        unlimited = runs.get(setting.split("@")[0], {})
        one |= {
            "reserved_mib": round(reserved),
            "over_peak": round(reserved / peak, 3),
            "retries": round(median(own, "retries")),
            "step_ms": round(median(own, "step_ms"), 1),
            "total_s": round(median(own, "total_s"), 2),
            **over_best_peer(runs, setting),
            **(paired("of_own_unlimited", own, unlimited) or {"of_own_unlimited": None}),
            **over_limited_expandable(setting, runs),
        }
    return one


def cell(one, head):
    if one.get(head) is None:
        return ""
    return f"{one[head]} ({one[f'{head}_least']} to {one[f'{head}_most']})" if head in RATIOS else str(one[head])


def print_table(rows):
    heads = ["setting", "runs", "out_of_memory", "reserved_mib", "over_peak", "retries", "step_ms",
             "total_s", "best_peer", *RATIOS]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for one in rows:
        print("| " + " | ".join(cell(one, head) for head in heads) + " |")


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
