#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the picture of docs/cluster_simulation.md, and prints its tables.

    cluster_figures.py USUAL FULL PICTURE.svg

USUAL and FULL are outputs of cuvmm_cluster_simulation --json for several seeds, with a load of 1
and of 1.5.
"""

import json
import statistics
import sys
from collections import defaultdict

import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

NAMES = {"whole": "whole cards", "fixed": "fixed fractions", "kept": "kept shares",
         "lent": "lent shares"}
COLOURS = {"whole": "#9e9e9e", "fixed": "#e0a030", "kept": "#2f6fb0", "lent": "#3a9d5d"}


def read(path):
    found = defaultdict(list)
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("{"):
                one = json.loads(line)
                found[one["cards"], one["sharing"]].append(one)
    return found


def of(runs, figure):
    return [run[figure] for run in runs]


def table(found):
    print("| cards | | jobs per card | memory served | median wait | p95 wait | stalled |")
    print("|---|---|---|---|---|---|---|")
    for (cards, sharing), runs in sorted(found.items(),
                                         key=lambda item: (item[0][0], list(NAMES).index(item[0][1]))):
        served = of(runs, "served")
        print(f"| {cards:,} | {NAMES[sharing]} | {statistics.mean(of(runs, 'running_per_card')):.2f} "
              f"| {statistics.mean(served):.1%} ({min(served):.1%} to {max(served):.1%}) "
              f"| {statistics.mean(of(runs, 'wait_median_s')) / 60:.1f} min "
              f"| {statistics.mean(of(runs, 'wait_95_s')) / 60:.1f} min "
              f"| {statistics.mean(of(runs, 'stalled')):.1%} |")


def draw(usual, full, path):
    sizes = sorted({cards for cards, _ in full})
    plt.rcParams.update({"svg.hashsalt": "cuvmm", "svg.fonttype": "none", "font.size": 9})
    figure, (served, waits) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for at, (sharing, name) in enumerate(NAMES.items()):
        places = [index + (at - 1.5) * 0.2 for index in range(len(sizes))]
        for axes, found, key, scale in ((served, full, "served", 100),
                                        (waits, usual, "wait_95_s", 1 / 60)):
            values = [[value * scale for value in of(found[cards, sharing], key)] for cards in sizes]
            means = [statistics.mean(one) for one in values]
            spread = [[mean - min(one) for mean, one in zip(means, values)],
                      [max(one) - mean for mean, one in zip(means, values)]]
            axes.bar(places, means, 0.18, label=name, color=COLOURS[sharing], yerr=spread,
                     error_kw={"elinewidth": 0.8})
    served.set(title="Load 1.5: memory served (simulated)", ylabel="% of what there is",
               ylim=(0, 100))
    waits.set(title="Load 1: 95% wait at most (simulated)", ylabel="minutes")
    for axes in (served, waits):
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.set_xlabel("cards")
        axes.spines[["top", "right"]].set_visible(False)
    waits.legend(loc="upper right", fontsize=8)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    at_usual, at_full = read(sys.argv[1]), read(sys.argv[2])
    for results in (at_usual, at_full):
        table(results)
        print()
    draw(at_usual, at_full, sys.argv[3])
