# SPDX-License-Identifier: Apache-2.0
"""Generates docs/measured.md and the table of figures in README.md from the files in bench/results.

    measured.py [--check]

So no figure there is typed by hand. bench/goals.json lists the figures with a goal: a name, the
goal, the file, and the path to the figure in that file. A figure from several rounds is shown with
the smallest and the largest of them. same_results.py makes the table of programs with the same
results under cuvmm. bench/headline.json has the rows of README.md and where their figures come
from. --check only checks whether both files are up to date.
"""
import argparse
import difflib
import json
import pathlib
import sys

import same_results

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "measured.md"
GOALS = ROOT / "bench" / "goals.json"
README = ROOT / "README.md"
HEADLINE = ROOT / "bench" / "headline.json"
BEGINS, ENDS = "<!-- made by tools/measured.py -->\n", "<!-- end -->\n"
STANDARD = {  # standard fields of google-benchmark; all others are the benchmark's own counters
    "name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
    "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit",
    "aggregate_name", "aggregate_unit", "label", "items_per_second", "bytes_per_second",
}


BOUNDS = ("_least", "_most")  # suffixes of the smallest and largest value of several rounds


def number(value):
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def with_spread(data, key, show=number):
    """Formats a figure of an object, with the range over its rounds if the object has it."""
    shown = show(data.get(key))
    if not all(key + bound in data for bound in BOUNDS):
        return shown
    return f"{shown} ({' to '.join(show(data[key + bound]) for bound in BOUNDS)})"


def figures_of(data):
    """Returns the keys of an object, except those that hold the range of another one."""
    return [key for key in data if not any(key.removesuffix(bound) in data for bound in BOUNDS if key.endswith(bound))]


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


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


def goals():
    rows = []
    for goal in json.loads(GOALS.read_text(encoding="utf-8")):
        file = RESULTS / goal["file"]
        try:
            *steps, key = goal["at"]
            data = follow(json.loads(file.read_text(encoding="utf-8")), steps)
            times = goal.get("times", 1)
            figure = data[key] * times
            kept = figure <= goal["most"] if "most" in goal else figure >= goal["least"]
            measured = with_spread(data, key, lambda value: number(value * times))
            verdict = "yes" if kept else "**no**"
        except (OSError, KeyError, IndexError, TypeError):
            measured, verdict = "not measured", ""
        bound = f"≤ {number(goal['most'])}" if "most" in goal else f"≥ {number(goal['least'])}"
        unit = f" {goal['unit']}" if goal.get("unit") else ""
        rows.append((goal["what"], bound + unit, measured + (unit if verdict else ""), verdict,
                     f"`{goal['file']}`"))
    return table(["What", "Goal", "Measured", "Kept", "From"], rows)


def figure_of(where, results):
    """Returns a cell of README.md's table: a number in the requested form, or a word unchanged."""
    *steps, key = where["at"]
    found = follow(json.loads((results / where["file"]).read_text(encoding="utf-8")), steps)[key]
    return f"{found * where.get('times', 1):{where['form']}}" if "form" in where else found


def headline(rows, results=RESULTS):
    made = []
    for row in rows:
        figures = {name: figure_of(where, results) for name, where in row["figures"].items()}
        made.append([cell.format(**figures) for cell in row["row"]])
    return table(["What", "Natively", "With cuvmm"], made)


def readme(text, made):
    """Returns the text with its table of figures replaced by `made`."""
    before, _, rest = text.partition(BEGINS)
    _, end, after = rest.partition(ENDS)
    if not end:
        raise SystemExit(f"README.md has no lines {BEGINS.strip()} and {ENDS.strip()}")
    return before + BEGINS + made + ENDS + after


def commit_of(file, result):
    """Returns the part's commit, or if no part ran, the one in the first line of its raw output."""
    if "commit" in result:
        return result["commit"]
    raw = file.with_suffix(".txt")
    head = raw.read_text(encoding="utf-8").partition("\n")[0] if raw.exists() else ""
    return head.partition(", commit ")[2] or "commit unknown"


def same_results_table(results):
    rows = []
    for file in sorted(results.glob("*/*.json")):
        if file.stem in same_results.PARTS:
            result = json.loads(file.read_text(encoding="utf-8"))
            source = f"`{file.relative_to(results)}`, {commit_of(file, result)}"
            rows += same_results.rows_of(file.stem, result["details"] if "part" in result else result, source)
    return table(same_results.HEADS, rows)


def google_benchmark(result):
    rows = []
    for one in result["benchmarks"]:
        own = ", ".join(f"{key} {number(value)}" for key, value in one.items() if key not in STANDARD)
        rows.append((f"`{one['name']}`", f"{number(one['real_time'])} {one['time_unit']}", own))
    return table(["Benchmark", "Time", "Counters"], rows)


def frameworks(details):
    rows = []
    for one in details["workloads"]:
        if "native_ms" not in one:
            rows.append((one["workload"], "", "", "", one.get("skipped") or one.get("failed")))
            continue
        rows.append((
            one["workload"], one["version"], f"{one['native_ms']:.3g} ms ({one['rounds']} rounds)",
            *(f"{one[mode + '_over']:+.1%}, {'same' if one[mode + '_same'] else '**different**'}"
              if mode + "_same" in one else one.get("failed", "") for mode in ("monitor", "vmm"))))
    return table(["Program", "Version", "A step natively", "`monitor`", "`vmm`"], rows)


def calls(details):
    modes = list(details[0]["median_ns"])
    rows = [[f"`{one['name']}`"] + [f"{number(one['median_ns'][mode])} ns" for mode in modes]
            for one in details]
    return table(["Call", *modes], rows)


def objects(details):
    heads = list(dict.fromkeys(head for one in details for head in figures_of(one)))
    return table(heads, [[with_spread(one, head) for head in heads] for one in details])


def judged(figures):
    rows = [(one["what"], f"{number(one['value'])} {one.get('unit', '')}".strip(), one["goal"] or "",
             "" if one["holds"] else "missed") for one in figures]
    return table(["what", "measured", "goal", ""], rows)


def details_of(details):
    """Formats details by their shape: a part that writes a list of objects needs no code here."""
    if not details:
        return ""
    if isinstance(details, dict) and "workloads" in details:
        return frameworks(details)
    if isinstance(details, dict) and "benchmarks" in details:
        return google_benchmark(details)
    if isinstance(details, dict) and all(isinstance(v, dict) and "benchmarks" in v for v in details.values()):
        return "\n".join(google_benchmark(one) for one in details.values())
    if isinstance(details, list) and all(isinstance(one, dict) for one in details):
        return calls(details) if "median_ns" in details[0] else objects(details)
    if isinstance(details, dict) and isinstance(details.get("figures"), list):
        others = details_of({key: value for key, value in details.items() if key != "figures"})
        return judged(details["figures"]) + (f"\n{others}" if others else "")
    if isinstance(details, dict):
        plain = [key for key in figures_of(details) if not isinstance(details[key], (dict, list))]
        return table(["", ""], [(key, with_spread(details, key)) for key in plain]) if plain else ""
    return ""


def part(file):
    result = json.loads(file.read_text(encoding="utf-8"))
    raw = file.with_suffix(".txt")
    about, details = "", result
    if "part" in result:
        about = f"{result['card']}, driver {result['driver']}, commit {result['commit']}: {result['result']}, " \
                f"{result['seconds']} s.\n"
        details = result["details"]
    if raw.exists():
        about += f"Raw: `{raw.relative_to(ROOT)}`.\n"
    return f"### {file.stem}\n\n{about}\n{details_of(details)}"


def page():
    pieces = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n<!-- Made by tools/measured.py. -->\n# Measured\n\n"
        "Everything here is made from `bench/results` by `tools/measured.py`; `./dev gpu-test` and "
        "`./dev bench` write what lies there.\n\n## Goals\n\n",
        goals(),
        "\n## Same results\n\nPrograms natively and under cuvmm. Where it does not say `same`, "
        f"[limits.md]({same_results.WHY}) says why.\n\n",
        same_results_table(RESULTS),
    ]
    for machine in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        pieces.append(f"\n## {machine.name}\n")
        results = sorted(machine.glob("*.json"))
        pieces += [f"\n{part(file)}" for file in results]
        if not results:
            pieces += [f"\nRaw: `{file.relative_to(ROOT)}`.\n" for file in sorted(machine.glob("*.txt"))]
    return "".join(pieces)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    figures = headline(json.loads(HEADLINE.read_text(encoding="utf-8")))
    made = {PAGE: page(), README: readme(README.read_text(encoding="utf-8"), figures)}
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
