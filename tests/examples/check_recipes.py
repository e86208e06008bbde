# SPDX-License-Identifier: Apache-2.0
"""Runs each recipe of docs/recipes.md exactly as written, and checks what it promises.

CUVMM_BUILD is the build tree.
"""

import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("CUVMM_BUILD", "build"))


def recipes():
    """Returns the commands under each heading."""
    with open(os.path.join(ROOT, "docs", "recipes.md"), encoding="utf-8") as file:
        parts = re.split(r"^## ", file.read(), flags=re.M)[1:]
    return {part.splitlines()[0]: "\n".join(re.findall(r"^```bash\n(.*?)^```", part, re.M | re.S))
            for part in parts}


class Recipes(unittest.TestCase):
    def followed(self, title):
        with tempfile.TemporaryDirectory(prefix="cuvmm-recipe-") as folder:
            environment = dict(os.environ, XDG_RUNTIME_DIR=folder,
                               PATH=os.path.join(BUILD, "bin") + os.pathsep + os.environ["PATH"])
            finished = subprocess.run(["bash", "-euc", recipes()[title]], cwd=folder, check=False,
                                      env=environment, capture_output=True, text=True, timeout=300,
                                      stdin=subprocess.DEVNULL)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        return finished.stdout, finished.stderr

    def test_every_recipe_has_a_test(self):
        tested = {"Two trainings on one card", "Take turns with a notebook",
                  "Pause a server while the model trains", "Fit a job into 80%",
                  "Find out what fragments memory", "Test a CUDA project without a GPU"}
        self.assertEqual(set(recipes()), tested)

    def test_two_trainings_run_side_by_side_within_their_shares(self):
        said, _ = self.followed("Two trainings on one card")
        self.assertEqual(said.count("all 20 steps read back what they wrote"), 2)

    def test_a_notebook_pauses_and_resumes(self):
        said, _ = self.followed("Take turns with a notebook")
        order = [said.index(words) for words in (": paused: ", "all 5 steps", ": resumed: ",
                                                 "all 300 steps read back what they wrote")]
        self.assertEqual(order, sorted(order), said)

    def test_a_server_pauses_for_each_training(self):
        said, _ = self.followed("Pause a server while the model trains")
        self.assertEqual([said.count(words) for words in (
            ": paused: ", "all 2 steps read back what they wrote", ": resumed: ",
            "all 300 steps read back what they wrote")], [2, 2, 2, 1], said)

    def test_a_job_fits_into_less_than_it_uses(self):
        said, _ = self.followed("Fit a job into 80%")
        self.assertIn("all 3 steps read back what they wrote", said)

    def test_a_trace_tells_who_allocates(self):
        said, _ = self.followed("Find out what fragments memory")
        self.assertRegex(said, r"AT PEAK +NEVER FREED(.|\n)*main \(take_turns\)")

    def test_a_project_can_be_tested_without_a_card(self):
        said, errors = self.followed("Test a CUDA project without a GPU")
        self.assertEqual(said.count("all 3 steps read back what they wrote"), 4)
        self.assertIn("cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY", errors)


if __name__ == "__main__":
    unittest.main()
