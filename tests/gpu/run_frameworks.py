# SPDX-License-Identifier: Apache-2.0
"""Runs the frameworks natively and under `cuvmm run`, and compares results and times.

    run_frameworks.py --cuvmm build/bin/cuvmm [--json FILE] [--budget SECONDS] [--rounds N]
                      [--starts N] [--modes MODE...] [--only NAME...] [--workloads NAME...]

Fails if the results are not bitwise the same, or if a workload that runs natively does not run
under cuvmm.

A workload runs in all modes at the same time, in one process for each, and the processes take turns
of a few steps. So drifts of the machine's speed affect all modes alike, and the ratio of two turns
of one round shows what cuvmm costs. Processes differ by more: natively, too, a process whose steps
take a millisecond or less may be half as fast as the next one for all of its rounds. So several
starts say more than many rounds.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 4
STARTS = 6
LONGEST_WAIT = 150  # seconds


def allocator(words):
    """Returns PyTorch's allocator setting, under its old and its new name."""
    return {"PYTORCH_CUDA_ALLOC_CONF": words, "PYTORCH_ALLOC_CONF": words}


# Workloads that run in one process, since starting a process takes longer than their steps.
GROUPS = {
    "driver": {"workloads": ["driver"]},
    "torch": {"workloads": ["pytorch", "triton_kernels", "transformers_step"]},
    "torch_async": {
        "workloads": ["pytorch", "transformers_step"],
        "variables": allocator("backend:cudaMallocAsync"),
    },
    "cupy": {"workloads": ["cupy_arrays"]},
    "jax": {"workloads": ["jax_step"]},
    # More workloads: they take long, so they run only when named.
    "torch_more": {"workloads": ["torch_graphs", "torch_streams", "torch_libraries"]},
    "torch_more_async": {
        "workloads": ["torch_graphs", "torch_streams", "torch_libraries"],
        "variables": allocator("backend:cudaMallocAsync"),
    },
    "torch_long": {"workloads": ["torch_loader", "transformers_generate"]},
    "torch_long_async": {
        "workloads": ["torch_loader"],
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
    "torch_long_async": " (cudaMallocAsync)",
    "torch_expandable": " (expandable)",
    "torch_no_cache": " (no cache)",
}
# Options of `cuvmm run` in each mode, besides the name of a trace.
OPTIONS_OF = {
    "native": [],
    "monitor": ["--mode", "monitor", "--trace"],
    "vmm": ["--mode", "vmm"],
    "traced": ["--mode", "vmm", "--trace"],
    "stacks": ["--mode", "vmm", "--stacks", "--trace"],
}


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
    chosen = OPTIONS_OF[mode] + ([str(trace)] if "--trace" in OPTIONS_OF[mode] else [])
    return [options.cuvmm, "run", *options.run_option, *chosen, "--", *plain]


def last_words(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-600:]


class Started:
    """One process in one mode, which runs a group's workloads and waits for its turn in each round."""

    def __init__(self, mode, group, options, folder):
        self.mode, self.options = mode, options
        self.trace = folder / f"{group}.{mode}.trace"
        self.errors = tempfile.TemporaryFile("w+")
        self.lines = queue.Queue()
        self.run = Run([])
        environment = {
            **os.environ,
            **GROUPS[group].get("variables", {}),
            # Compiled code is kept between these runs, and only these.
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "CUPY_CACHE_DIR": str(folder / "cupy"),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        self.process = subprocess.Popen(
            command_of(mode, group, options, self.trace),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip())
        self.lines.put(None)

    def say(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # its failure follows in its output
            pass

    def next_is(self, word):
        """Waits for what the workload does next. Returns False if that is its end."""
        while True:
            try:
                line = self.lines.get(timeout=LONGEST_WAIT)
            except queue.Empty:
                self.run.failure = f"was silent for {LONGEST_WAIT} s"
                self.process.kill()
                return False
            if line == word:
                return True
            if line is None:
                self.lines.put(None)  # for the next question
                return False
            if line.startswith("RESULT "):
                self.run.outcomes.append(json.loads(line.removeprefix("RESULT ")))
                return False

    def end(self):
        """Waits for the end of the process. Returns its run."""
        self.process.stdin.close()
        try:
            self.process.wait(LONGEST_WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0 and not self.run.failure:
            self.errors.seek(0)
            self.run.failure = f"exit status {self.process.returncode}: {last_words(self.errors.read())}"
        self.errors.close()
        if self.mode == "monitor" and self.trace.exists():
            self.run.allocations, self.run.lost = seen_in(self.trace, self.options)
        self.trace.unlink(missing_ok=True)
        return self.run


def take_turns(waiting, rounds):
    """Lets each process run its rounds, one process at a time, and another one first in each round."""
    for number in range(rounds):
        first = number % max(1, len(waiting))
        for one in waiting[first:] + waiting[:first]:
            one.say("round")
            if not one.next_is("ROUND"):
                waiting = [other for other in waiting if other is not one]
    for one in waiting:
        one.say("end")
        one.next_is("")


def run_together(group, options, folder):
    """Runs a group once in all modes at the same time. Returns the run of each mode."""
    started = [Started(mode, group, options, folder) for mode in options.modes]
    for _ in workloads_of(group, options):
        take_turns([one for one in started if one.next_is("READY")], options.rounds)
    return {one.mode: one.end() for one in started}


def seen_in(trace, options):
    stats = subprocess.run(
        [options.cuvmm, "stats", "--json", str(trace)], capture_output=True, text=True, check=False
    )
    if stats.returncode != 0:
        return 0, 0
    told = json.loads(stats.stdout)
    return told["allocations"], told["dropped_events"]


def run_repeatedly(group, options, folder, deadline):
    """Runs a group several times, but not beyond the deadline, except for the first time."""
    runs = {mode: [] for mode in options.modes}
    longest = 0.0
    for number in range(options.starts):
        if number > 0 and time.monotonic() + longest > deadline:
            break
        began = time.monotonic()
        for mode, run in run_together(group, options, folder).items():
            runs[mode].append(run)
        if all("missing" in one for one in runs[options.modes[0]][0].outcomes):
            break
        longest = max(longest, time.monotonic() - began)
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
    """Judges one workload of a group in all modes. Returns a dictionary for machine reading.

    The first mode is what the others are compared with, round by round.
    """
    plain, *others = runs
    name = workload + NAMES_OF_ALLOCATORS.get(group, "")
    missing = values_of(runs[plain], workload, "missing")
    if missing:
        return {"workload": name, "skipped": missing[0]}
    hashes_of_plain = values_of(runs[plain], workload, "hash")
    if not hashes_of_plain:
        return {"workload": name, "failed": f"{plain}: {why_not(runs[plain], workload)}"}
    rounds_of_plain = sum(values_of(runs[plain], workload, "rounds_ms"), [])
    judged = {
        "workload": name,
        "version": values_of(runs[plain], workload, "version")[0],
        f"{plain}_hash": hashes_of_plain[0],
        f"{plain}_ms": statistics.median(rounds_of_plain),
        f"{plain}_ms_of_rounds": rounds_of_plain,
        "rounds": len(rounds_of_plain),
        "starts": len(hashes_of_plain),
    }
    if len(set(hashes_of_plain)) > 1:
        judged["failed"] = f"two runs of {plain} differ: nothing can be compared"
        return judged
    for mode in others:
        hashes = values_of(runs[mode], workload, "hash")
        if len(hashes) < len(runs[mode]):
            judged["failed"] = f"under {mode}: {why_not(runs[mode], workload)}"
            continue
        rounds = sum(values_of(runs[mode], workload, "rounds_ms"), [])
        judged[f"{mode}_same"] = set(hashes) == set(hashes_of_plain)
        judged[f"{mode}_ms_of_rounds"] = rounds
        judged[f"{mode}_ms"] = statistics.median(rounds)
        over = [one / other - 1 for one, other in zip(rounds, rounds_of_plain)]
        judged[f"{mode}_over_quartiles"] = statistics.quantiles(over, n=4)
        judged[f"{mode}_over"] = statistics.median(over)
        if not judged[f"{mode}_same"]:
            judged["failed"] = f"results differ under {mode}"
    if "monitor" in runs:
        judged["allocations_in_trace"] = max(run.allocations for run in runs["monitor"])
        judged["events_lost"] = max(run.lost for run in runs["monitor"])
        if "failed" not in judged and judged["allocations_in_trace"] == 0:
            judged["failed"] = "the trace under monitor has no allocation"
    return judged


def print_row(judged, modes):
    name = judged["workload"]
    if "skipped" in judged:
        print(f"{name:34s} skipped: {judged['skipped']}", flush=True)
        return
    plain, *others = modes
    if f"{plain}_ms" in judged:
        print(
            f"{name:34s} {judged['version']:22s} {plain} {judged[f'{plain}_ms']:9.3f} ms"
            f"   {judged[f'{plain}_hash'][:12]}   {judged['rounds']} rounds, {judged['starts']} starts",
            flush=True,
        )
    for mode in others:
        if f"{mode}_ms" not in judged:
            continue
        same = "bitwise the same" if judged[f"{mode}_same"] else "DIFFERENT"
        lower, _, upper = judged[f"{mode}_over_quartiles"]
        over = f"{judged[f'{mode}_over']:+7.2%} [{lower:+.2%} to {upper:+.2%}]"
        print(f"{'':57s} {mode:7s}{judged[f'{mode}_ms']:9.3f} ms {over}   {same}", flush=True)
    if "failed" in judged:
        print(f"{name:34s} FAILED: {judged['failed']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cuvmm", required=True, type=os.path.abspath)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=450, help="seconds for all of it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in which each mode has a turn")
    parser.add_argument("--starts", type=int, default=STARTS, help="of all processes, each with its rounds")
    parser.add_argument("--modes", nargs="+", choices=OPTIONS_OF, default=["native", "monitor", "vmm"])
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
            runs = run_repeatedly(group, options, pathlib.Path(folder), deadline)
            for workload in workloads_of(group, options):
                all_judged.append(judge(group, workload, runs))
                print_row(all_judged[-1], options.modes)
    if options.json:
        told = {"seconds": time.monotonic() - began, "workloads": all_judged}
        options.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 1 if any("failed" in one for one in all_judged) else 0


if __name__ == "__main__":
    sys.exit(main())
