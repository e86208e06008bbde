#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""visualize.py LOG -o FILE.png: draws a log written to VMM_LOG_FILE, or a trace.

Does the same as `cuvmm plot LOG -o FILE`, with the cuvmm in build/bin, else the one on PATH. A log
must have been written at VMM_LOG_LEVEL=INFO or DEBUG.
"""

import argparse
import os
import shutil
import subprocess
import sys


def find_cuvmm():
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    built = os.path.join(root, "build", "bin", "cuvmm")
    return built if os.access(built, os.X_OK) else shutil.which("cuvmm")


def main():
    parser = argparse.ArgumentParser(prog="visualize.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="LOG",
                        help="a log or a trace; several stand side by side")
    parser.add_argument("-o", "--output", required=True,
                        help="the picture to write: .png, .svg or .html")
    asked = parser.parse_args()
    cuvmm = find_cuvmm()
    if cuvmm is None:
        print("visualize.py: no cuvmm here: ./dev build makes it", file=sys.stderr)
        return 1
    return subprocess.run([cuvmm, "plot", "-o", asked.output, "--", *asked.logs],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
