# SPDX-License-Identifier: Apache-2.0
"""Runs the frameworks natively and under `cuvmm run`, alternating, and compares results and times.

    run_frameworks.py --cuvmm build/bin/cuvmm [--json FILE] [--budget SECONDS] [--rounds N]
                      [--only NAME...] [--workloads NAME...]

Fails if the results are not bitwise the same, or if a workload that runs natively does not run
under cuvmm. Step times are reported, and compared with the goal of 1% under monitor.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 3
GOAL = 0.01  # of a step's time, under monitor
LONGEST_RUN = 150  # seconds


def allocator(words):
    """Returns PyTorch's allocator setting, under its old and its new name."""
    return {"PYTORCH_CUDA_ALLOC_CONF": words, "PYTORCH_ALLOC_CONF": words}


# Workloads that run in one process, since starting a process takes longer than their steps.
GROUPS = {
    "driver": {"workloads": ["driver"]},
    "torch": {"workloads": ["pytorch", "triton_kernels", "transformers_step"]},
    "torch_async": {
        "workloads": ["pytorch"],
        "variables": allocator("backend:cudaMallocAsync"),
    },
    "cupy": {"workloads": ["cupy_arrays"]},
    "jax": {"workloads": ["jax_step"]},
    # More workloads: they take long, so they run only when named.
    "torch_more": {
        "workloads": [
            "torch_graphs",
            "torch_streams",
            "torch_libraries",
            "torch_loader",
            "transformers_generate",
        ]
    },
    "torch_more_async": {
        "workloads": ["torch_graphs", "torch_streams", "torch_libraries", "torch_loader"],
        "variables": allocator("backend:cudaMallocAsync"),
    },
    "torch_compile": {"workloads": ["torch_compile"]},
    "torch_expandable": {
        "workloads": ["pytorch"],
        "variables": allocator("expandable_segments:True"),
    },
    "torch_no_cache": {
        "workloads": ["pytorch"],
        "variables": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    },
}
USUAL = ("driver", "torch", "torch_async", "cupy", "jax")
NAMES_OF_ALLOCATORS = {
    "torch_async": " (cudaMallocAsync)",
    "torch_more_async": " (cudaMallocAsync)",
    "torch_expandable": " (expandable)",
    "torch_no_cache": " (no cache)",
}
MODES = ("native", "monitor", "vmm")


@dataclasses.dataclass
class Run:
    outcomes: list  # a dictionary for each workload that finished
    failure: str = ""  # empty if all went well
    allocations: int = 0  # in the trace, under monitor
    lost: int = 0


def workloads_of(group, options):
    return [name for name in GROUPS[group]["workloads"] if name in (options.workloads or [name])]


def command_of(mode, group, options, trace):
    plain = [sys.executable, "-B", str(HERE / "run_workload.py"), *workloads_of(group, options)]
    if mode == "native":
        return plain
    ours = [options.cuvmm, "run", *options.run_option, "--mode", mode]
    if mode == "monitor":
        ours += ["--trace", str(trace)]
    return [*ours, "--", *plain]


def last_words(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-600:]


def run_once(mode, group, options, folder):
    trace = folder / f"{group}.{time.monotonic_ns()}.trace"
    environment = {
        **os.environ,
        **GROUPS[group].get("variables", {}),
        # Compiled code is kept between these runs, and only these.
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    try:
        finished = subprocess.run(
            command_of(mode, group, options, trace),
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_RUN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run([], f"took longer than {LONGEST_RUN} s")
    outcomes = [
        json.loads(line.removeprefix("RESULT "))
        for line in finished.stdout.splitlines()
        if line.startswith("RESULT ")
    ]
    run = Run(outcomes)
    if finished.returncode != 0:
        run.failure = f"exit status {finished.returncode}: {last_words(finished.stderr)}"
    if mode == "monitor" and trace.exists():
        run.allocations, run.lost = seen_in(trace, options)
        trace.unlink()
    return run


def seen_in(trace, options):
    stats = subprocess.run(
        [options.cuvmm, "stats", "--json", str(trace)], capture_output=True, text=True, check=False
    )
    if stats.returncode != 0:
        return 0, 0
    told = json.loads(stats.stdout)
    return told["allocations"], told["dropped_events"]


def run_in_turns(group, options, folder, deadline):
    """Runs every mode in every round, with a different first mode in each round.

    Stops before the deadline if another round would not fit, but always completes the first.
    """
    runs = {mode: [] for mode in MODES}
    longest_round = 0.0
    for number in range(options.rounds):
        if number > 0 and time.monotonic() + longest_round > deadline:
            break
        began = time.monotonic()
        for mode in MODES[number % 3 :] + MODES[: number % 3]:
            run = run_once(mode, group, options, folder)
            runs[mode].append(run)
            if mode == "native" and all("missing" in one for one in run.outcomes):
                if run.outcomes or run.failure:
                    return runs
        longest_round = max(longest_round, time.monotonic() - began)
    return runs


def values_of(runs, workload, key):
    return [
        one[key]
        for run in runs
        for one in run.outcomes
        if one["workload"] == workload and key in one
    ]


def why_not(runs, workload):
    """Returns the first reason that a workload gave for having no result."""
    said = values_of(runs, workload, "error") + values_of(runs, workload, "missing")
    return next(iter(said + [run.failure for run in runs if run.failure]), "it said nothing")


def judge(group, workload, runs):
    """Judges one workload of a group in all modes. Returns a dictionary for machine reading."""
    name = workload + NAMES_OF_ALLOCATORS.get(group, "")
    missing = values_of(runs["native"], workload, "missing")
    if missing:
        return {"workload": name, "skipped": missing[0]}
    natives = values_of(runs["native"], workload, "hash")
    if not natives:
        return {"workload": name, "failed": f"natively: {why_not(runs['native'], workload)}"}
    judged = {
        "workload": name,
        "version": values_of(runs["native"], workload, "version")[0],
        "native_hash": natives[0],
        "native_ms": statistics.median(values_of(runs["native"], workload, "step_ms")),
        "native_ms_of_rounds": values_of(runs["native"], workload, "step_ms"),
        "rounds": len(natives),
        "allocations_in_trace": max(run.allocations for run in runs["monitor"]),
        "events_lost": max(run.lost for run in runs["monitor"]),
    }
    if len(set(natives)) > 1:
        judged["failed"] = "native runs differ among themselves: nothing can be compared"
        return judged
    for mode in ("monitor", "vmm"):
        hashes = values_of(runs[mode], workload, "hash")
        if len(hashes) < len(runs[mode]):
            judged["failed"] = f"under {mode}: {why_not(runs[mode], workload)}"
            continue
        judged[f"{mode}_same"] = set(hashes) == set(natives)
        judged[f"{mode}_ms_of_rounds"] = values_of(runs[mode], workload, "step_ms")
        judged[f"{mode}_ms"] = statistics.median(values_of(runs[mode], workload, "step_ms"))
        judged[f"{mode}_over"] = judged[f"{mode}_ms"] / judged["native_ms"] - 1
        if not judged[f"{mode}_same"]:
            judged["failed"] = f"results differ under {mode}"
    if "monitor_over" in judged:
        judged["monitor_within_goal"] = judged["monitor_over"] <= GOAL
    if "failed" not in judged and judged["allocations_in_trace"] == 0:
        judged["failed"] = "the trace under monitor has no allocation"
    return judged


def spread_of(values):
    return f" [{min(values):.2f} to {max(values):.2f}]"


def print_row(judged):
    name = judged["workload"]
    if "skipped" in judged:
        print(f"{name:34s} skipped: {judged['skipped']}", flush=True)
        return
    if "native_ms" in judged:
        print(
            f"{name:34s} {judged['version']:22s} native {judged['native_ms']:9.3f} ms"
            f"{spread_of(judged['native_ms_of_rounds'])}   {judged['native_hash'][:12]}"
            f"   {judged['rounds']} rounds",
            flush=True,
        )
    for mode in ("monitor", "vmm"):
        if f"{mode}_ms" not in judged:
            continue
        same = "bitwise the same" if judged[f"{mode}_same"] else "DIFFERENT"
        over = f"{judged[f'{mode}_over']:+7.2%}"
        spread = spread_of(judged[f"{mode}_ms_of_rounds"])
        print(f"{'':57s} {mode:7s}{judged[f'{mode}_ms']:9.3f} ms{spread} {over}   {same}", flush=True)
    if "failed" in judged:
        print(f"{name:34s} FAILED: {judged['failed']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cuvmm", required=True, type=os.path.abspath)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=450, help="seconds for all of it")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--workloads", nargs="+", help="of those in the groups, these alone")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(USUAL))
    parser.add_argument("--run-option", action="append", default=[], help="for cuvmm run")
    options = parser.parse_args()
    began = time.monotonic()
    all_judged = []
    with tempfile.TemporaryDirectory(prefix="cuvmm-frameworks-") as folder:
        for number, group in enumerate(options.only):
            left = began + options.budget - time.monotonic()
            deadline = time.monotonic() + left / (len(options.only) - number)
            runs = run_in_turns(group, options, pathlib.Path(folder), deadline)
            for workload in workloads_of(group, options):
                all_judged.append(judge(group, workload, runs))
                print_row(all_judged[-1])
    if options.json:
        told = {"goal_monitor": GOAL, "seconds": time.monotonic() - began, "workloads": all_judged}
        options.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 1 if any("failed" in one for one in all_judged) else 0


if __name__ == "__main__":
    sys.exit(main())
