#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates docs/reference.md: the declarations and comments of the public headers.

    reference.py [--check]

With --check it only compares, and fails if the file is out of date.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = os.path.join(ROOT, "include", "cuvmm")
OUT = os.path.join(ROOT, "docs", "reference.md")

# In reading order. A header that is missing here is an error.
SUBJECTS = (
    ("The engine and its devices", "engine"), ("Errors", "error"), ("Results in C++", "result"),
    ("Elastic pools", "elastic_pool"), ("Shared pools", "shared_pool"),
    ("Resizable buffers", "resizable"), ("Sharing between processes", "share"),
    ("Leaving the devices", "pause"), ("Clients of the scheduler", "client"),
    ("The simulated driver", "sim"),
)
GATHERING = {"cuvmm.h", "cuvmm.hpp"}  # they only include the other headers

HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by tools/reference.py of include/cuvmm; a test compares. -->
# API reference

The declarations of the public C and C++ headers. For an overview see [library.md](library.md).
`#include <cuvmm/cuvmm.h>` or `<cuvmm/cuvmm.hpp>` includes all of them except the simulated driver's.

"""


def read(name):
    with open(os.path.join(INCLUDE, name), encoding="utf-8") as file:
        return file.read()


def prose(comment):
    """Returns the text of a comment, without its markers."""
    comment = re.sub(r"^/\*+|\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*(//|\*)? ?", "", line) for line in comment.splitlines()]
    # Indented text is code, which Markdown indents further.
    return "\n".join(f"  {line}" if line.startswith("  ") else line for line in lines).strip()


def without_scaffolding(text):
    """Removes include guards, includes and enclosing namespaces."""
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif[^\n]*\n", "", text, flags=re.S)
    text = re.sub(r"^#(ifndef|endif|include|pragma)[^\n]*\n", "", text, flags=re.M)
    text = re.sub(r"^#define \w+_H\n", "", text, flags=re.M)
    text = re.sub(r"\}  // namespace detail\n", "}\n", text)
    text = re.sub(r"^(inline )?namespace (cuvmm|v1) \{\n", "", text, flags=re.M)
    return re.sub(r"^\}  // namespace (cuvmm|v1)\n", "", text, flags=re.M)


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[{};]|#define(?:\\\n|[^\n])*'
                   r"|(?:public|private|protected):(?!:)|[^\"/{};#pP]+|.", re.S)


def skip_braces(tokens, begin):
    """Returns the index after the brace that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(tokens)):
        depth += (tokens[place] == "{") - (tokens[place] == "}")
        if depth == 0:
            return place + 1
    raise ValueError("a bracket is never closed")


def interface_of(text):
    """Returns the declarations only: no function bodies, nothing private, no namespace detail."""
    tokens = TOKEN.findall(text)
    out = []
    statement = ""  # since the last ; or brace, without comments
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.startswith(("//", "/*", "#define")):
            out.append(token)
            statement = statement + token if statement.strip() else ""
        elif token == "{":
            words = statement.strip()
            if re.match(r"(inline )?namespace detail", words):
                place = skip_braces(tokens, place)
                out = cut_back(out, statement)
                statement = ""
                continue
            is_type = re.match(r"(typedef |template\s*<[^>]*>\s*)*(class|struct|enum|union)\b", words)
            if "(" in words and not is_type and not words.endswith("="):
                place = skip_braces(tokens, place)
                signature = re.sub(r"(\))([^()]*?)\s*:\s[^:].*$", r"\1\2", words, flags=re.S)
                out = cut_back(out, statement)
                out.append(re.match(r"\s*", statement).group() + signature + ";")
                statement = ""
                continue
            if not is_type:
                end = skip_braces(tokens, place)
                inside = "".join(tokens[place:end])
                out.append(inside)
                statement += inside
                place = end
                continue
            out.append(token)
            statement = ""
        elif token == "private:" or token == "protected:":
            depth = 0
            out[-1] = out[-1].rstrip()
            while depth >= 0:
                place += 1
                depth += (tokens[place] == "{") - (tokens[place] == "}")
            out.append("\n")
            statement = ""
            continue
        else:
            out.append(token)
            statement = "" if token in ";}" or token == "public:" else statement + token
        place += 1
    return re.sub(r"\n{3,}", "\n\n", "".join(out)).replace(" \n", "\n")


def cut_back(out, statement):
    """Returns `out` without the statement at its end."""
    joined = "".join(out)
    assert joined.endswith(statement), statement
    return [joined[:-len(statement)]] if statement else out


def parts_of(text):
    """Yields (comment, code) for each top-level paragraph, as separated by blank lines."""
    part, depth = [], 0
    for line in text.splitlines() + [""]:
        bare = re.sub(r"//.*|/\*.*?\*/", "", line)
        if not line.strip() and depth == 0:
            if part:
                yield split_comment("\n".join(part))
            part = []
            continue
        depth += bare.count("{") - bare.count("}")
        part.append(line)


def split_comment(part):
    found = re.match(r"((?://[^\n]*\n)+|/\*.*?\*/\n)", part, re.S)
    # Later comments belong to single lines and stay there.
    return (prose(found.group(1)), part[found.end():]) if found else ("", part)


def describe(name, language):
    text = re.sub(r"\A(// SPDX[^\n]*\n)", "", read(name))
    first = re.match(r"/\*.*?\*/\n|(?://[^\n]*\n)+", text, re.S)
    words = []
    if first:
        words.append(re.sub(r"SPDX-License-Identifier: \S+\s*", "", prose(first.group())))
        text = text[first.end():]
    written = [f"### `cuvmm/{name}`", *filter(None, words)]
    for comment, code in parts_of(interface_of(without_scaffolding(text))):
        if comment:
            written.append(comment)
        if code.strip():
            written.append(f"```{language}\n{code.strip(chr(10))}\n```")
    return "\n\n".join(written)


def reference():
    headers = set(os.listdir(INCLUDE)) - GATHERING
    chapters = []
    for title, subject in SUBJECTS:
        chapter = [f"## {title}"]
        for ending, language in ((".h", "c"), (".hpp", "cpp")):
            if subject + ending in headers:
                headers.remove(subject + ending)
                chapter.append(describe(subject + ending, language))
        chapters.append("\n\n".join(chapter))
    if headers:
        sys.exit(f"reference: name {', '.join(sorted(headers))} in SUBJECTS of tools/reference.py")
    return HEAD + "\n\n".join(chapters) + "\n"


def main():
    made = reference()
    if "--check" not in sys.argv:
        with open(OUT, "w", encoding="utf-8") as file:
            file.write(made)
        return 0
    with open(OUT, encoding="utf-8") as file:
        if file.read() == made:
            return 0
    print("reference: docs/reference.md is out of date: run tools/reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
