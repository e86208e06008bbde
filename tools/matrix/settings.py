# SPDX-License-Identifier: Apache-2.0
"""What each value of the parameter `cuvmm` means: options for `cuvmm run`, and what shows that the
setting had an effect."""
import dataclasses
import os
import pathlib
import subprocess
import time

MIB = 1 << 20
# Settings whose rows run with nothing else on the card.
ALONE = ("schedule", "node")
# Settings that need the peak of a run without a limit.
MEASURED = ("limit", "spill")
POOL_OF_A_LIMIT = 0.75  # share of its limit that XLA preallocates
# Beside another program, ours holds this many times as much as usual (2 GiB and more). The capacity
# then suffices for either program but not for both. Contexts do not count against it, since the card
# has room for them beyond it.
NODE_SCALE = 5
BESIDE_MIB = 3584  # of the program beside it
CAPACITY = (BESIDE_MIB + 1600) * MIB


@dataclasses.dataclass
class Setting:
    options: list
    environment: dict = dataclasses.field(default_factory=dict)
    arguments: list = dataclasses.field(default_factory=list)  # for the program
    traced: bool = True


def setting(name, limit=None):
    """Returns the setting of this name. `limit` is in bytes, of `limit` and `spill`."""
    options = ["--mode", "monitor" if name == "monitor" else "vmm"]
    if name == "limit":
        return Setting([*options, "--limit", str(limit)])
    if name == "spill":
        return Setting([*options, "--limit", str(limit), "--spill", "host:16G"])
    if name == "elide":
        return Setting(options, {"VMM_RESIZE": "elide"})
    if name == "schedule":
        return Setting([*options, "--schedule", "fair"], {"VMM_CLIENT": "matrix"}, traced=False)
    if name == "node":
        return Setting([*options, "--node", "require", "--node-wait", "200s", "--name", "matrix"], traced=False)
    return Setting(options)


def scale(row):
    """Returns arguments for all runs of the row's program."""
    return ["--scale", str(NODE_SCALE)] if row.cuvmm == "node" else []


def pool_arguments(row, limit, told):
    """Returns arguments that size XLA's pool as a share of what the driver then says there is."""
    if row.manager != "preallocating" or row.cuvmm not in ("limit", "node"):
        return []
    share = POOL_OF_A_LIMIT if limit else (told["needed_bytes"] * 1.2 + 384 * MIB) / CAPACITY
    return ["--pool-fraction", f"{min(share, 0.9):.3f}"]


def limits_to_try(row, told, stats):
    """Returns limits that bind, from the tightest on, given what a run without one printed and traced.

    A program cannot run in less than it uses at its peak. Beyond that lies what its framework and
    cuvmm keep for later: the limits take that from them. The framework's own peaks say how much of
    what it took from the driver it used.
    """
    physical, live = stats["physical_peak_bytes"], stats["live_peak_bytes"]
    if row.manager == "preallocating":
        return [int(told["needed_bytes"] * factor / POOL_OF_A_LIMIT) + 384 * MIB for factor in (1.2, 1.6, 2.2)]
    unused = max(0, told.get("held_bytes", 0) - told.get("needed_bytes", told.get("held_bytes", 0)))
    least = max(0, min(physical, live) - unused)
    if row.cuvmm == "spill":
        return [max(64 * MIB, int(least * share)) for share in (0.7, 0.85)]
    tries = [least + max(16 * MIB, least // 50), least + (physical - least) // 2, physical - (physical - least) // 10]
    binding = sorted({one for one in tries if one < physical}) or [physical - 2 * MIB]
    # Peaks differ between runs of some programs. In a tenth more than the peak every program must run.
    return [*binding, physical + physical // 10]


def effect(row, limit, free, stats):
    """Returns what the trace says about the setting, and whether the setting mattered.

    `free` are the figures of the run without a limit, `stats` those of the run with the setting.
    """
    # PyTorch's expandable segments allocate nothing; they are chunks that the program creates itself.
    took_memory = stats["allocations"] + stats["chunks_created"] > 0
    if row.cuvmm in ("vmm", "monitor"):
        return {one: stats[one] for one in ("allocations", "chunks_created")}, took_memory
    if row.cuvmm == "elide":
        # Few programs grow a buffer by a copy, so none elided is no failure of the row.
        return {"copies_elided": stats["copies_elided"]}, took_memory
    figures = {"limit_bytes": limit, "peak_without_limit_bytes": free["physical_peak_bytes"],
               "peak_bytes": stats["physical_peak_bytes"], "spilled_bytes": stats["spilled_peak_bytes"]}
    if row.cuvmm == "spill":
        return figures, stats["spilled_peak_bytes"] > 0
    return figures, limit < free["physical_peak_bytes"] and stats["physical_peak_bytes"] <= limit


def device_used():
    """Returns the programs' device as the service numbers it, which sees all of them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"


class Neighbour:
    """A service for the node, and a busy program that takes turns with another one there."""

    def __init__(self, build, folder, run_options):
        self.build, self.folder = pathlib.Path(build), pathlib.Path(folder)
        self.socket = str(self.folder / "d.sock")
        self.run_options = run_options
        self.processes = []

    def __enter__(self):
        self.log = (self.folder / "service.log").open("w", encoding="utf-8")
        self.processes.append(subprocess.Popen(
            [str(self.build / "cuvmmd"), "--socket", self.socket, "--capacity", f"{device_used()}={CAPACITY}",
             *self.run_options], stderr=self.log))
        until = time.monotonic() + 20
        while not os.path.exists(self.socket) and time.monotonic() < until:
            time.sleep(0.05)
        self.processes.append(subprocess.Popen(
            [str(self.build / "cuvmm"), "run", *self.run_options, "--quiet", "--name", "beside", "--node", "require",
             "--node-wait", "200s", "--", str(self.build / "take_turns"), "--mib", str(BESIDE_MIB), "--steps",
             "1000000", "--rest", "5"],
            env={**os.environ, **self.environment()}, stdout=subprocess.DEVNULL, stderr=self.log))
        time.sleep(2)  # until it holds its memory
        return self

    def environment(self):
        return {"VMM_NODE_SOCKET": self.socket}

    def complaint(self):
        """Returns how a process has ended that should still run, or an empty string."""
        for what, process in zip(("cuvmmd", "the program beside it"), self.processes):
            if process.poll() is not None:
                return f"{what} ended with {process.returncode}: {self.last_words()}"
        return ""

    def last_words(self):
        self.log.flush()
        lines = (self.folder / "service.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " | ".join(lines[-2:])[-300:]

    def turns(self):
        self.log.flush()
        text = (self.folder / "service.log").read_text(encoding="utf-8", errors="replace")
        return text.count(" gave ")

    def __exit__(self, *_):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()
