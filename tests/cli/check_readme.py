# SPDX-License-Identifier: Apache-2.0
"""Runs every command of README.md that needs no card, in order, as a reader would."""

import os
import re
import subprocess

from check_plot import ROOT, can_draw, python_for_plots
from cli_support import BUILD, CliTest, main, text

# The first two build and test the project; training needs a card and a program.
NOT_RUN = re.compile(r"^\./dev |python train\.py|\./program")
NEEDS = {".png": "matplotlib"}


def commands():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", file.read(), re.M | re.S)
    # A block of a language is no command: ```text is what one prints.
    for line in "".join(block for language, block in blocks if not language).splitlines():
        command, _, comment = line.partition("#")
        if command.strip() and not NOT_RUN.search(command):
            yield command.strip(), comment.strip()


class Readme(CliTest):
    def test_every_command_works(self):
        here = os.path.dirname(self.path("x"))
        os.symlink(os.path.abspath(BUILD), self.path("build"))
        os.symlink(os.path.join(ROOT, "bench"), self.path("bench"))
        run = 0
        for command, comment in commands():
            ending = os.path.splitext(command)[1]
            if ending in NEEDS and not can_draw(NEEDS[ending]):
                print(f"skipped: {command}: no {NEEDS[ending]} here")
                continue
            finished = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True,
                                      stdin=subprocess.DEVNULL, check=False, timeout=300,
                                      env=dict(os.environ, CUVMM_PYTHON=python_for_plots()))
            said = f"{command}\n{text(finished.stdout)}{text(finished.stderr)}"
            self.assertEqual(finished.returncode, 1 if comment == "fails" else 0, said)
            run += 1
        self.assertGreaterEqual(run, 8)
        for made in ("before.trace", "after.pickle", "after.json"):
            self.assertTrue(os.path.exists(self.path(made)), made)

    def test_every_linked_file_exists(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read())
        self.assertGreater(len(links), 20)
        for link in links:
            self.assertTrue(os.path.exists(os.path.join(ROOT, link)), link)


if __name__ == "__main__":
    main()
