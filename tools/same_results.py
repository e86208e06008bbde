# SPDX-License-Identifier: Apache-2.0
"""Compares programs natively and under cuvmm: one row per program, with its result in each mode.

Used for docs/measured.md and bench/results/figures.md. A part reports its results as a list of
programs (tools/tell.sh), or in the form of run_frameworks.py. The table says so if no part has run
or reported a program. Any result other than `same` links to docs/limits.md, which explains it.
"""
import dataclasses

WHY = "limits.md#programs-under-cuvmm"
MODES = ("monitor", "vmm")
HEADS = ["Program", "Compared", *(f"`{mode}`" for mode in MODES), "From"]


@dataclasses.dataclass
class Part:
    compares: str
    names: str = "{}"  # format of its program names


PARTS = {
    "endurance": Part("every word read", "random work, {}"),
    "frag_test": Part("the result, and all contents"),
    "frameworks": Part("results, bitwise"),
    "frameworks_more": Part("results, bitwise"),
    "ipc": Part("output; contents in the other process"),
    "matrix": Part("results, bitwise", "combination: {}"),
    "memcheck": Part("errors that memcheck finds"),
    "profilers": Part("output; the kernels seen", "training under {}"),
    "runtime": Part("output; each allocation in the trace", "by the CUDA runtime, {}"),
    "schedule": Part("the scenarios' assertions"),
    "served": Part("the scenarios' assertions"),
}
OF_ITS_MODE = ("program", "mode", "result")  # all other fields must equal the native ones


def verdict(one, native):
    if one["result"] == "skipped":
        return "not run"
    if one["result"] != "passed":
        return one["result"]
    if native and native["result"] != "passed":
        return f"different: natively {native['result']}"
    changed = [f"{key} {one[key]}, natively {native[key]}" for key in one
               if native and key not in OF_ITS_MODE and one[key] != native.get(key)]
    if changed:
        return f"different: {'; '.join(changed)}"
    return f"same, {one['skipped']} of {one['tests']:,} skipped" if one.get("skipped") else "same"


def by_program(told):
    """Returns the verdicts of a list written by tools/tell.sh."""
    programs = {}
    for one in told:
        programs.setdefault(one["program"], {})[one["mode"]] = one
    return {program: {mode: verdict(modes[mode], modes.get("native")) for mode in MODES if mode in modes}
            for program, modes in programs.items()}


def of_framework(one):
    if "skipped" in one:
        return {}
    same = {mode: one.get(f"{mode}_same") for mode in MODES}
    verdicts = {mode: "failed" if was is None else "same" if was else "different" for mode, was in same.items()}
    if one.get("allocations_in_trace") == 0:
        verdicts["monitor"] = "failed"
    return verdicts


def of_random_work(details):
    """Returns the verdicts of random work, all in mode `vmm`: each limit is a setting of that mode.

    The work checks every word itself.
    """
    return {one["what"]: {"vmm": "same" if one["result"] == "passed" else one["result"]}
            for one in details if one["what"] != "native"}


MATRIX_VERDICTS = {"native_spread": "differs natively, and no more under cuvmm", "skipped": "not run",
                   "native_failure": "fails natively", "no_effect": "the setting had no effect"}


def of_matrix(rows):
    """Returns the verdicts of the combination matrix: each row runs in one mode, with one setting."""
    programs = {}
    for one in rows:
        mode = "monitor" if one["cuvmm"] == "monitor" else "vmm"
        setting = "" if one["cuvmm"] in MODES else f", {one['cuvmm']}"
        name = f"{one['family']} {one['use']}, {one['manager']}{setting}"
        programs.setdefault(name, {})[mode] = MATRIX_VERDICTS.get(one["result"], one["result"])
    return programs


def verdicts_of(details):
    """Returns program -> mode -> verdict; empty if the part reports none."""
    if isinstance(details, dict) and "rows" in details:
        return of_matrix(details["rows"])
    if isinstance(details, dict) and "workloads" in details:
        return {", ".join(filter(None, (one["workload"], one.get("version")))): of_framework(one)
                for one in details["workloads"]}
    if isinstance(details, dict):
        return by_program(details.get("programs", []))
    if isinstance(details, list) and all("what" in one for one in details):
        return of_random_work(details)
    return by_program(details or [])


def cell(said):
    return said if said == "same" else f"[{said}]({WHY})"


def rows_of(name, details, source):
    """Returns the rows of a part. `source` is the file and commit that they come from."""
    part = PARTS[name]
    verdicts = {part.names.format(program): of_modes for program, of_modes in verdicts_of(details).items()}
    verdicts = verdicts or {f"the part {name}": dict.fromkeys(MODES, "not recorded")}
    return [[program, part.compares, *(cell(of_modes.get(mode, "not run")) for mode in MODES), source]
            for program, of_modes in verdicts.items()]
