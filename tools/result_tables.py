# SPDX-License-Identifier: Apache-2.0
"""Formats the results of the parts in bench/results as tables of Markdown."""
import statistics


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


def ratios(one, mode):
    """Returns what each round took under cuvmm over the native run of the same round, less 1."""
    return [with_cuvmm / native - 1 for native, with_cuvmm in
            zip(one["native_ms_of_rounds"], one[f"{mode}_ms_of_rounds"])]


def figure(data, key):
    """A figure of a part, or the element of a list. What a step takes more, `vmm_over`, is always the
    median of the rounds."""
    if isinstance(data, list):
        return data[key]
    mode = key.removesuffix("_over")
    if mode != key and f"{mode}_ms_of_rounds" in data:
        return statistics.median(ratios(data, mode))
    return data[key]


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
            *(f"{figure(one, mode + '_over'):+.1%}, {'same' if one[mode + '_same'] else '**different**'}"
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


def matrix(details):
    heads = ["family", "use", "manager", "cuvmm", "seed", "outputs", "digest", "result"]
    rows = [[one.get(head, "") for head in heads] for one in details["rows"]]
    return f"{details['pairs_compared']} of {details['pairs']} pairs were compared; {details['rows_left']} of " \
           f"{details['rows_of_all']} rows are left.\n\n" + table(heads, rows)


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
    if isinstance(details, dict) and "rows" in details:
        return matrix(details)
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
