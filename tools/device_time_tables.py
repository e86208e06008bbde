# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/scheduling.md: how two programs share a card's time, on each card measured."""
import json

from result_tables import table

CARDS = {"H100": "nvidia-h100", "H200": "nvidia-h200"}
COSTS = "amd-epyc-x2/time_lease.json"
SHARES = (10, 25, 50)

# What a row says, the figure's name in gputime.json, and how it is shown.
RESPONSES = (
    ("slowest response (p99) of a program that asks for 0.6 ms every 10 ms, beside one that is always busy, compared "
     "with the program alone: natively", "foreground p99 beside the background, natively, x alone", ".1f"),
    ("the same under `priority`", "the same under priority", ".2f"),
    ("what the busy one gets of the time that the other leaves", "background, of what the foreground leaves", ".2f"),
)
ALONE = ("one program alone under the service, compared with running natively",
         "one program alone under the service, x native", ".3f")
TORCH = (("the answer's p50", "PyTorch serving p50"), ("the answer's p99", "PyTorch serving p99"),
         ("steps of the training in a second", "PyTorch training's steps"))


def figures_of(results):
    """Returns the figures of each card by their name."""
    figures = {}
    for card, machine in CARDS.items():
        part = json.loads((results / machine / "gputime.json").read_text(encoding="utf-8"))
        figures[card] = {one["what"]: one for one in part["details"]["figures"]}
    return figures


def goal_of(figures, what):
    """Returns a goal, which is the same for all cards."""
    goal = next(iter(figures.values()))[what]["goal"] or ""
    return goal.replace("<=", "≤").replace(">=", "≥").replace("+-", "±")


def values(figures, whats, form):
    """Returns a cell for each card: the values of its figures with these names."""
    return [", ".join(f"{one[what]['value']:{form}}" for what in whats) for one in figures.values()]


def cost_of_a_launch(results):
    benchmarks = json.loads((results / COSTS).read_text(encoding="utf-8"))["benchmarks"]
    medians = {one["run_name"]: one["real_time"] for one in benchmarks if one.get("aggregate_name") == "median"}
    return f"{medians['nobody_competes']:.1f} ns if nobody competes, {medians['in_the_foreground']:.0f} ns in the " \
           f"foreground, {medians['with_a_share']:.0f} ns with a share"


def sharing(results):
    figures = figures_of(results)
    rows = [[says, goal_of(figures, what), *values(figures, [what], form)] for says, what, form in RESPONSES]
    for says, kind in (("`share` 10:90, 25:75 and 50:50, kernels of 2 ms against 50 µs", "kernels"),
                       ("the same with graphs of eight such kernels", "graphs")):
        whats = [f"share {percent}:{100 - percent}, {kind} of 2 ms against 50 us" for percent in SHARES]
        bound = goal_of(figures, whats[0]).removeprefix(f"{SHARES[0]} ")
        rows.append([says, bound, *values(figures, whats, ".0f")])
    seconds = ["the second with the least", "cap 30%, alone: the second with the most"]
    rows.append(["`--cap 30`, alone: the seconds with the least and the most", goal_of(figures, seconds[0]),
                 *values(figures, seconds, ".1f")])
    says, what, form = ALONE
    rows.append([says, goal_of(figures, what), *values(figures, [what], form)])
    rows.append(["cuvmm's own time for a launch that need not wait (`cuvmm_bench_time_lease`, on an AMD EPYC)",
                 "≤ 20 ns", cost_of_a_launch(results), ""])
    return table(["What", "Goal", *CARDS], rows)


def with_range(figure):
    return f"{figure['value']:.2f} ({min(figure['rounds']):.2f} to {max(figure['rounds']):.2f})"


def torch(results):
    figures = figures_of(results)
    hows = ("natively", "under priority")
    rows = [[says, *(with_range(one[f"{name} beside the other, {how}, x alone"])
                     for one in figures.values() for how in hows)] for says, name in TORCH]
    heads = [head for card in CARDS for head in (f"{card}, natively", "under `priority`")]
    return table(["", *heads], rows)
