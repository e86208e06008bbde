# SPDX-License-Identifier: Apache-2.0
"""`cuvmm top` on a terminal: updates, obeys keys, keeps to the width, restores the terminal."""

import fcntl
import glob
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from cli_support import CUVMM, main, text
from top_support import TopTest


class Terminal:
    """`cuvmm top` on a terminal of the given size, and its output."""

    def __init__(self, env, columns, lines, *words, **more):
        self.number, self.descriptor = pty.fork()
        if self.number == 0:
            self.resize(columns, lines, 0)
            os.environ.update({**env, "TERM": "xterm", "LC_ALL": "C.UTF-8", **more})
            os.execv(CUVMM, ["cuvmm", "top", *words])
        self.output = b""

    def resize(self, columns, lines, descriptor=None):
        fcntl.ioctl(self.descriptor if descriptor is None else descriptor, termios.TIOCSWINSZ,
                    struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.descriptor], [], [], left)[0]:
                break
            try:
                data = os.read(self.descriptor, 65536)
            except OSError:
                break
            if not data:
                break
            self.output += data

    def wait_for(self, pattern, seconds=60):
        """Returns the latest complete screen that matches the pattern, once there is one."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read(0.1)
            for lines in reversed(self.pictures()):
                if re.search(pattern, "\n".join(lines)):
                    return lines
        raise AssertionError(f"{pattern} is in none of {self.pictures()[-3:]}")

    def pictures(self):
        parts = self.output.split(b"\033[H")[1:]
        return [[re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", line) for line in
                 re.split("\r+\n", text(part.split(b"\033[J")[0]))]
                for part in parts if b"\033[J" in part]

    def press(self, keys):
        os.write(self.descriptor, keys.encode())

    def end(self):
        """Returns the exit status. Fails if top does not exit in time."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.read(0.05)
            number, status = os.waitpid(self.number, os.WNOHANG)
            if number:
                self.read(0.05)
                os.close(self.descriptor)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.number, signal.SIGKILL)
        raise AssertionError("it does not end")


class Node(TopTest):
    """The clients of a node service, which have more columns than a narrow terminal."""

    def setUp(self):
        super().setUp()
        self.card = f"--sim=card=top-{os.getpid()}"
        self.addCleanup(self.remove_card)
        self.env["VMM_NODE_SOCKET"] = os.path.join(self.runtime, "cuvmmd.sock")
        service = subprocess.Popen(
            [os.path.join(os.path.dirname(CUVMM), "cuvmmd"), "--socket", self.env["VMM_NODE_SOCKET"],
             self.card, "--sim=memory=256M", "--log-level", "error"])
        self.addCleanup(service.wait)
        self.addCleanup(service.terminate)
        until = time.monotonic() + 60
        while not os.path.exists(self.env["VMM_NODE_SOCKET"]) and time.monotonic() < until:
            time.sleep(0.01)

    def remove_card(self):
        for name in glob.glob(f"/dev/shm/cuvmm-sim-card-*-top-{os.getpid()}"):
            os.unlink(name)

    def client(self, *sizes, name):
        return self.holder(sizes, self.card, "--node", "require", "--name", name)

    def heading(self, columns):
        terminal = Terminal(self.env, columns, 20, "--interval", "100ms")
        lines = terminal.wait_for("CLIENT +.*\n.*first of all")
        terminal.press("q")
        self.assertEqual(terminal.end(), 0)
        return next(line.split() for line in lines if line.startswith("CLIENT"))

    def test_a_narrow_terminal_drops_the_terms_of_clients_first(self):
        self.client(32, name="first of all clients")
        wide = self.heading(200)
        self.assertEqual(wide[-6:], ["GUARANTEE", "LIMIT", "WEIGHT", "PRIORITY", "WAITS", "FOR"])
        self.assertEqual(self.heading(98), wide[:-4] + wide[-3:])
        self.assertEqual(self.heading(80), wide[:5] + ["LIMIT", "WAITS", "FOR"])
        self.assertEqual(self.heading(66), wide[:5] + ["WAITS", "FOR"])

    def test_shows_who_is_paused_for_another(self):
        first = self.client(160, name="first of all clients")
        second = self.client(1, name="second")
        second.process.stdin.write("large = allocate(160 << 20)\n")
        second.process.stdin.flush()
        terminal = Terminal(self.env, 100, 20, "--interval", "100ms")
        terminal.wait_for("first of all cli +[0-9]+ paused ")
        terminal.press("q")
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(second.process.stdout.readline(), "done\n")
        second.end()
        first.do("pass")


class Live(TopTest):
    def test_updates_until_a_key_quits(self):
        holder = self.holder([32])
        terminal = Terminal(self.env, 120, 20, "--interval", "100ms")
        terminal.wait_for(rf"{holder.number} +0 +32\.0 MiB")
        holder.do("more = allocate(16 << 20)")
        lines = terminal.wait_for(rf"{holder.number} +0 +48\.0 MiB")
        self.assertIn("1 process holds", lines[0])
        self.assertIn("by physical", lines[0])
        terminal.wait_for("[▁▂▃▄▅▆▇█]{3}")
        holder.end()
        terminal.wait_for("no process runs under cuvmm")
        terminal.press("q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.output.startswith(b"\033[?1049h"))
        self.assertTrue(terminal.output.rstrip().endswith(b"\033[?1049l"))

    def test_keys_change_the_order(self):
        small, large = self.holder([2]).number, self.holder([64]).number
        terminal = Terminal(self.env, 100, 20, "--interval", "10s")
        terminal.wait_for(rf"(?s){large} .*\n *{small} ")
        terminal.press("r")
        terminal.wait_for(rf"(?s){small} .*\n *{large} ")
        terminal.press("rn")
        terminal.wait_for("by process")
        terminal.press("\033[A")
        terminal.press("-")
        terminal.wait_for("every 5 s")
        terminal.press("q")
        self.assertEqual(terminal.end(), 0)

    def test_no_line_is_wider_than_the_terminal(self):
        self.holder([32])
        for columns in (200, 80, 60, 40, 24, 10):
            terminal = Terminal(self.env, columns, 12, "--interval", "100ms")
            lines = terminal.wait_for("PROCESS")
            terminal.resize(columns - 2, 5)
            terminal.read(0.3)
            until = time.monotonic() + 60
            while len(terminal.pictures()[-1]) > 5 and time.monotonic() < until:
                terminal.read(0.1)
            terminal.press("q")
            self.assertEqual(terminal.end(), 0)
            # The first lines are prose; the table keeps to the width.
            self.assertLessEqual(max(len(line) for line in lines[1:3]), columns)
            self.assertLessEqual(len(terminal.pictures()[-1]), 5)

    def test_signals_restore_the_terminal(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            terminal = Terminal(self.env, 80, 12, "--interval", "10s")
            terminal.wait_for("no process")
            before = termios.tcgetattr(terminal.descriptor)
            self.assertFalse(before[3] & termios.ICANON)
            os.kill(terminal.number, number)
            self.assertEqual(terminal.end(), 0)
            self.assertTrue(terminal.output.rstrip().endswith(b"\033[?1049l"))

    def test_uses_only_colours_and_characters_of_the_terminal(self):
        self.holder([32])
        plain = Terminal(self.env, 120, 12, "--interval", "100ms", NO_COLOR="1", LC_ALL="C")
        plain.wait_for("[#*]{3}")
        plain.press("q")
        self.assertEqual(plain.end(), 0)
        self.assertNotIn(b"\033[1m", plain.output)
        self.assertNotIn("█", text(plain.output))

    def test_a_dumb_terminal_gets_a_single_listing(self):
        terminal = Terminal(self.env, 80, 12, TERM="dumb")
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(text(terminal.output).strip(), "no process runs under cuvmm")


if __name__ == "__main__":
    main()
