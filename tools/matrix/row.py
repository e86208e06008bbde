# SPDX-License-Identifier: Apache-2.0
"""Runs one row of the matrix: the program natively and with the row's setting, and compares."""
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import compare
import settings

GOOD = ("same", "native_spread", "skipped", "native_failure")
NOT_COMPARED = ("skipped", "native_failure", "no_effect")


class OutOfTime(Exception):
    """The part's time is over; the row is left for the next call."""


@dataclasses.dataclass
class Context:
    """What all rows share."""
    cuvmm: pathlib.Path
    program: list  # the command, without the arguments that a row adds
    seed: int
    deadline: float  # of the part, by time.monotonic()
    longest_run: float  # seconds after which a program hangs
    run_options: list = dataclasses.field(default_factory=list)  # for every `cuvmm run`


@dataclasses.dataclass
class Run:
    folder: pathlib.Path
    told: dict
    failure: str = ""
    stats: dict = dataclasses.field(default_factory=dict)

    def out_of_memory(self):
        return bool(self.told.get("out_of_memory"))


def wait_for(process, seconds):
    """Returns the process's output, None if it takes longer: then it is ended with all that it started."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own group: start_new_session
        process.communicate()
        return None


def last_words(text):
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-3:])[-400:]


def last_warning(text):
    """Returns the last thing that cuvmm logged, which is why it refused memory."""
    return next((line for line in reversed(text.splitlines()) if line.startswith("cuvmm[")), "")[:400]


class RowRun:
    def __init__(self, row, context, folder):
        self.row, self.context, self.folder = row, context, pathlib.Path(folder)
        self.count = 0

    def run(self, setting=None, environment=None):
        """Runs the program with a setting, natively without one."""
        self.count += 1
        out = self.folder / f"run{self.count}"
        command = [*self.context.program, "--family", self.row.family, "--use", self.row.use, "--manager",
                   self.row.manager, "--seed", str(self.row.seed(self.context.seed)), "--out", str(out),
                   *settings.scale(self.row)]
        if setting:
            trace = ["--trace", f"{out}.%p.trace"] if setting.traced else []
            command = [str(self.context.cuvmm), "run", "--quiet", *self.context.run_options, *setting.options, *trace,
                       "--", *command, *setting.arguments]
        left = self.context.deadline - time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True, env={
                # Compiled code is kept between the runs of a row, and only these.
                **os.environ, "TRITON_CACHE_DIR": str(self.folder / "triton"),
                "CUPY_CACHE_DIR": str(self.folder / "cupy"), "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
                **(setting.environment if setting else {}), **(environment or {})})
        said = wait_for(process, max(1.0, min(left, self.context.longest_run)))
        if said is None:
            if left < self.context.longest_run:
                raise OutOfTime
            return Run(out, {}, f"took longer than {self.context.longest_run:g} s")
        lines = [line for line in said[0].splitlines() if line.startswith("RESULT ")]
        told = json.loads(lines[-1].removeprefix("RESULT ")) if lines else {}
        run = Run(out, told)
        if "error" in told:
            run.failure = " | ".join(filter(None, (told["error"], last_warning(said[1]))))
        elif process.returncode != 0 or not told:
            run.failure = f"exit status {process.returncode}: {last_words(said[1])}"
        elif setting and "missing" in told:
            run.failure = f"what it finds natively is missing: {told['missing']}"
        if setting and setting.traced and not run.failure:
            run.stats = self.stats_of(out)
            if not run.stats:
                run.failure = "there is no trace to read"
        return run

    def stats_of(self, out):
        """Returns the figures of the process that allocated most: those that feed it have traces too."""
        every = []
        for trace in self.folder.glob(f"{out.name}.*.trace"):
            stats = subprocess.run([str(self.context.cuvmm), "stats", "--json", str(trace)], capture_output=True,
                                   text=True, check=False)
            with contextlib.suppress(json.JSONDecodeError):
                every.append(json.loads(stats.stdout))
            trace.unlink()
        return max(every, key=lambda one: one["live_peak_bytes"], default={})

    def judge(self, native, run, setting_name):
        """Compares a run with the native one. Returns the fields that say the result."""
        if run.told["digest"] == native.told["digest"]:
            return {"result": "same"}
        # Other native runs tell whether the program is deterministic.
        for _ in range(2):
            again = self.run()
            if again.failure:
                return {"result": "failed", "why": f"natively, again: {again.failure}"}
            if again.told["digest"] != native.told["digest"]:
                spread = compare.spread_of(native.folder, again.folder)
                found = compare.first_difference(native.folder, run.folder, spread)
                if found:
                    return {"result": "different", "why": f"{setting_name}: {found}"}
                return {"result": "native_spread", "why": f"two native runs differ in {len(spread)} outputs, first "
                        f"{next(iter(spread), '')}; {setting_name} differs by no more than {compare.SPREADS} times that"}
        found = compare.first_difference(native.folder, run.folder)
        return {"result": "different", "why": f"{setting_name}: {found or 'other digest, same outputs'}"}

    def result(self):
        native = self.run()
        if "missing" in native.told:
            return {"result": "skipped", "why": native.told["missing"]}
        if native.failure:
            again = self.run()
            if not again.failure:
                return {"result": "failed", "why": f"natively, once of twice: {native.failure}"}
            return {"result": "native_failure", "why": f"natively, twice: {again.failure}"}
        about = {"version": native.told["version"], "outputs": native.told["outputs"],
                 "digest": native.told["digest"][:16]}
        free = None
        if self.row.cuvmm in settings.MEASURED:
            free = self.run(settings.setting("vmm"))
            if free.failure:
                return {**about, "result": "failed", "why": f"vmm: {free.failure}"}
            judged = self.judge(native, free, "vmm")
            if judged["result"] not in GOOD:
                return {**about, **judged}
        return {**about, **self.with_setting(native, free)}

    def with_setting(self, native, free):
        name = self.row.cuvmm
        if name == "node":
            return self.beside_another(native)
        limits = [None]
        if name in ("limit", "spill"):
            limits = settings.limits_to_try(self.row, {**native.told, **free.told}, free.stats)
        for limit in limits:
            chosen = settings.setting(name, limit)
            chosen.arguments = settings.pool_arguments(self.row, limit, native.told)
            run = self.run(chosen)
            if not run.out_of_memory():
                break
        if run.failure:
            at = f" with a limit of {limit >> 20} MiB" if limit else ""
            return {"result": "failed", "why": f"{name}{at}: {run.failure}"}
        judged = self.judge(native, run, name)
        if run.stats:
            figures, mattered = settings.effect(self.row, limit, free.stats if free else {}, run.stats)
            judged |= figures
            if judged["result"] in GOOD and not mattered:
                judged |= {"result": "no_effect", "why": f"the setting did not matter: {figures}"}
        return judged

    def beside_another(self, native):
        place = self.folder / "node"
        place.mkdir()
        chosen = settings.setting("node")
        chosen.arguments = settings.pool_arguments(self.row, None, native.told)
        with settings.Neighbour(self.context.cuvmm.parent, place, self.context.run_options) as neighbour:
            run = self.run(chosen, neighbour.environment())
            ended = neighbour.complaint()
            if run.failure or ended:
                return {"result": "failed", "why": f"node: {'; '.join(filter(None, (run.failure, ended)))}",
                        **{name: native.told[name] for name in ("held_bytes", "device_used_bytes") if name in native.told}}
            turns = neighbour.turns()
        judged = {**self.judge(native, run, "node"), "turns": turns}
        # Expandable segments are foreign memory to the service: it need not move any of it.
        if judged["result"] in GOOD and turns == 0 and self.row.manager != "expandable":
            judged |= {"result": "no_effect", "why": "no memory moved: both programs fit"}
        return judged


def run_row(row, context):
    """Returns the row's result: its name, and what came of it. Raises OutOfTime."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cuvmm-matrix-", ignore_cleanup_errors=True) as folder:
        result = RowRun(row, context, folder).result()
    return {**dataclasses.asdict(row), "seed": row.seed(context.seed), **result,
            "seconds": round(time.monotonic() - began, 1)}
