# SPDX-License-Identifier: Apache-2.0
"""Runs parts of tools/gpu_parts without a card.

They run in a minimal tree, with programs whose output the test chooses.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A program learns its mode from VMM_MODE, as under the real cuvmm; natively it is unset.
CUVMM = """#!/bin/sh
if [ "$1" = stats ]; then echo ' "allocations": 14,'; exit; fi
while [ "$1" != -- ]; do
  [ "$1" != --mode ] || export VMM_MODE=$2
  shift
done
shift
exec "$@"
"""


class PartFailed(AssertionError):
    def __init__(self, finished, details):
        super().__init__(finished.stdout + finished.stderr)
        self.details = details


def run_part(part, programs, **variables):
    """Runs a part and returns the details that it writes.

    `programs` maps file names to texts; files in bin/ are on PATH. Raises PartFailed if the part
    exits with a status other than 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name, text in {"build/bin/cuvmm": CUVMM, **programs}.items():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_text(text)
            (here / name).chmod(0o755)
        (here / "tools").symlink_to(ROOT / "tools")
        details = here / "details"
        environment = {**os.environ, "CUVMM_PART_DETAILS": str(details),
                       "PATH": f"{here / 'bin'}:{os.environ['PATH']}", **variables}
        environment.pop("VMM_MODE", None)
        finished = subprocess.run(["bash", "-euo", "pipefail", f"tools/gpu_parts/{part}.sh"], cwd=here,
                                  env=environment, capture_output=True, text=True, check=False)
        told = json.loads(details.read_text()) if details.exists() else None
        if finished.returncode != 0:
            raise PartFailed(finished, told)
        return told
