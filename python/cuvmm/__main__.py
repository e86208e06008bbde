# SPDX-License-Identifier: Apache-2.0
"""python -m cuvmm: the cuvmm command line, drawing its plots with this Python interpreter."""

import os
import sys

from . import places


def main() -> int:
    try:
        program = places.program()
    except places.NotInstalled as missing:
        print(f"cuvmm: {missing}", file=sys.stderr)
        return 125
    os.environ.setdefault("CUVMM_PYTHON", sys.executable)
    os.execv(program, ["cuvmm", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
