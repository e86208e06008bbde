# SPDX-License-Identifier: Apache-2.0
"""python -m cuvmm.plot DATA -o FILE: draws what `cuvmm plot -o DATA.json` wrote."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C leaves no traceback, even during the imports

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

from . import data  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(prog="python -m cuvmm.plot", description=__doc__)
    parser.add_argument("data", help="the file that `cuvmm plot -o FILE.json` wrote")
    parser.add_argument("-o", "--output", required=True, help="the picture: .png, .svg or .html")
    parser.add_argument("--label", action="append", default=[],
                        help="what to call a trace, in their order")
    return parser.parse_args()


def draw(pictures, path):
    """Writes the plot to a temporary file and renames it: `path` is never partly written."""
    ending = os.path.splitext(path)[1]
    draft = f"{path}.part{os.getpid()}{ending}"
    try:
        if ending == ".html":
            from . import html
            html.draw(pictures, draft)
        else:
            from . import figure
            figure.draw(pictures, draft)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def is_same_file(path, other):
    return os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other)


def cause_of(error):
    """Returns one line of text."""
    is_expected = isinstance(error, (OSError, data.NotOurs, data.NothingToDraw))
    text = str(error) if is_expected else f"cannot be drawn: {type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror  # without the name of the temporary file
    return " ".join(text.split())


def remedy(package):
    return (f"apt install python3-{package}, or name a Python that has it in CUVMM_PYTHON "
            "(.html needs neither)")


def main():
    asked = arguments()
    if any(is_same_file(given, asked.output) for given in [asked.data, *asked.label]):
        print(f"cuvmm: {asked.output}: this is the trace itself; name another file to write",
              file=sys.stderr)
        return 2
    try:
        pictures = data.read(asked.data, asked.label)
        draw(pictures, asked.output)
    except ModuleNotFoundError as missing:
        print(f"cuvmm: {asked.output}: needs the Python package {missing.name}: {remedy(missing.name)}",
              file=sys.stderr)
        return 1
    except Exception as error:  # a traceback helps no user
        print(f"cuvmm: {asked.output}: {cause_of(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
