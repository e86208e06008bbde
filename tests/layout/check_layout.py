#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the tree follows its layout rules (layout_rules.py).

Prints a line with file and line number for each breach, and exits with 1 if there is any.
"""

import re
import sys
from pathlib import Path

import layout_rules as rules

C_FILES = {".cpp", ".hpp", ".h", ".c", ".def"}
SOURCE_FILES = C_FILES | {".py", ".sh", ".cmake"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile", "dev", "run"}
TEXT_FILES = SOURCE_FILES | {".md", ".txt", ".in", ".json", ".yml", ".toml", ".map", ".rst"}
# Hidden folders are the user's own, except those that a forge reads.
NOT_OURS = re.compile(r"^(build.*|__pycache__|demo-output|\.(?!ci$|github$).*)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
CUDA_HEADER = re.compile(r"^(cuda|cudaTypedefs|cuda_runtime\w*|driver_types|cudaProfiler)\.h$")
# Split, so that this file does not break its own rule.
FOREIGN_PATHS = re.compile("/wo" + r"rk/|\.\./sha" + r"red|py" + "pi.org|pythonhos" + "ted")
TYPE = re.compile(r"^(?:class|struct|enum|enum class) (\w+)(?: final)?(?: :.*)? \{")
MAPPING_CALL = re.compile(r"(?:\.|->)(cuMem(?:Create|Release|Map|Unmap|SetAccess))\(")
PROJECT_VERSION = re.compile(r"^project\(cuvmm VERSION ([\d.]+)", re.MULTILINE)
REASON = re.compile(r"lines\s+because\b", re.IGNORECASE)


class Tree:
    """A checkout, its files, and the breaches found in them."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.breaches = []
        self.warnings = []
        self.types = {}

    def check(self):
        for file in self.files(self.root):
            self.check_file(file)
        self.check_versions()
        return not self.breaches

    def files(self, folder):
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and NOT_OURS.match(entry.name):
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from self.files(entry)
            elif entry.is_file():
                yield entry

    def check_file(self, file):
        is_source = file.suffix in SOURCE_FILES or file.name in SOURCE_NAMES
        if not is_source and file.suffix not in TEXT_FILES:
            return
        lines = file.read_text(errors="replace").splitlines()
        self.check_paths(file, lines)
        if is_source:
            self.check_license(file, lines)
            self.check_length(file, lines)
        if file.suffix in C_FILES and self.folder_of(file):
            self.check_includes(file, lines)
        if self.name(file).startswith("src/") and self.folder_of(file):
            self.check_mapping_calls(file, lines)
        if self.name(file).startswith("src/") and file.suffix == ".hpp":
            self.check_types(file, lines)

    def check_license(self, file, lines):
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            self.breach(file, 1, "no line SPDX-License-Identifier: Apache-2.0 at its head")

    def check_versions(self):
        """The version stands in several files; CMakeLists.txt says which it is."""
        build = self.root / "CMakeLists.txt"
        found = PROJECT_VERSION.search(build.read_text()) if build.is_file() else None
        if not found:
            return
        for name, pattern in rules.VERSIONS.items():
            file = self.root / name
            for number, line in enumerate(file.read_text().splitlines(), 1):
                for version in re.findall(pattern, line):
                    if version != found.group(1):
                        self.breach(file, number, f"says version {version}, and CMakeLists.txt "
                                                  f"{found.group(1)}")

    def check_length(self, file, lines):
        if len(lines) > rules.LONG_FILE_NEEDS_A_REASON and not REASON.search(first_comment(lines)):
            self.breach(file, 1, f"{len(lines)} lines, and its first comment does not say "
                                 "'... lines because ...'")
        elif len(lines) > rules.LONG_FILE_WARNS:
            self.warnings.append(f"{self.name(file)}: {len(lines)} lines")

    def check_paths(self, file, lines):
        for number, line in enumerate(lines, 1):
            if found := FOREIGN_PATHS.search(line):
                self.breach(file, number, f"names '{found.group()}', which exists on no other machine")

    def check_types(self, file, lines):
        """A type name means one thing, whatever its namespace: readers do not see namespaces.

        The simulated driver is a separate program, with its own names for the same things.
        """
        side = "the simulated driver" if self.folder_of(file) == "sim" else "cuvmm"
        for number, line in enumerate(lines, 1):
            if found := TYPE.match(line):
                other = self.types.setdefault((side, found.group(1)), self.name(file))
                if other != self.name(file):
                    self.breach(file, number, f"{found.group(1)} is defined in {other} too")

    def check_mapping_calls(self, file, lines):
        if self.folder_of(file) in rules.MAPPING_FOLDERS:
            return
        for number, line in enumerate(lines, 1):
            if found := MAPPING_CALL.search(line.split("//")[0]):
                self.breach(file, number, f"calls {found.group(1)}, which only "
                                          f"{', '.join(sorted(rules.MAPPING_FOLDERS))} may")

    def check_includes(self, file, lines):
        for number, line in enumerate(lines, 1):
            if found := INCLUDE.match(line):
                quoted, angled = found.groups()
                self.check_cuda(file, number, quoted or angled)
                if quoted:
                    self.check_include(file, number, quoted)

    def check_cuda(self, file, number, header):
        if CUDA_HEADER.match(header) and self.folder_of(file) not in rules.CUDA_FOLDERS \
                and self.name(file) != rules.CUDA_FILE:
            self.breach(file, number, f"includes {header}, which only {rules.CUDA_FILE} and "
                                      f"{', '.join(sorted(rules.CUDA_FOLDERS))} may")

    def check_include(self, file, number, header):
        if CUDA_HEADER.match(header) or header == "cuvmm/version.h":  # generated by the build
            return
        included = self.resolve(file, header)
        if included is None:
            self.breach(file, number, f"includes \"{header}\", which is no file of the project")
            return
        here, there = self.folder_of(file), self.folder_of(included)
        single = rules.SINGLE_FILES.get(here)
        if there != "include" and there not in rules.may_include(here) \
                and not (single and re.fullmatch(single, header)):
            self.breach(file, number, f"{here} includes \"{header}\" of {there}, which it may not")

    def resolve(self, file, header):
        for base in (file.parent, self.root / "src", self.root / "include", self.root / "tests",
                     self.root):
            if (base / header).is_file():
                return (base / header).resolve()
        return None

    def folder_of(self, file):
        """Returns the folder's name in the table, or None if the file belongs to none."""
        parts = file.relative_to(self.root).parts
        if parts[0] == "src" and len(parts) > 2:
            if parts[1] not in rules.SOURCE_FOLDERS:
                self.breach(file, 1, f"the folder src/{parts[1]} is not in layout_rules.py")
                return None
            return parts[1]
        return parts[0] if parts[0] in rules.OTHER_FOLDERS else None

    def name(self, file):
        return str(file.relative_to(self.root))

    def breach(self, file, number, what):
        text = f"{self.name(file)}:{number}: {what}"
        if text not in self.breaches:
            self.breaches.append(text)


def first_comment(lines):
    """Returns the comment at the start of a file, including its licence line."""
    comment = []
    for line in lines:
        if not re.match(r"\s*(//|#|/?\*|\"\"\")", line):
            break
        comment.append(line.strip(" /*#"))
    return " ".join(comment)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layout.py ROOT")
    tree = Tree(sys.argv[1])
    tree.check()
    for warning in tree.warnings:
        print(f"warning: {warning}")
    for breach in tree.breaches:
        print(breach)
    print(f"layout: {len(tree.breaches)} breaches, {len(tree.warnings)} long files")
    return 1 if tree.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
