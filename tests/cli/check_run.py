# SPDX-License-Identifier: Apache-2.0
"""What `cuvmm run` is to the program, to its parent and to the shell: replaced by it, or around it."""

import ctypes
import os
import signal
import subprocess
import sys
import time

from cli_support import CUVMM, CliTest, main, text


def is_stopped(process):
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def wait_until(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("it took too long")
        time.sleep(0.01)


class RunTest(CliTest):
    def started(self, *words, prepare=lambda: None):
        """Starts a Python program in a process group of its own. Its first line of output is its PID."""
        def in_its_group():
            os.setpgrp()
            prepare()
        process = subprocess.Popen([CUVMM, "run", "--sim", *words], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=in_its_group)
        self.addCleanup(process.communicate)
        self.addCleanup(self.kill, process)
        return process, int(process.stdout.readline())

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def program(self, body):
        return ["--", sys.executable, "-c", f"import os, signal, sys, time\n{body}"]

    SAY_PID = "print(os.getpid(), flush=True)\n"
    COUNT = ("caught = []\n"
             "for one in {signals}:\n"
             "  signal.signal(one, lambda number, _: caught.append(number))\n" + SAY_PID +
             "until = time.monotonic() + 60\n"
             "while not caught and time.monotonic() < until: time.sleep(0.01)\n"
             "time.sleep(0.3)\n"
             "print(caught, flush=True)\n")


class Replaced(RunTest):
    """Nothing is to be done after the program: it takes the place of `cuvmm run`."""

    def test_the_program_is_the_process_that_was_started(self):
        for words in (["--quiet"], [], ["--quiet", "--trace", self.path("a.trace")]):
            process, number = self.started(*words, *self.program(self.SAY_PID))
            self.assertEqual(number, process.pid, words)
            self.assertEqual(process.wait(timeout=60), 0)

    def test_a_signal_to_the_group_arrives_once(self):
        process, _ = self.started("--quiet", *self.program(self.COUNT.format(signals="[2]")))
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(text(process.stdout.readline()), "[2]\n")

    def test_a_timer_of_the_caller_ends_the_program(self):
        process, _ = self.started("--quiet", *self.program(self.SAY_PID + "time.sleep(60)"),
                                  prepare=lambda: signal.setitimer(signal.ITIMER_REAL, 5))
        self.assertEqual(process.wait(timeout=40), -signal.SIGALRM)

    def test_what_cannot_be_executed_has_its_usual_status(self):
        for words, status in ((["./missing"], 127), (["/etc/passwd"], 126)):
            ended = subprocess.run([CUVMM, "run", "-q", "--sim", "--", *words],
                                   capture_output=True, check=False, timeout=60)
            self.assertEqual(ended.returncode, status)
            self.assertIn(words[0], text(ended.stderr))


class Around(RunTest):
    """With a summary to print, `cuvmm run` is the program's parent."""

    def around(self, body, **more):
        process, number = self.started("--trace", self.path("run.trace"), *self.program(body),
                                       **more)
        self.assertNotEqual(process.pid, number)
        return process, number

    def test_it_ends_by_the_programs_signal(self):
        for number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL):
            process, program = self.around(self.SAY_PID + "time.sleep(60)")
            os.kill(program, number)
            self.assertEqual(process.wait(timeout=60), -number)

    def test_an_exit_status_above_128_is_no_signal(self):
        process, _ = self.around(self.SAY_PID + "sys.exit(137)")
        self.assertEqual(process.wait(timeout=60), 137)

    def test_signals_to_it_reach_the_program_once(self):
        for number in (signal.SIGTERM, signal.SIGABRT, signal.SIGXCPU, signal.SIGRTMIN + 1):
            process, _ = self.around(self.COUNT.format(signals=[int(number)]))
            os.kill(process.pid, number)
            self.assertEqual(text(process.stdout.readline()), f"[{int(number)}]\n")
            self.assertEqual(process.wait(timeout=60), 0)

    def test_a_timer_of_the_caller_reaches_the_program(self):
        process, _ = self.around(self.COUNT.format(signals="[14]"),
                                 prepare=lambda: signal.setitimer(signal.ITIMER_REAL, 5))
        self.assertEqual(text(process.stdout.readline()), "[14]\n")

    def test_it_stops_and_continues_with_the_program(self):
        process, program = self.around(self.SAY_PID + "time.sleep(60)")
        os.kill(process.pid, signal.SIGTSTP)
        wait_until(lambda: is_stopped(process.pid) and is_stopped(program))
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: not is_stopped(process.pid) and not is_stopped(program))

    def test_the_value_of_a_queued_signal_is_handed_on(self):
        body = ("number = signal.SIGRTMIN + 3\n"
                "signal.pthread_sigmask(signal.SIG_BLOCK, [number])\n" + self.SAY_PID +
                "import ctypes\n"
                "info = ctypes.create_string_buffer(128)\n"
                "mask = ctypes.create_string_buffer(128)\n"
                "libc = ctypes.CDLL(None)\n"
                "libc.sigemptyset(mask); libc.sigaddset(mask, int(number))\n"
                "libc.sigwaitinfo(mask, info)\n"
                "print(int.from_bytes(info.raw[24:28], 'little'), flush=True)\n")
        process, _ = self.around(body)
        libc = ctypes.CDLL(None)
        libc.sigqueue(process.pid, int(signal.SIGRTMIN) + 3, ctypes.c_void_p(42))
        self.assertEqual(text(process.stdout.readline()), "42\n")


if __name__ == "__main__":
    main()
