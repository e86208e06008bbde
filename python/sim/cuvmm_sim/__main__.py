# SPDX-License-Identifier: Apache-2.0
"""cuvmm-sim: runs a command on the simulated driver."""

import argparse
import os
import sys

import cuvmm_sim

EXAMPLES = """examples:
  cuvmm-sim -- pytest
  cuvmm-sim devices=2,memory=8G -- ./program
  cuvmm-sim order=random:1,leaks=report -- ./program

Exit status: that of the command; 126 or 127 if it cannot be executed, 2 on wrong usage.
"""


def settings_of(text):
    """Returns the settings in "devices=2,memory=8G". Raises ValueError for anything else."""
    settings = {}
    # A comma also separates several faults or delays: cuMemAlloc:1=...,cuMemMap:2=...
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and not name.startswith("cu"):
            if name not in cuvmm_sim.SETTINGS:
                raise ValueError(f"there is no '{name}'; there are {', '.join(cuvmm_sim.SETTINGS)}")
            settings[name] = value
        elif settings:
            last = list(settings)[-1]
            settings[last] += "," + part
        else:
            raise ValueError("settings are NAME=VALUE, as in devices=2,memory=8G")
    return settings


def main():
    words = sys.argv[1:]
    parser = argparse.ArgumentParser(
        prog="cuvmm-sim", description="Runs a command on a simulated CUDA driver.", epilog=EXAMPLES,
        usage="cuvmm-sim [NAME=VALUE,...] -- COMMAND...",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"cuvmm-sim {cuvmm_sim.__version__}")
    parser.add_argument("--folder", action="store_true", help="print the driver's folder")
    parser.add_argument("settings", nargs="?", help="settings of the driver: devices=2,memory=8G")
    split = words.index("--") if "--" in words else len(words)
    command = words[split + 1:]
    request, surplus = parser.parse_known_args(words[:split])
    if surplus:
        parser.error(f"{surplus[0]}: not expected; the command comes after --")
    if request.folder:
        print(cuvmm_sim.folder())
        return 0
    if not command:
        parser.error("no command after --")
    try:
        settings = settings_of(request.settings) if request.settings else {}
    except ValueError as error:
        parser.error(f"{request.settings}: {error}")
    try:
        os.execvpe(command[0], command, cuvmm_sim.env(**settings))
    except OSError as error:
        print(f"cuvmm-sim: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main())
