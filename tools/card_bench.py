# SPDX-License-Identifier: Apache-2.0
"""What time_figures.py and node_figures.py share: figures with goals, and a service to measure."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def of_visible_cards(what):
    """What nvidia-smi says of each card that the programs see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    of_cards = ["-i", visible] if visible else []
    return subprocess.run(
        ["nvidia-smi", *of_cards, f"--query-gpu={what}", "--format=csv,noheader,nounits"],
        check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


def visible_card():
    """NVML's index of the first card that the programs see; cuvmmd manages all of the host's."""
    return int(of_visible_cards("index")[0])


class Bench:
    """A build's programs and the figures of their runs, on the card or on a simulated one."""

    def __init__(self, build, simulated_memory=None):
        self.bin = pathlib.Path(build).resolve() / "bin"
        self.card = f"figures-{os.getpid()}"
        self.sim = [f"--sim=card={self.card},memory={simulated_memory}"] if simulated_memory else []
        self.figures = []
        self.missed = []

    def note(self, what, value, unit="", goal=None, holds=True):
        """Goals are judged on a real card alone."""
        missed = "" if holds else "   MISSED"
        print(f"{what:<66} {value:>9.4g} {unit:<3} {goal or ''}{missed}", flush=True)
        self.figures.append({"what": what, "value": value, "unit": unit, "goal": goal,
                             "holds": holds})
        if not holds and not self.sim:
            self.missed.append(what)

    def end(self, details):
        """Removes the simulated card and writes the figures to the file, if there is one."""
        card = f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{self.card}"
        if os.path.exists(card):
            os.unlink(card)
        if details:
            pathlib.Path(details).write_text(json.dumps({"figures": self.figures}))


class Service:
    """cuvmmd with these further arguments, from its first answer to the end of the block."""

    def __init__(self, bench, *arguments, log_level="warning", log=None):
        self.bench = bench
        self.folder = tempfile.TemporaryDirectory(prefix="cuvmm-figures-")
        self.socket = self.folder.name + "/d.sock"
        self.process = subprocess.Popen(
            [str(bench.bin / "cuvmmd"), "--socket", self.socket, "--log-level", log_level,
             *arguments, *bench.sim], stderr=log)

    def __enter__(self):
        for _ in range(400):
            if os.path.exists(self.socket):
                return self
            time.sleep(0.05)
        sys.exit("cuvmmd does not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()
