# SPDX-License-Identifier: Apache-2.0
"""rename_library.py FILE SONAME OUTPUT: a copy whose soname ends in another digit."""
import pathlib
import sys

source, soname, output = sys.argv[1:]
old, new = (name.encode() + b"\0" for name in (soname, pathlib.Path(output).name))
content = pathlib.Path(source).read_bytes()
if len(old) != len(new) or old not in content:
    sys.exit(f"{source} does not contain {soname}")
pathlib.Path(output).parent.mkdir(parents=True, exist_ok=True)
pathlib.Path(output).write_bytes(content.replace(old, new))
