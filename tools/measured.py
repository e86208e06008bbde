# SPDX-License-Identifier: Apache-2.0
"""Generates docs/measured.md, bench/results/figures.md and the tables of figures in README.md and
docs/scheduling.md from bench/results.

    measured.py [--check]

So no figure there is typed by hand. measured.md is a summary of one page; figures.md has everything.
bench/goals.json lists the figures with a goal: a name, the goal, the file, and the path to the
figure in that file. A figure from several rounds is shown with the smallest and the largest of
them. same_results.py makes the rows of programs with the same results under cuvmm, and
measured_summary.py the other summaries; device_time_tables.py makes the tables of scheduling.md.
bench/headline.json has the rows of README.md and where their figures come from. --check only checks whether the files are up to date.
"""
import argparse
import difflib
import json
import pathlib
import sys

import device_time_tables
import measured_summary
import same_results
from result_tables import details_of, figure, number, table, with_spread

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "measured.md"
FIGURES = RESULTS / "figures.md"
FIGURES_LINK = "../bench/results/figures.md"  # from PAGE
HEAD = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n<!-- Made by tools/measured.py. -->\n"
GOALS = ROOT / "bench" / "goals.json"
README = ROOT / "README.md"
SCHEDULING = ROOT / "docs" / "scheduling.md"
HEADLINE = ROOT / "bench" / "headline.json"
BEGINS, ENDS = "<!-- made by tools/measured.py -->\n", "<!-- end -->\n"
BEGINS_WHERE = "<!-- made by tools/measured.py: where it ran -->\n"
BEGINS_SHARING = "<!-- made by tools/measured.py: two programs -->\n"
BEGINS_TORCH = "<!-- made by tools/measured.py: two PyTorch programs -->\n"


def follow(data, steps):
    """Follows a path of keys, list indices and {"name": …}, the element that has these values."""
    for step in steps:
        if isinstance(step, dict):
            found = [one for one in data if all(one.get(k) == v for k, v in step.items())]
            if not found:
                raise KeyError(step)
            data = found[0]
        else:
            data = data[step]
    return data


def shown(value, unit):
    """Ratios get a third decimal, so that a goal and a figure just beyond it differ."""
    return f"{value:.3f}" if not unit and 0.5 < value < 2 else number(value)


def goals():
    """Returns what, goal, measured, whether it is met (None: not measured) and the file of each goal."""
    rows = []
    for goal in json.loads(GOALS.read_text(encoding="utf-8")):
        file = RESULTS / goal["file"]
        unit = f" {goal['unit']}" if goal.get("unit") else ""
        try:
            *steps, key = goal["at"]
            data = follow(json.loads(file.read_text(encoding="utf-8")), steps)
            times = goal.get("times", 1)
            value = figure(data, key) * times
            met = value <= goal["most"] if "most" in goal else value >= goal["least"]
            measured = with_spread({**data, key: figure(data, key)}, key, lambda value: shown(value * times, unit)) + unit
        except (OSError, KeyError, IndexError, TypeError):
            measured, met = "not measured", None
        bound = f"≤ {number(goal['most'])}" if "most" in goal else f"≥ {number(goal['least'])}"
        rows.append((goal["what"], bound + unit, measured, met, f"`{goal['file']}`"))
    return rows


def all_goals():
    words = {True: "yes", False: "**no**", None: ""}
    return table(["What", "Goal", "Measured", "Met", "From"],
                 [(*row, words[met], file) for *row, met, file in goals()])


def missed_goals():
    rows = goals()
    missed = [(*row, file) for *row, met, file in rows if not met]
    others = measured_summary.missed_by_parts(RESULTS)
    return f"{len(rows) - len(missed)} of {len(rows)} goals are met ([all of them]({FIGURES_LINK}#goals)). " \
           "The table lists the others,\nand then those that parts of `./dev gpu-test` set themselves and missed.\n\n" \
           + table(["What", "Goal", "Measured", "From"], [*missed, *others])


def origin_of(where, results):
    """Returns the file that a figure of the table is in, or the element of several files' lists in
    which the figure "largest" is the largest."""
    files = [json.loads((results / file).read_text(encoding="utf-8"))
             for file in where.get("files") or [where["file"]]]
    if "largest" not in where:
        return files[0]
    candidates = [one for file in files for one in follow(file, where["among"])]
    return max(candidates, key=lambda one: figure(one, where["largest"]))


def figure_of(where, results):
    """Returns a cell of README.md's table: a number in the requested form, or a word unchanged."""
    *steps, key = where["at"]
    found = figure(follow(origin_of(where, results), steps), key)
    return f"{found * where.get('times', 1):{where['form']}}" if "form" in where else found


def headline(rows, results=RESULTS):
    made = []
    for row in rows:
        shared = row.get("from", {})
        figures = {name: figure_of({**shared, **where}, results) for name, where in row["figures"].items()}
        made.append([cell.format(**figures) for cell in row["row"]])
    return table(["What", "Natively", "With cuvmm"], made)


def with_table(text, made, begins=BEGINS):
    """Returns the text with the table after the line `begins` replaced by `made`."""
    before, _, rest = text.partition(begins)
    _, end, after = rest.partition(ENDS)
    if not end:
        raise SystemExit(f"a page has no lines {begins.strip()} and {ENDS.strip()}")
    return before + begins + made + ENDS + after


def commit_of(file, result):
    """Returns the part's commit, or if no part ran, the one in the first line of its raw output."""
    if "commit" in result:
        return result["commit"]
    raw = file.with_suffix(".txt")
    head = raw.read_text(encoding="utf-8").partition("\n")[0] if raw.exists() else ""
    return head.partition(", commit ")[2] or "commit unknown"


def same_results_rows(results):
    rows = []
    for file in sorted(results.glob("*/*.json")):
        if file.stem in same_results.PARTS:
            result = json.loads(file.read_text(encoding="utf-8"))
            source = f"`{file.relative_to(results)}`, {commit_of(file, result)}"
            rows += same_results.rows_of(file.stem, result["details"] if "part" in result else result, source)
    return rows


def same_results_table(results):
    return table(same_results.HEADS, same_results_rows(results))


def part(file):
    result = json.loads(file.read_text(encoding="utf-8"))
    raw = file.with_suffix(".txt")
    about, details = "", result
    if "part" in result:
        about = f"{result['card']}, driver {result['driver']}, commit {result['commit']}: {result['result']}, " \
                f"{result['seconds']} s.\n"
        details = result["details"]
    if raw.exists():
        about += f"Raw: [{raw.relative_to(RESULTS)}]({raw.relative_to(RESULTS)}).\n"
    return f"### {file.stem}\n\n{about}\n{details_of(details)}"


def page():
    rows = measured_summary.grouped_results(same_results_rows(RESULTS))
    return f"""{HEAD}# Measured

The main figures are in [README.md](../README.md#measured), and so is a table of the cards, drivers and frameworks that
they come from. Everything here is made from [bench/results](../bench/results/README.md), which explains how runs are
compared; [every figure]({FIGURES_LINK}) is there, beside the raw output. To measure again, run
`./dev gpu-test` (on a card) and `./dev bench`.

## Cost of a step

Step times, measured natively and under cuvmm in alternation; largest overhead first. Each overhead is the median, over
the rounds, of the ratio to the native time of the same round; quartiles are in parentheses. If the quartiles of the
native times are far apart, the machine was busy with other work, or the processes themselves differed: with steps of a
millisecond or less, one process may run half as fast as the next, natively too. A single start therefore proves little.

{measured_summary.costs(RESULTS)}
## Goals

{missed_goals()}
## Same results

Results of programs under cuvmm, compared with native runs. Programs with the same outcome on one machine share a row;
[figures.md]({FIGURES_LINK}#same-results) has a row for each. [limits.md]({same_results.WHY})
explains every entry other than `same`.

{table([*same_results.HEADS[:-1], "On"], rows)}
## Which code

Each part records a digest of `src` and `include` as they were when it ran. Parts with the same digest ran the same
code; figures of parts with different digests are not strictly comparable.

{measured_summary.sources(RESULTS)}
## Raw data

{measured_summary.raw_data(RESULTS)}"""


def all_figures():
    pieces = [
        f"{HEAD}# All figures\n\n[docs/measured.md](../../docs/measured.md) is the summary. "
        "`./dev gpu-test` and `./dev bench` write the files that these tables come from.\n\n## Goals\n\n",
        all_goals(),
        "\n## Same results\n\nResults of programs under cuvmm, compared with native runs. "
        f"[limits.md]({same_results.WHY}) explains every entry other than `same`.\n\n",
        same_results_table(RESULTS),
    ]
    for machine in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        pieces.append(f"\n## {machine.name}\n")
        results = sorted(machine.glob("*.json"))
        pieces += [f"\n{part(file)}" for file in results]
        if not results:
            pieces += [f"\nRaw: [{file.relative_to(RESULTS)}]({file.relative_to(RESULTS)}).\n"
                       for file in sorted(machine.glob("*.txt"))]
    return "".join(pieces).replace(f"]({same_results.WHY})", f"](../../docs/{same_results.WHY})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    figures = headline(json.loads(HEADLINE.read_text(encoding="utf-8")))
    front = with_table(README.read_text(encoding="utf-8"), figures)
    front = with_table(front, measured_summary.where_it_ran(RESULTS), BEGINS_WHERE)
    scheduling = with_table(SCHEDULING.read_text(encoding="utf-8"), device_time_tables.sharing(RESULTS), BEGINS_SHARING)
    scheduling = with_table(scheduling, device_time_tables.torch(RESULTS), BEGINS_TORCH)
    made = {PAGE: page(), FIGURES: all_figures(), README: front, SCHEDULING: scheduling}
    if not parser.parse_args().check:
        for file, text in made.items():
            file.write_text(text, encoding="utf-8")
        return 0
    differing = 0
    for file, text in made.items():
        is_now = file.read_text(encoding="utf-8") if file.exists() else ""
        name = str(file.relative_to(ROOT))
        difference = list(difflib.unified_diff(is_now.split("\n"), text.split("\n"), name, "made"))
        print("\n".join(difference[:20]) or f"{name} is what the results say")
        differing += bool(difference)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
