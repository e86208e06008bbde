# SPDX-License-Identifier: Apache-2.0
"""Completions and manual pages match --help, and the shells and man accept them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import unittest

from cli_support import BUILD, CUVMM, CliTest, cuvmm, main, run, text
from top_support import TopTest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GENERATED = os.path.join(BUILD, "generated")


def generated(name):
    with open(os.path.join(GENERATED, name), encoding="utf-8") as file:
        return file.read()


class SimPackage(CliTest):
    def cuvmm_sim(self, *words):
        return run(sys.executable, "-B", "-m", "cuvmm_sim", *words,
                   env={"PYTHONPATH": os.path.join(ROOT, "python", "sim")})

    def test_it_knows_every_setting_of_the_driver(self):
        with open(os.path.join(ROOT, "src", "base", "sim_options.def"), encoding="utf-8") as file:
            for setting in re.findall(r'"VMM_SIM_(\w+)"', file.read()):
                name = setting.lower()
                finished = self.cuvmm_sim(f"{name}=x", "--", "printenv", f"VMM_SIM_{setting}")
                self.assertEqual(text(finished.stdout), "x\n", text(finished.stderr))

    def test_unknown_settings_are_refused_by_name(self):
        finished = self.cuvmm_sim("devises=2", "--", "true")
        self.assertEqual(finished.returncode, 2)
        self.assertIn("there is no 'devises'; there are devices, ", text(finished.stderr))


class Generated(CliTest):
    def commands(self):
        return self.good("generate", "commands").split()

    def completed(self, *words):
        """Returns bash's completions for these words."""
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cuvmm; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        finished = run("bash", "--norc", "-c", script, "bash",
                       os.path.join(GENERATED, "cuvmm.bash"), *words)
        self.assertEqual(finished.stderr, b"")
        return text(finished.stdout).split()

    def test_bash_completes_commands_flags_values_and_files(self):
        self.assertEqual(self.completed("cuvmm", "st"), ["stats"])
        self.assertEqual(self.completed("cuvmm", "plot", "--out"), ["--output"])
        self.assertEqual(self.completed("cuvmm", "run", "--mode", "mon"), ["monitor"])
        self.assertIn("/etc/passwd", self.completed("cuvmm", "stats", "/etc/pass"))
        self.assertEqual(set(self.completed("cuvmm", "")) & set(self.commands()),
                         set(self.commands()))

    def test_every_command_is_in_every_list(self):
        for name in ("cuvmm.bash", "_cuvmm", "cuvmm.fish", "cuvmm.1"):
            for command in self.commands():
                self.assertRegex(generated(name), rf"\b{command}\b", f"{command} in {name}")
        for command in self.commands():
            self.assertTrue(os.path.exists(os.path.join(GENERATED, f"cuvmm-{command}.1")),
                            f"no manual of {command}: add it to src/cli/CMakeLists.txt")

    def test_every_flag_of_help_is_in_the_manual_and_in_the_completions(self):
        for command in self.commands():
            manual = generated(f"cuvmm-{command}.1").replace("\\-", "-")
            for flag in set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", self.good(command, "--help"),
                                       re.M)):
                self.assertIn(f"\\fB{flag}\\fR", manual)
                self.assertIn(flag, generated("cuvmm.bash"))
                self.assertIn(flag, generated("_cuvmm"))
                self.assertIn(f"-l {flag[2:]}", generated("cuvmm.fish"))

    def test_every_command_has_help_text(self):
        for command in self.commands():
            self.assertGreater(len(self.good(command, "--help").splitlines()), 5)
        self.assertIn("Examples:", self.good("--help"))

    def test_generated_files_are_up_to_date(self):
        for how, name in (("bash", "cuvmm.bash"), ("zsh", "_cuvmm"), ("fish", "cuvmm.fish"),
                          ("man", "cuvmm.1")):
            self.assertEqual(self.good("generate", how), generated(name))

    def test_manuals_have_examples_and_exit_statuses_in_sections_of_their_own(self):
        for command in self.commands():
            manual = generated(f"cuvmm-{command}.1")
            self.assertIn(".SH EXAMPLES\n", manual, command)
            self.assertNotIn("Examples:", manual, command)
            self.assertNotIn("Exit status:", manual, command)
        self.assertRegex(generated("cuvmm-stats.1"), r"\.SH EXIT STATUS\n\.PP\n\.nf\n0, or 1 ")

    def test_the_service_has_a_manual_with_every_flag_of_its_help(self):
        program = os.path.join(BUILD, "bin", "cuvmmd")
        manual = generated("cuvmmd.8").replace("\\-", "-")
        self.assertEqual(text(run(program, "--manual").stdout).replace("\\-", "-"), manual)
        shown = text(run(program, "--help").stdout)
        flags = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", shown, re.M))
        self.assertGreater(len(flags), 10)
        self.assertNotIn("--manual", flags)
        for flag in flags:
            self.assertIn(f"\\fB{flag}\\fR", manual)
        self.assertNotIn("\n\n\n", shown)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here")
    def test_zsh_accepts_the_completions(self):
        self.assertEqual(run("zsh", "-n", os.path.join(GENERATED, "_cuvmm")).returncode, 0)

    @unittest.skipUnless(shutil.which("fish"), "no fish here")
    def test_fish_accepts_the_completions(self):
        self.assertEqual(run("fish", "-n", os.path.join(GENERATED, "cuvmm.fish")).returncode, 0)

    @unittest.skipUnless(shutil.which("man"), "no man here")
    def test_man_formats_the_manuals_without_warnings(self):
        for name in sorted(os.listdir(GENERATED)):
            if not name.endswith((".1", ".8")):
                continue
            finished = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", os.path.join(GENERATED, name)],
                env=dict(os.environ, MANWIDTH="90", LC_ALL="C.UTF-8"), capture_output=True,
                check=False, timeout=60)
            self.assertEqual(finished.returncode, 0, name)
            self.assertEqual(text(finished.stderr), "", name)
            self.assertIn("SYNOPSIS", text(finished.stdout))


class Voice(CliTest):
    def test_colours_are_for_terminals_only(self):
        for words in (("doctor", "--sim"), ("--help",), ("config",)):
            self.assertNotIn(b"\033", cuvmm(*words).stdout)

    def test_a_missing_command_is_a_usage_error(self):
        finished = cuvmm()
        self.assertEqual(finished.returncode, 2)
        self.assertEqual(finished.stdout, b"")

    @unittest.skipUnless(shutil.which("script"), "no script(1) here")
    def test_respects_no_color_and_dumb_terminals(self):
        def on_a_terminal(**variables):
            command = f"'{os.path.abspath(os.path.join(BUILD, 'bin', 'cuvmm'))}' doctor --sim"
            return run("script", "-qec", command, "/dev/null",
                       env=dict({"TERM": "xterm", "NO_COLOR": ""}, **variables)).stdout
        self.assertIn(b"\033[32m", on_a_terminal())
        self.assertNotIn(b"\033[", on_a_terminal(NO_COLOR="1"))
        self.assertNotIn(b"\033[", on_a_terminal(TERM="dumb"))


class Processes(TopTest):
    def test_bash_completes_processes_that_accept_commands(self):
        holder = self.holder([1], "--control")
        environment = dict(self.env, PATH=os.path.dirname(CUVMM) + ":" + os.environ["PATH"])
        deadline = time.monotonic() + 20
        while True:
            listed = self.good("pause", "--list", env=environment)
            if listed or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        number, command = listed.rstrip("\n").split("\t")
        self.assertEqual(int(number), holder.number)
        self.assertIn("python", command)
        as_json = json.loads(self.good("pause", "--list", "--json", env=environment))
        self.assertEqual(as_json, {"schema": 1,
                                   "processes": [{"process": int(number), "command": command}]})
        script = ('source "$1"; COMP_WORDS=(cuvmm pause ""); COMP_CWORD=2; _cuvmm; '
                  'printf "%s\n" "${COMPREPLY[@]}"')
        finished = run("bash", "--norc", "-c", script, "bash",
                       os.path.join(GENERATED, "cuvmm.bash"), env=environment)
        self.assertEqual(text(finished.stderr), "")
        self.assertEqual(text(finished.stdout).split(), [number])


if __name__ == "__main__":
    main()
