#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every link in a Markdown file of the tree leads to a file and to a heading in it.

    check_links.py ROOT

Prints a line with file and line number for each broken link, and exits with 1 if there is any.
"""
import re
import sys

from check_layout import Tree

LINK = re.compile(r"\]\(([^()\s]+)\)")
ELSEWHERE = re.compile(r"^[a-z]+:")
FENCE = re.compile(r"^ *```")


def prose_of(text):
    """Yields the numbered lines that are in no block of code."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            yield number, line


def anchors_of(text):
    """Returns the anchors that a forge gives to a page's headings."""
    anchors = set()
    for _, line in prose_of(text):
        if found := re.match(r"#+ (.*)", line):
            heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found.group(1).strip().lower())
            anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
            numbered = (f"{anchor}-{number}" for number in range(1, 1000))
            anchors.add(anchor if anchor not in anchors else next(one for one in numbered if one not in anchors))
    return anchors


def broken_links(file):
    """Yields line number and target of each link of a file that leads nowhere."""
    text = file.read_text(encoding="utf-8")
    for number, line in prose_of(text):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if ELSEWHERE.match(target):
                continue
            path, _, anchor = target.partition("#")
            page = (file.parent / path) if path else file
            if not page.exists():
                yield number, target
            elif anchor and page.suffix == ".md":
                if anchor not in anchors_of(page.read_text(encoding="utf-8")):
                    yield number, target


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_links.py ROOT")
    tree = Tree(sys.argv[1])
    pages = [file for file in tree.files(tree.root) if file.suffix == ".md"]
    broken = [f"{tree.name(file)}:{number}: {target} leads nowhere" for file in pages
              for number, target in broken_links(file)]
    print("\n".join([*broken, f"links: {len(pages)} files, {len(broken)} broken"]))
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
