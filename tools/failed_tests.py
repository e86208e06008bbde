#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the failed tests of the last ctest run said, shortened, so that it ends a long log.

    failed_tests.py BUILD
"""

import re
import sys
from pathlib import Path

TELLING = re.compile(r"Failure$|FAILED|Sanitizer|Traceback|[Ee]rror\b|assert|[Tt]imed? ?out")
AROUND = 8
MOST = 60


def outputs(log):
    """Yields the name and the output lines of each test in LastTest.log."""
    for block in re.split(r"^\d+/\d+ Testing: ", log, flags=re.M)[1:]:
        name, _, rest = block.partition("\n")
        output = rest.partition("Output:\n")[2].partition("<end of output>")[0]
        yield name.strip(), output.splitlines()[1:]


def telling(lines):
    """The lines around those that say what went wrong; the last ones if none does."""
    chosen = sorted({at for found, line in enumerate(lines) if TELLING.search(line)
                     for at in range(max(0, found - 2), min(len(lines), found + AROUND))})
    if not chosen:
        return lines[-MOST // 2:]
    shown, before = [], None
    for at in chosen[:MOST]:
        if before is not None and at != before + 1:
            shown.append("...")
        shown.append(lines[at])
        before = at
    return shown


def main(build):
    folder = Path(build) / "Testing/Temporary"
    failed = {line.partition(":")[2] for line in
              (folder / "LastTestsFailed.log").read_text().splitlines()}
    for name, lines in outputs((folder / "LastTest.log").read_text(errors="replace")):
        if name in failed:
            print(f"failed: {name}", *("  " + line for line in telling(lines)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
