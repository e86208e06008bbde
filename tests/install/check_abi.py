# SPDX-License-Identifier: Apache-2.0
"""Checks that programs built against libcuvmm.so.0 keep working.

    check_abi.py BUILD [--write]

Compares the library's exports, and the sizes, field offsets and constants of the public C headers,
with tests/install/abi.txt. Anything removed or changed fails. Additions must be recorded with
--write, and are kept from then on.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
KEPT = os.path.join(HERE, "abi.txt")


def symbols(build):
    listed = subprocess.run(["nm", "-D", "--defined-only",
                             os.path.join(build, "lib", "libcuvmm.so")],
                            capture_output=True, text=True, check=True).stdout
    return sorted({f"symbol {line.split()[2].replace('@@', '@')}" for line in listed.splitlines()
                   if line.split()[1] in "TDBR"})


def headers():
    folder = os.path.join(ROOT, "include", "cuvmm")
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".h"))


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def layout(build):
    """Returns a line for each struct, field and constant, as the compiler reports them."""
    program = ["#include <stddef.h>", "#include <stdio.h>"]
    program += [f'#include "{path}"' for path in headers()]
    program += ["int main(void) {"]
    for path in headers():
        with open(path, encoding="utf-8") as file:
            text = without_comments(file.read())
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\}", text, re.S):
            program.append(f'printf("size {name} %zu\\n", sizeof({name}));')
            for field in re.findall(r"(\w+)\s*(?:\[[^\]]*\])?;", body):
                program.append(f'printf("field {name}.{field} %zu\\n", offsetof({name}, {field}));')
        for body in re.findall(r"enum \w*\s*\{(.*?)\}", text, re.S):
            for constant in re.findall(r"\b(CUVMM_\w+)\b", body):
                program.append(f'printf("constant {constant} %lld\\n", (long long){constant});')
    program.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "layout.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join(program))
        subprocess.run(["cc", "-std=c11", "-w", f"-I{ROOT}/include", f"-I{build}/include", source,
                        "-o", source[:-2]], check=True)
        said = subprocess.run([source[:-2]], capture_output=True, text=True, check=True).stdout
    return sorted(set(said.splitlines()))


def main():
    build = sys.argv[1]
    for tool in ("cc", "nm"):
        if shutil.which(tool) is None:
            print(f"skipped: abi: no {tool} here")
            return 0
    now = symbols(build) + layout(build)
    if "--write" in sys.argv:
        with open(KEPT, "w", encoding="utf-8") as file:
            file.write("\n".join(now) + "\n")
        return 0
    with open(KEPT, encoding="utf-8") as file:
        kept = file.read().splitlines()
    gone = sorted(set(kept) - set(now))
    new = sorted(set(now) - set(kept))
    for line in gone:
        print(f"abi: programs rely on this, and it is no more: {line}")
    for line in new:
        print(f"abi: new, keep it by check_abi.py BUILD --write: {line}")
    print(f"abi: {len(now)} promises, {len(gone)} broken, {len(new)} not written down")
    return 1 if gone or new else 0


if __name__ == "__main__":
    sys.exit(main())
