# SPDX-License-Identifier: Apache-2.0
"""An installation in a path with blanks and non-ASCII letters, used by an unprivileged user.

The user has no writable home, no terminal and no locale.
"""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

from check_plot import python_for_plots
from cli_support import BUILD, main, run, text

NOBODY = 65534
CAN_BECOME_NOBODY = os.geteuid() == 0 and shutil.which("setpriv") is not None


class Surroundings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.trial = tempfile.mkdtemp(prefix="cuvmm surroundings ü ")
        cls.addClassCleanup(shutil.rmtree, cls.trial)
        os.chmod(cls.trial, 0o755)
        cls.place = os.path.join(cls.trial, "ein Ort für alles")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.place, "--component", "cuvmm"],
                       check=True, capture_output=True)
        cls.cuvmm = os.path.join(cls.place, "bin", "cuvmm")
        cls.program = os.path.join(cls.place, "libexec", "cuvmm", "frag_test")

    def setUp(self):
        self.home = self.folder("home", 0o555, os.geteuid())
        self.work = self.folder("work – Ордер", 0o755, NOBODY)
        # Without a blank: it holds the symbolic link that LD_PRELOAD names.
        self.runtime = tempfile.mkdtemp(prefix="cuvmm-runtime-")
        self.addCleanup(shutil.rmtree, self.runtime)
        if CAN_BECOME_NOBODY:
            os.chown(self.runtime, NOBODY, NOBODY)

    def folder(self, name, mode, owner):
        path = os.path.join(tempfile.mkdtemp(dir=self.trial), name)
        os.chmod(os.path.dirname(path), 0o755)
        os.mkdir(path)
        if CAN_BECOME_NOBODY:
            os.chown(path, owner, owner)
        os.chmod(path, mode)
        return path

    def run_as_nobody(self, *words, **variables):
        rights = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        # Inherits none of our environment: no TERM, LANG, USER.
        environment = {"PATH": os.environ["PATH"], "HOME": self.home,
                       "XDG_RUNTIME_DIR": self.runtime, **variables}
        return subprocess.run([*(rights if CAN_BECOME_NOBODY else []), *words], cwd=self.work,
                              env=environment, capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=200, check=False)

    def good(self, *words, **variables):
        finished = self.run_as_nobody(self.cuvmm, *words, **variables)
        self.assertEqual(finished.returncode, 0, text(finished.stdout + finished.stderr))
        self.assertNotIn(b"\033", finished.stdout + finished.stderr)
        return text(finished.stdout)

    def test_every_command_works_without_privileges(self):
        self.good("run", "--sim=memory=64M", "--trace", "eine Spur ☃.trace", "--", self.program)
        trace = os.path.join(self.work, "eine Spur ☃.trace")
        self.assertEqual(os.stat(trace).st_mode & 0o777, 0o600)
        self.assertEqual(json.loads(self.good("stats", "--json", trace))["schema"], 1)
        self.good("plot", trace, "-o", "ein Bild ☃.json")
        for form, ending in (("memory_viz", "pickle"), ("chrome", "json"), ("csv", "csv"),
                             ("rmm-csv", "rmm.csv")):
            self.good("export", "--format", form, trace, "-o", f"nach außen.{ending}")
        self.good("replay", "nach außen.rmm.csv")
        self.good("config")
        self.good("top", "-1")
        self.good("demo", "--sim", "--no-pictures", "-o", "die Vorführung")
        self.assertEqual(os.listdir(self.home), [])

    def test_a_demonstration_without_matplotlib_has_its_page(self):
        modules = os.path.join(self.work, "modules")
        os.mkdir(modules)
        with open(os.path.join(modules, "matplotlib.py"), "w", encoding="utf-8") as module:
            module.write("raise ImportError('none here')\n")
        self.good("demo", "--sim", "-o", "pictures", PYTHONPATH=modules)
        pictures = [name for name in os.listdir(os.path.join(self.work, "pictures"))
                    if name.endswith((".png", ".html"))]
        self.assertEqual(pictures, ["graph_frag_before_after.html"])

    def test_draws_a_plot_without_a_writable_home(self):
        python = shutil.which(python_for_plots())
        # Through a shell: setpriv itself may still start programs that `nobody` may not.
        imports = self.run_as_nobody("sh", "-c", 'exec "$0" -c "import matplotlib"', python)
        if imports.returncode != 0:
            self.skipTest("nobody has no matplotlib here")
        self.good("run", "--sim=memory=64M", "--trace", "run.trace", "--", self.program)
        self.good("plot", "run.trace", "-o", "ein Bild ☃.png", CUVMM_PYTHON=python)
        self.assertGreater(os.path.getsize(os.path.join(self.work, "ein Bild ☃.png")), 10_000)
        self.assertEqual(os.listdir(self.home), [])

    def test_the_doctor_finds_no_problem(self):
        finished = self.run_as_nobody(self.cuvmm, "doctor", "--sim", "--json")
        findings = json.loads(finished.stdout)["findings"]
        bad = [one for one in findings if one["verdict"] == "bad"]
        self.assertEqual(bad, [])
        self.assertEqual(finished.returncode, 0)

    def test_an_unwritable_file_is_a_one_line_error(self):
        for words in (("run", "--sim", "--trace", "{}/x.trace", "--", "true"),
                      ("demo", "--sim", "--no-pictures", "-o", "{}/x")):
            finished = self.run_as_nobody(self.cuvmm,
                                          *(word.format(self.home) for word in words))
            # `run` starts no program whose trace it could not write.
            self.assertEqual(finished.returncode, 125 if words[0] == "run" else 1)
            self.assertEqual(len(text(finished.stderr).splitlines()), 1)

    def test_a_demonstration_on_a_full_disk_fails(self):
        disk = os.path.join(self.work, "disk")
        os.mkdir(disk)
        if run("unshare", "--mount", "mount", "-t", "tmpfs", "none", disk).returncode != 0:
            self.skipTest("no file systems can be mounted here")
        script = 'mount -t tmpfs -o size=4k none "$1" && echo >"$1/file" && exec "$0" demo --sim --no-pictures -o "$1"'
        finished = run("unshare", "--mount", "sh", "-c", script, self.cuvmm, disk)
        self.assertEqual(finished.returncode, 1, text(finished.stdout))
        self.assertIn("nothing was recorded; the disk may be full", text(finished.stderr))

    def test_the_user_can_pause_a_program_of_their_own(self):
        script = ('"$0" run --sim --control --quiet -- "$1" --memory 1 --steps 200 & '
                  'for i in $(seq 1000); do [ -n "$(ls "$XDG_RUNTIME_DIR"/cuvmm/control-* 2>/dev/null)" ] '
                  '&& break; sleep 0.05; done; "$0" pause --all --json >paused; '
                  '"$0" resume --all --json >resumed; wait')
        program = os.path.join(BUILD, "bin", "take_turns")
        if not os.path.exists(program):
            self.skipTest("take_turns is not built")
        copied = shutil.copy(program, os.path.join(self.trial, "take_turns"))
        finished = self.run_as_nobody("bash", "-c", script, self.cuvmm, copied)
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        for name in ("paused", "resumed"):
            with open(os.path.join(self.work, name), encoding="utf-8") as file:
                said = json.load(file)
            self.assertEqual(said["schema"], 1)
            (one,) = said["processes"]
            self.assertTrue(one["done"], one)
            self.assertEqual(one["paused"], name == "paused")


if __name__ == "__main__":
    main()
