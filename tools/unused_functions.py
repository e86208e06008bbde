#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists functions of src/ that no code of src/, include/ or examples/ calls.

It works on text: a function counts as called if its name occurs anywhere but in its own declaration
and definition. So it misses an unused function that shares its name with a used one, but never
lists a used function. Functions that only tests call are listed too, except those in ALLOWED. Exits
with 1 if it lists anything.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".def", ".cu"}
# Tests use these to observe or control what a program cannot.
ALLOWED = {
    "client_count": "what the service believes",
    "describe_event_lines": "the table in docs/internals/log_format.md",
    "describe_locks": "the table in docs/internals/locking.md",
    "describe_trace_events": "the table in docs/internals/trace_format.md",
    "is_shut": "whether a barrier is closed",
    "look_at_standard_error": "colours of a redirected log",
    "retired_count": "whether retired memory is destroyed",
    "trace_note": "notes in a trace",
    "unlisted": "functions outside of the lists",
    "wait_for_fences": "that a pool's fences are done",
    "waiting_requests": "what the policy believes",
}
COMMENT_OR_STRING = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')
SPECIFIERS = r"(?:(?:static|virtual|inline|constexpr|friend|explicit|\[\[\w+\]\])\s+)*"
DECLARATION = re.compile(r"^\s*" + SPECIFIERS + r"(?:\w[\w:<>,&*]*\s+)+[&*]*([a-z]\w*)\(")
DEFINITION = re.compile(r"^[A-Za-z_][\w:<>,&*\s\[\]]*?\b(?:\w+::)*([a-z]\w*)\(")
WORD = re.compile(r"\b[a-z]\w*\b")
NO_TYPE = re.compile(r"^\s*(?:return|if|for|while|else|case|new|throw|delete|CUVMM_\w+|TRY)\b")


def sources():
    for folder in ("src", "include", "examples"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES:
                yield file.relative_to(ROOT), COMMENT_OR_STRING.sub("", file.read_text())


def declared_in(line):
    """Returns the function that a line declares or begins to define, or None."""
    if NO_TYPE.match(line):
        return None
    if declares := DECLARATION.match(line):
        return declares[1]
    defines = DEFINITION.match(line)
    return defines[1] if defines else None


def used_names(texts):
    used = set()
    for text in texts.values():
        for line in text.splitlines():
            words = WORD.findall(line)
            if (declared := declared_in(line)) in words:
                words.remove(declared)  # once: a one-line body may call another of that name
            used.update(words)
    return used


def main():
    texts = dict(sources())
    used = used_names(texts)
    found = set()
    for file, text in texts.items():
        if file.parts[0] != "src" or file.suffix != ".hpp":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            declares = DECLARATION.match(line)
            if not declares or NO_TYPE.match(line) or declares[1] in found:
                continue
            if line.rstrip().endswith(" override;"):
                continue  # called through the base, which may be a library's
            name = declares[1]
            if name not in ALLOWED and name not in used:
                found.add(name)
                print(f"{file}:{number}: nothing calls {name}()")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
