# SPDX-License-Identifier: Apache-2.0
"""What a new user meets in the first hour: errors name the remedy, and messages are accurate."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time

from cli_support import BUILD, CUVMM, CliTest, cuvmm, main, run, text

FRAG = os.path.join(BUILD, "bin", "frag_test")


def wait_until(holds, seconds=60):
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def has_ended(process):
    try:
        with open(f"/proc/{process}/status") as status:
            return "\nState:\tZ" in status.read()  # nobody has reaped it
    except FileNotFoundError:
        return True


def children_of(process):
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as children:
        return children.read().split()


def has_filled(pipe):
    waiting = fcntl.ioctl(pipe, termios.FIONREAD, b"    ")
    return int.from_bytes(waiting, sys.byteorder) == 65536


class Pausing(CliTest):
    def setUp(self):
        super().setUp()
        self._runtime = tempfile.TemporaryDirectory(prefix="cuvmm-rt-")
        self.addCleanup(self._runtime.cleanup)
        self.surroundings = {"XDG_RUNTIME_DIR": self._runtime.name}

    def test_a_missing_process_is_an_error(self):
        for command in ("pause", "resume"):
            finished = cuvmm(command, 99999999, env=self.surroundings)
            self.assertEqual(finished.returncode, 1)
            self.assertEqual(text(finished.stderr), "cuvmm: 99999999: no such process\n")

    def test_a_process_that_is_named_twice_is_told_once(self):
        finished = cuvmm("pause", 99999999, 99999999, env=self.surroundings)
        self.assertEqual(text(finished.stderr), "cuvmm: 99999999: no such process\n")

    def test_a_stopped_process_is_refused_at_once(self):
        program = subprocess.Popen(["sleep", "60"])
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        program.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOWAIT)
        for command in ("pause", "resume"):
            finished = cuvmm(command, program.pid, env=self.surroundings)
            self.assertEqual(finished.returncode, 1)
            self.assertEqual(text(finished.stderr),
                             f"cuvmm: {program.pid}: the process is stopped and cannot answer; "
                             "`kill -CONT` continues it\n")

    def test_pausing_all_of_no_processes_says_how_to_start_one(self):
        finished = cuvmm("pause", "--all", env=self.surroundings)
        self.assertEqual(finished.returncode, 0)
        self.assertIn("cuvmm run --control", text(finished.stderr))

    def test_listing_none_says_how_to_start_one(self):
        finished = cuvmm("pause", "--list", env=self.surroundings)
        self.assertEqual((finished.returncode, finished.stdout), (0, b""))
        self.assertIn("cuvmm run --control", text(finished.stderr))

    def test_names_and_all_exclude_each_other(self):
        for words, said in ((("--all", 4711), "name processes or use --all, not both"),
                            ((), "name processes, or use --all"),
                            (("abc",), "abc is not a process ID")):
            finished = cuvmm("pause", *words, env=self.surroundings)
            self.assertEqual(finished.returncode, 2)
            self.assertEqual(text(finished.stderr), f"cuvmm: {said}\n")

    def test_help_has_examples_of_its_own(self):
        self.assertIn("cuvmm pause --list", self.good("pause", "--help"))
        self.assertNotIn("cuvmm demo", self.good("pause", "--help"))
        self.assertIn("--partly    continue with what fits", self.good("resume", "--help"))


class Running(CliTest):
    def refused(self, *words):
        finished = cuvmm("run", *words, "--", "true")
        self.assertEqual(finished.returncode, 2, words)
        self.assert_one_line(finished.stderr)
        return text(finished.stderr)

    def test_a_refused_value_names_its_flag(self):
        self.assertRegex(self.refused("--limit", "16X"), "^cuvmm: --limit \(VMM_LIMIT\): '16X' is invalid")
        self.assertRegex(self.refused("--log-level", "loud"), "^cuvmm: --log-level .*'loud'")
        self.assertRegex(self.refused("--spill", "moon"), "^cuvmm: --spill .*'moon'")

    def test_a_limit_of_zero_is_refused(self):
        for nothing in ("0", "0G"):
            self.assertRegex(self.refused("--limit", nothing), "^cuvmm: --limit .*above 0")

    def test_a_limit_without_its_unit_is_refused(self):
        self.assertIn("a limit must be at least 2 MiB; 16 is 16 bytes, 16G is 16 GiB",
                      self.refused("--limit", "16"))
        self.assertIn("a limit must be at least 2 MiB\n", self.refused("--limit", "1M"))
        self.assertEqual(cuvmm("run", "--sim", "--limit", "2M", "--", "true").returncode, 0)
        changed = cuvmm("set", "trainer", "--limit", "16")
        self.assertEqual(changed.returncode, 2)
        self.assertIn("--limit 16: a limit must be at least 2 MiB; 16 is", text(changed.stderr))

    def test_a_limit_of_the_environment_without_its_unit_is_named(self):
        why = "a limit must be at least 2 MiB; 16 is 16 bytes, 16G is 16 GiB\n"
        self.assertEqual(self.said("--", "true", env={"VMM_LIMIT": "16"}),
                         f"cuvmm: VMM_LIMIT=16 leaves the program no device memory: {why}")
        self.assertEqual(self.said("--mode", "monitor", "--", "true", env={"VMM_LIMIT": "16"}), "")
        self.assertEqual(self.said("--limit", "2M", "--", "true", env={"VMM_LIMIT": "16"}), "")
        shown = cuvmm("config", env={"VMM_LIMIT": "16"})
        self.assertEqual((shown.returncode, text(shown.stderr)), (2, f"cuvmm: VMM_LIMIT: '16' is invalid; {why}"))

    def test_flags_without_effect_in_a_mode_are_named(self):
        self.assertEqual(
            self.said("--mode", "monitor", "--limit", "50%", "--control", "--schedule", "fifo", "--", "true"),
            "cuvmm: --control, --limit have no effect in mode MONITOR\n")
        self.assertEqual(self.said("--mode", "off", "--schedule", "fifo", "--", "true"),
                         "cuvmm: --schedule has no effect in mode OFF\n")

    def test_a_guarantee_above_the_limit_is_refused(self):
        self.assertEqual(self.refused("--guarantee", "500M", "--limit", "400M"),
                         "cuvmm: --guarantee 500M exceeds --limit 400M\n")

    def test_settings_of_sim_after_a_blank_are_pointed_out(self):
        self.assertEqual(self.refused("--sim", "memory=8G"),
                         "cuvmm: settings follow --sim after an equals sign: --sim=memory=8G\n")

    def test_settings_of_several_sims_add_up(self):
        for flags in (("--sim=devices=2", "--sim=memory=8G"), ("--sim", "--sim=devices=2,memory=8G"),
                      ("--sim=devices=2,memory=8G", "--sim")):
            ran = cuvmm("run", *flags, "--", "env", without=("VMM_SIM_DEVICES", "VMM_SIM_MEMORY"))
            self.assertEqual(ran.returncode, 0, text(ran.stderr))
            settings = text(ran.stdout).splitlines()
            self.assertIn("VMM_SIM_DEVICES=2", settings, flags)
            self.assertIn("VMM_SIM_MEMORY=8G", settings, flags)
        self.assertIn("there is no setting 'memroy'", self.refused("--sim=memroy=8G", "--sim"))
        self.assertIn("each part is NAME=VALUE", self.refused("--sim=,"))

    def test_an_unknown_function_is_named(self):
        for setting in ("fault=cuFoo:1=SIGKILL", "delay=cuMemMap=1us,cuFoo=3us"):
            self.assertIn("there is no driver function 'cuFoo'", self.refused("--sim=" + setting))

    def test_an_unknown_error_is_refused(self):
        for error in ("CUDA_ERROR_BOGUS", "CUDA_SUCCESS", "SIGTERM"):
            self.assertIn("errors as cuda.h names them",
                          self.refused(f"--sim=fault=cuMemAlloc:1={error}"))

    def test_mode_off_records_nothing(self):
        for words in ((), ("--stacks",)):
            self.assertEqual(self.refused("--mode", "off", "--trace", self.path("t"), *words),
                             "cuvmm: mode off records nothing; use --mode monitor with --trace\n")

    def said(self, *words, **more):
        finished = cuvmm("run", "--sim", *words, **more)
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        return text(finished.stderr)

    def test_a_program_without_driver_calls_leaves_no_trace_and_it_says_so(self):
        self.assertEqual(self.said("--trace", self.path("t"), "--", "true"),
                         "cuvmm: no trace was written: the program made no driver call, or the file cannot be created\n")
        self.assertEqual(self.said("--trace", "/dev/null", "--", "true"), "")

    def test_a_folder_that_is_missing_is_named(self):
        finished = cuvmm("run", "--sim", "--trace", "/nodir/x.trace", "--", "true")
        self.assertEqual(finished.returncode, 125)
        self.assertEqual(text(finished.stderr), "cuvmm: /nodir/x.trace: there is no folder /nodir\n")
        finished = cuvmm("run", "--sim", "--log-file", "/nodir/x.log", "--", "true")
        self.assertEqual(finished.returncode, 125)
        self.assertEqual(text(finished.stderr), "cuvmm: /nodir/x.log: there is no folder /nodir\n")
        finished = cuvmm("cdi", "generate", "--sim=memory=8G,card=a", "--shares", "2G", "-o", "/nodir/x.json")
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(text(finished.stderr), "cuvmm: /nodir/x.json: there is no folder /nodir\n")

    def test_flags_for_the_service_need_one(self):
        nowhere = {"XDG_RUNTIME_DIR": self.path("")}
        if os.path.exists("/run/cuvmm/cuvmmd.sock"):
            self.skipTest("a service runs on this machine")
        self.assertEqual(self.said("--guarantee", "1G", "--", "true", env=nowhere),
                         "cuvmm: no cuvmmd is running: --guarantee has no effect\n")
        self.assertEqual(self.said("--cap", "5", "--group", "a", "--", "true", env=nowhere),
                         "cuvmm: no cuvmmd is running: --cap, --group have no effect\n")
        self.assertEqual(self.said("--weight", "5", "--schedule", "fair", "--", "true", env=nowhere), "")

    def test_after_refused_allocations_the_next_step_is_advice(self):
        trace = os.path.join(tempfile.gettempdir(), f"cuvmm-refused-{os.getpid()}.trace")
        finished = cuvmm("run", "--sim=memory=64M", "--mode", "monitor", "--trace", trace, "--",
                         FRAG, "--fill", "8M")
        self.addCleanup(os.unlink, trace)
        self.assertIn(f"cuvmm advise {trace}", text(finished.stderr))
        fits = self.good("advise", trace, "--limit", "1G")
        self.assertIn("When it was recorded, it ran out of memory with 64.0 MiB available.", fits)
        self.assertIn("under cuvmm it needs 64.0 MiB", self.good("advise", trace))

    def test_an_unknown_key_of_sim_is_named_with_the_known_ones(self):
        said = self.refused("--sim=mem=8G")
        self.assertIn("there is no setting 'mem'", said)
        self.assertIn("devices, memory", said)
        self.assertRegex(self.refused("--sim=memory=much"), "^cuvmm: --sim=memory .*'much'")

    def test_without_a_driver_it_warns_and_require_fails(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a driver")
        warned = cuvmm("run", "--", "true")
        self.assertEqual(warned.returncode, 0)
        self.assertIn("no CUDA driver", text(warned.stderr))
        required = cuvmm("run", "--require", "--", "true")
        self.assertEqual(required.returncode, 125)
        self.assertIn("no CUDA driver", text(required.stderr))
        self.assertEqual(cuvmm("run", "--require", "--sim", "--", "true").returncode, 0)

    def test_the_summary_lists_child_traces_and_marks_simulated_times(self):
        trace = self.path("run.trace")
        finished = cuvmm("run", "--sim=memory=16M", "--trace", trace, "--", "bash", "-c",
                         f"'{FRAG}'; '{FRAG}'; true")
        said = text(finished.stderr)
        self.assertRegex(said, r"events in [0-9.]+ s \(simulated\)")
        self.assertRegex(said, r"child .*run\.trace\.\d+: .*frag_test \(process \d+\)")
        self.assertIn("(simulated)", self.good("stats", trace))

    def test_the_summary_counts_what_a_worker_was_refused(self):
        trace = self.path("run.trace")
        launcher = ("import ctypes, subprocess, sys\n"
                    "cuda = ctypes.CDLL('libcuda.so.1')\n"
                    "cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)\n"
                    "subprocess.run(sys.argv[1:])")
        finished = cuvmm("run", "--sim=memory=16M", "--trace", trace, "--", sys.executable, "-c", launcher, FRAG)
        said = text(finished.stderr)
        self.assertIn("allocations            0, 0 refused", said)
        worker = re.search(r"child +(.*run\.trace\.\d+): .*frag_test .*, 2 allocations refused\n", said)
        self.assertTrue(worker, said)
        self.assertIn(f"cuvmm advise '{worker[1]}'\n", said)

    def test_the_summary_counts_the_refusals_of_workers_that_it_does_not_list(self):
        launcher = ("import ctypes, subprocess, sys\n"
                    "cuda = ctypes.CDLL('libcuda.so.1')\n"
                    "cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)\n"
                    "for _ in range(10): subprocess.run(sys.argv[1:])")
        finished = cuvmm("run", "--sim=memory=16M", "--trace", self.path("run.trace"), "--", sys.executable, "-c",
                         launcher, FRAG)
        self.assertIn("2 more traces of children, 4 allocations refused\n", text(finished.stderr))

    def test_files_are_written_where_the_command_was_given(self):
        here = self.path("100%p")
        os.makedirs(os.path.join(here, "below"))
        finished = run(os.path.abspath(CUVMM), "run", "--sim=memory=16M", "--trace", "run.trace", "--log-file",
                       "log.txt", "--log-level", "info", "--", "bash", "-c",
                       f"cd below && '{os.path.abspath(FRAG)}'", cwd=here)
        self.assertIn("cuvmm advise run.trace", text(finished.stderr))
        self.assertEqual(sorted(os.listdir(here)), ["below", "log.txt", "run.trace"])
        self.assertEqual(os.listdir(os.path.join(here, "below")), [])

    def test_a_signal_ends_it_once_the_program_has_ended(self):
        out, into = os.pipe()
        self.addCleanup(os.close, out)
        # Nothing reads what the program has filled, so the command waits to write its summary there.
        fill = f"'{FRAG}' >/dev/null 2>&1; head -c 65536 /dev/zero >&2"
        ended_program = subprocess.Popen(
            [CUVMM, "run", "--sim=memory=16M", "--trace", self.path("t"), "--", "bash", "-c", fill],
            stderr=into, stdin=subprocess.DEVNULL)
        os.close(into)
        self.addCleanup(ended_program.kill)
        self.assertTrue(wait_until(lambda: not children_of(ended_program.pid) and has_filled(out)))
        ended_program.terminate()
        self.assertEqual(ended_program.wait(timeout=60), -signal.SIGTERM)

    def test_a_program_ends_with_a_command_that_is_killed(self):
        self.assert_ends_with_its_command()

    def test_it_does_so_even_if_its_command_is_killed_before_it_begins(self):
        slow = os.path.join(os.path.dirname(CUVMM), "../tests/programs/libcuvmm_slow_prctl.so")
        self.assert_ends_with_its_command(LD_PRELOAD=os.path.abspath(slow))

    def assert_ends_with_its_command(self, **environment):
        killed = subprocess.Popen([CUVMM, "run", "--sim", "--trace", self.path("t"), "--", "sleep", "600"],
                                  env={**os.environ, **environment})
        self.addCleanup(killed.wait)
        self.addCleanup(killed.kill)
        self.assertTrue(wait_until(lambda: children_of(killed.pid)))
        (program,) = children_of(killed.pid)
        killed.kill()
        self.assertTrue(wait_until(lambda: has_ended(program)))


class Options(CliTest):
    def test_a_misspelt_option_is_a_warning(self):
        misspelt = {"VMM_LIMT": "1G"}
        for words in (("config",), ("run", "--sim", "--", "true")):
            finished = cuvmm(*words, env=misspelt)
            self.assertEqual(finished.returncode, 0)
            self.assertIn("cuvmm: VMM_LIMT: cuvmm has no such option", text(finished.stderr))

    def test_values_of_config_stand_in_one_column(self):
        lines = self.good("config").splitlines()
        values = lines[0].index("VALUE")
        for line in lines[1:]:
            if line:
                self.assertEqual(line[values - 1], " ", line)
                self.assertNotEqual(line[values], " ", line)


class Numbers(CliTest):
    def refused(self, *words):
        finished = cuvmm(*words)
        self.assertEqual(finished.returncode, 2, words)
        self.assert_one_line(finished.stderr)
        return text(finished.stderr)

    def test_a_number_out_of_range_names_its_flag(self):
        for number in ("99999999999999999999", "0", "-1", "x"):
            self.assertIn(f"cuvmm: --top={number}: allowed: a number from 1",
                          self.refused("stats", f"--top={number}", "run.trace"))
        self.assertIn("--top=5", self.refused("stats", "--top", "5", "run.trace"))
        self.assertIn("--nonsense: not expected", self.refused("stats", "--nonsense", "run.trace"))
        self.assertIn("--web=9558", self.refused("top", "--web", "9558"))
        self.assertIn("cuvmm: --web=abc: allowed", self.refused("top", "--web=abc"))


class Help(CliTest):
    def test_shows_values_whole(self):
        self.assertIn("--spill off|host|peer|auto[:SIZE]", self.good("run", "--help"))
        self.assertIn("auto[:SIZE]", self.good("generate", "man-run"))

    def test_shows_no_notes_of_the_parser(self):
        for command in self.good("generate", "commands").split():
            shown = self.good(command, "--help")
            for note in ("(1x)", "{10}", " in [", "Excludes:", "Needs:"):
                self.assertNotIn(note, shown, command)

    def test_names_what_was_not_expected_and_what_is_close(self):
        for words, said in ((("pse",), "pse: there is no such command (did you mean pause?)"),
                            (("xyzzy",), "xyzzy: there is no such command; `cuvmm --help` lists the commands\n"),
                            (("foo",), "foo: there is no such command; `cuvmm --help` lists the commands\n"),
                            (("--sim", "run", "--", "true"), "--sim: not expected before the command; see `cuvmm run --help`\n"),
                            (("run", "--limit", "1G", "--limit", "2G", "--", "true"), "--limit: may be given once; see `cuvmm run --help`\n"),
                            (("run",), "command is required; see `cuvmm run --help`\n"),
                            ((), "a command is required; `cuvmm --help` lists the commands\n"),
                            (("config", "more"), "more: not expected; `cuvmm config --help`"),
                            (("top", "--sotr", "live"), "--sotr: not expected (did you mean --sort?)"),
                            (("run", "--simm", "--", "true"),
                             "--simm: not expected (did you mean --sim?); `cuvmm run --help`")):
            finished = cuvmm(*words)
            self.assertEqual(finished.returncode, 2)
            self.assert_one_line(finished.stderr)
            self.assertTrue(text(finished.stderr).startswith("cuvmm: " + said), text(finished.stderr))

    def test_help_is_a_command_too(self):
        self.assertEqual(self.good("help"), self.good("--help"))
        self.assertEqual(self.good("help", "pause"), self.good("pause", "--help"))

    def test_usage_errors_begin_with_the_programs_name(self):
        for words in ((), ("nonsense",), ("stats",), ("run", "--nonsense", "--", "true")):
            finished = cuvmm(*words)
            self.assertEqual(finished.returncode, 2)
            self.assertTrue(text(finished.stderr).startswith("cuvmm: "), text(finished.stderr))

    def test_after_two_dashes_a_name_may_begin_with_one(self):
        for words in (("stats",), ("export", "--format", "csv", "-o", "-"), ("advise",)):
            finished = cuvmm(*words, "--", "-none.trace")
            self.assertEqual(finished.returncode, 1, words)
            self.assertIn("-none.trace: open trace: No such file", text(finished.stderr))
        self.assertIn("--format is required", text(cuvmm("export", "-o", "-", "--", "-none.trace").stderr))


class Output(CliTest):
    def test_a_full_disk_is_an_error(self):
        for words in (("config",), ("run", "--help"), ("--version",)):
            with open("/dev/full", "wb") as full:
                finished = subprocess.run([CUVMM, *words], stdout=full, stderr=subprocess.PIPE,
                                          timeout=60, check=False)
            self.assertEqual(finished.returncode, 1, words)
            self.assertRegex(text(finished.stderr), "standard output: (No space left|not all output could be written)")

    def test_metrics_on_a_full_disk_say_which_output(self):
        with tempfile.TemporaryDirectory(prefix="cuvmm-rt-") as runtime, open("/dev/full", "wb") as full:
            finished = subprocess.run([CUVMM, "metrics"], stdout=full, stderr=subprocess.PIPE, timeout=60,
                                      check=False, env=dict(os.environ, XDG_RUNTIME_DIR=runtime))
        self.assertEqual(text(finished.stderr), "cuvmm: standard output: No space left on device\n")
        self.assertEqual(finished.returncode, 1)

    def test_a_program_runs_even_if_nothing_can_be_said(self):
        """On a full disk, or without a standard error, every message fails to be written."""
        full = '"$@" 2>/dev/full'
        closed = '"$@" 2>&-'
        trace = self.path("%p.trace")
        for shell in (full, closed):
            for words, status in ((("run", "--", "sh", "-c", "exit 42"), 42),
                                  (("run", "--sim=memory=64M", "--trace", trace, "--", FRAG, "--block", "1M"), 0),
                                  (("run", "--sim", "--", "/nowhere/to/be/found"), 127),
                                  (("run", "--sim", "--", os.path.dirname(FRAG)), 126),
                                  (("run", "--no-such-flag"), 2)):
                finished = subprocess.run(["sh", "-c", shell, "sh", CUVMM, *words], timeout=120, check=False,
                                          stdout=subprocess.PIPE, env=dict(os.environ, VMM_NO_SUCH="1"))
                self.assertEqual(finished.returncode, status, (shell, words, finished.stdout))

    def test_values_that_are_not_utf8_are_shown_as_valid_json(self):
        finished = subprocess.run([CUVMM, "config", "--json"], timeout=60, check=False, capture_output=True,
                                  env={**os.environb, b"VMM_NAME": b"x\xff"})
        self.assertEqual(finished.returncode, 0, finished.stderr)
        shown = {one["name"]: one["value"] for one in json.loads(finished.stdout)["options"]}
        self.assertEqual(shown["VMM_NAME"], "x\ufffd")


class Frameworks(CliTest):
    def said(self, **variables):
        finished = cuvmm("run", "--sim", "--frameworks", "--", "true", env=variables,
                         without=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
        self.assertEqual(finished.returncode, 0)
        return text(finished.stderr)

    def test_reports_its_settings_and_their_effect_on_torchs_tools(self):
        said = self.said()
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync", said)
        self.assertIn("_record_memory_history() do not work", said)
        self.assertIn("_record_memory_history()", self.good("run", "--help"))

    def test_keeps_expandable_segments_and_explains_the_effect(self):
        finished = cuvmm("run", "--sim", "--frameworks", "--", "sh", "-c",
                         "echo $PYTORCH_CUDA_ALLOC_CONF",
                         env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        self.assertEqual(text(finished.stdout), "expandable_segments:True\n")
        self.assertIn("kept PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                      text(finished.stderr))
        self.assertIn("limits, spills and pauses but does not compact", text(finished.stderr))


class Config(CliTest):
    def shown(self, *words, **variables):
        finished = cuvmm("config", *words, env=variables,
                         without=[name for name in os.environ if name.startswith("VMM_")])
        self.assertEqual(finished.returncode, 0)
        return text(finished.stdout).splitlines()

    def test_changed_options_come_first(self):
        lines = self.shown(VMM_GROW="tight", VMM_LIMIT="4G")
        self.assertTrue(lines[1].startswith("VMM_LIMIT"), lines[1])
        self.assertTrue(lines[2].startswith("VMM_GROW"), lines[2])
        self.assertEqual(lines[3], "")
        self.assertTrue(lines[4].startswith("VMM_MODE"), lines[4])

    def test_options_of_the_simulated_driver_are_shown_on_request(self):
        self.assertNotIn("VMM_SIM_", "\n".join(self.shown()))
        self.assertIn("VMM_SIM_MEMORY", "\n".join(self.shown("--sim")))
        self.assertIn("VMM_SIM_MEMORY", "\n".join(self.shown(VMM_SIM_MEMORY="1G")))


if __name__ == "__main__":
    main()
