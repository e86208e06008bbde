# SPDX-License-Identifier: Apache-2.0
"""The command line from Python: runs programs under cuvmm, and queries processes and traces."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Mapping, Optional, Sequence, Union

from . import places
from .environment import env
from .errors import CuvmmError, NotFound, OutOfPhysicalMemory, TimedOut

PathLike = Union[str, "os.PathLike[str]"]

# Error texts of the command line and the exceptions for them; otherwise CuvmmError.
_SAID = (("no such process", NotFound), ("not found", NotFound), ("no control socket", NotFound),
         ("timed out", TimedOut),
         ("out of memory", OutOfPhysicalMemory), ("No such file", FileNotFoundError))


def error_of(said: str) -> Exception:
    """Returns the exception that matches an error message of the command line."""
    for words, kind in _SAID:
        if words in said:
            return kind(said)
    return CuvmmError(said)


def command(*words: PathLike, accept: Sequence[int] = (0,)) -> str:
    """Runs `cuvmm WORDS` and returns its standard output.

    Raises an exception for its error message if the exit status is not in `accept`.
    """
    variables = dict(os.environ)
    # Neither the command line nor the Python that draws should run under cuvmm.
    variables.pop("LD_PRELOAD", None)
    variables.setdefault("CUVMM_PYTHON", sys.executable)
    finished = subprocess.run([places.program(), *(os.fspath(word) for word in words)], env=variables,
                              capture_output=True, check=False, stdin=subprocess.DEVNULL)
    said = finished.stderr.decode(errors="replace").strip()
    if finished.returncode not in accept:
        raise error_of(said[len("cuvmm: "):] if said.startswith("cuvmm: ") else said)
    return finished.stdout.decode(errors="replace")


def run(program: Union[str, Sequence[PathLike]], *, check: bool = True,
        base: Optional[Mapping[str, str]] = None, sim: Union[bool, Mapping[str, object]] = False,
        frameworks: bool = False, **options: object) -> "subprocess.CompletedProcess[bytes]":
    """Runs a program under cuvmm and waits for it, like subprocess.run().

        cuvmm.run(["python", "train.py"], limit="16G", frameworks=True, trace_file="run.trace")

    `base`, `sim`, `frameworks` and `options` are as for env(). Returns the CompletedProcess. With
    `check`, raises subprocess.CalledProcessError if the program exits with a status other than 0.
    """
    words = [program] if isinstance(program, str) else list(program)
    if not words:
        raise ValueError("no program to run")
    return subprocess.run(words, env=env(base, sim=sim, frameworks=frameworks, **options),
                          check=check)


def stats(trace: PathLike) -> dict[str, Any]:
    """Returns the summary of a trace (cuvmm, PyTorch or RMM), as `cuvmm stats --json` prints it."""
    return json.loads(command("stats", "--json", "--", trace))


def advise(trace: PathLike, *, limit: Optional[str] = None) -> dict[str, Any]:
    """Recommends an allocator, a limit and settings for a trace, like `cuvmm advise --json`.

    `limit` is the device memory to plan for, for example "16G".
    """
    limits = () if limit is None else ("--limit", limit)
    return json.loads(command("advise", "--json", *limits, "--", trace))


def top() -> list[dict[str, Any]]:
    """Returns what this user's processes under cuvmm hold now, as `cuvmm top --json` prints it."""
    return json.loads(command("top", "--json", accept=(0, 1)) or "{}").get("processes", [])


class Trace:
    """A cuvmm trace, a PyTorch memory snapshot or an RMM log.

    A notebook displays it as a plot if matplotlib is installed, and as a table of its summary.
    Raises FileNotFoundError if `path` does not exist.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"{self.path}: no such trace")

    def __repr__(self) -> str:
        return f"Trace({self.path!r})"

    def stats(self) -> dict[str, Any]:
        """Returns the summary of the trace, like stats()."""
        return stats(self.path)

    def plot(self, output: PathLike) -> None:
        """Writes a plot to `output`: a .png, .svg or .html file, or the plot's data as .json."""
        command("plot", "--quiet", f"--output={os.fsdecode(output)}", "--", self.path)

    def svg(self) -> str:
        """Returns the plot as SVG markup."""
        with tempfile.TemporaryDirectory(prefix="cuvmm-plot-") as folder:
            picture = os.path.join(folder, "trace.svg")
            self.plot(picture)
            with open(picture, encoding="utf-8") as file:
                return file.read()

    def _repr_svg_(self) -> Optional[str]:
        try:
            return self.svg()
        except CuvmmError:
            return None  # no matplotlib; the table shows the essentials

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(str(value))}</td></tr>"
                       for name, value in self.stats().items()
                       if isinstance(value, (int, float, str)) and name != "schema")
        svg = self._repr_svg_() or ""
        return f"<div>{svg[max(svg.find('<svg'), 0):]}<table>{rows}</table></div>"
