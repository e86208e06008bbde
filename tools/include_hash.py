# SPDX-License-Identifier: Apache-2.0
"""Prints each file named on standard input with a hash of it and of everything it includes.

Follows the project's own includes, direct or indirect, along the build's search path: the file's
folder, src, include, tests and the root.
"""
import functools
import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)
PLACES = [pathlib.Path(place) for place in ("src", "include", "tests", ".")]


@functools.lru_cache(maxsize=None)
def read(path):
    """Returns a file's own hash, and the files that it includes."""
    text = path.read_bytes()
    found = set()
    for name in INCLUDE.findall(text):
        for place in (path.parent, *PLACES):
            candidate = place / name.decode()
            if candidate.is_file():
                found.add(candidate.resolve().relative_to(pathlib.Path.cwd()))
                break
    return hashlib.sha256(text).digest(), frozenset(found)


def hash_of(path):
    seen, waiting = {path}, [path]
    while waiting:
        new = read(waiting.pop())[1] - seen
        seen |= new
        waiting += new
    digests = sorted(str(one).encode() + read(one)[0] for one in seen)
    return hashlib.sha256(sys.argv[1].encode() + b"".join(digests)).hexdigest()[:24]


for line in sys.stdin.read().split("\n"):
    if line:
        print(line, hash_of(pathlib.Path(line)))
