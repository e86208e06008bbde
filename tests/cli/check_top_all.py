# SPDX-License-Identifier: Apache-2.0
"""`cuvmm top --all`: what root sees of other users' processes and of containers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from cli_support import BUILD, CUVMM, cuvmm, main, text
from top_support import HOLDER, TopTest

MiB = 1 << 20
NOBODY = 65534
# Becomes another user once everything that only root can read is loaded.
BECOME_NOBODY = f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
NOBODYS_HOLDER = HOLDER.replace("def must", BECOME_NOBODY + "def must", 1)

# Publishes a copy of another process's figures file as its own, then becomes another user. The
# file still belongs to root.
IMPOSTOR = """
import mmap, os, struct, sys
content = bytearray(open(sys.argv[1], "rb").read())
struct.pack_into("<i", content, 12, os.getpid())
path = os.path.join(sys.argv[2], f"figures-{os.getpid()}-1")
with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
    file.write(content)
    file.flush()
    mapping = mmap.mmap(file.fileno(), len(content))
""" + BECOME_NOBODY + """
print("published", flush=True)
sys.stdin.read()
"""


def can_look_everywhere():
    """Whether this process may open the files that others have mapped."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            line = next(line for line in maps if "/" in line)
        os.close(os.open("/proc/self/map_files/" + line.split()[0], os.O_RDONLY))
    except OSError:
        return False
    return True


@unittest.skipUnless(can_look_everywhere(), "needs root with CAP_SYS_ADMIN")
class OthersProcesses(TopTest):
    def nobodys_folder(self):
        folder = os.path.join(self.runtime, "nobody")
        os.mkdir(folder, 0o700)
        os.chown(folder, NOBODY, NOBODY)
        os.chmod(self.runtime, 0o711)
        return folder

    def nobodys_holder(self, sizes):
        self.others = self.nobodys_folder()
        return self.holder(sizes, source=NOBODYS_HOLDER, XDG_RUNTIME_DIR=self.others)

    def test_another_users_process_is_listed_with_its_memory(self):
        mine, other = self.holder([16]), self.nobodys_holder([32])
        self.assertEqual(set(self.seen()), {mine.number})
        all_of_them = self.seen("--all")
        self.assertLessEqual({mine.number, other.number}, set(all_of_them))
        one = all_of_them[other.number]
        self.assertEqual(one["live_bytes"], 32 * MiB)
        self.assertTrue(one["answers"])
        self.assertEqual(one["user"], "nobody")
        self.assertIsNone(one["container"])
        other.do("must(cuda.cuMemFree_v2(held.pop()))")
        self.assertEqual(self.seen("--all")[other.number]["live_bytes"], 0)

    def test_a_users_column_appears_if_it_says_something(self):
        mine, other = self.holder([16]), self.nobodys_holder([32])
        table = self.good("top", "-1", env=self.env)
        self.assertNotIn("USER", table)
        table = self.good("top", "-1", "--all", env=self.env)
        self.assertRegex(table.splitlines()[0], "^PROCESS +USER ")
        self.assertRegex(table, rf"(?m)^ *{other.number} +nobody ")
        self.assertRegex(table, rf"(?m)^ *{mine.number} +root ")

    def test_a_process_number_is_enough(self):
        other = self.nobodys_holder([32])
        self.assertEqual(set(self.seen(other.number)), {other.number})

    def test_a_process_is_listed_once(self):
        mine = self.holder([16])
        finished = cuvmm("top", "--all", "--json", env=self.env)
        numbers = [one["process"] for one in json.loads(finished.stdout)["processes"]]
        self.assertEqual(numbers.count(mine.number), 1)

    def test_a_killed_process_disappears_and_its_file_stays(self):
        other = self.nobodys_holder([1])
        self.assertIn(other.number, self.seen("--all"))
        os.kill(other.number, signal.SIGKILL)
        other.process.wait(timeout=60)
        self.assertNotIn(other.number, self.seen("--all"))
        self.assertEqual(len(os.listdir(os.path.join(self.others, "cuvmm"))), 1)

    def test_a_truncated_file_is_reported(self):
        other = self.nobodys_holder([1])
        folder = os.path.join(self.others, "cuvmm")
        os.truncate(os.path.join(folder, os.listdir(folder)[0]), 100)
        finished = cuvmm("top", "--all", "--json", env=self.env)
        all_of_it = json.loads(finished.stdout)
        self.assertNotIn(other.number, [one["process"] for one in all_of_it["processes"]])
        self.assertIn(f"/proc/{other.number}/map_files/", " ".join(all_of_it["problems"]))

    def test_a_file_of_another_user_than_the_process_is_not_trusted(self):
        self.holder([16])
        original = os.path.join(self.folder, self.files()[0])
        published = os.path.join(self.runtime, "impostor")
        os.mkdir(published, 0o700)
        impostor = subprocess.Popen([sys.executable, "-c", IMPOSTOR, original, published],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(impostor.stdout.readline(), "published\n")
            all_of_it = json.loads(cuvmm("top", "--all", "--json", env=self.env).stdout)
        finally:
            impostor.communicate(timeout=60)
        self.assertNotIn(impostor.pid, [one["process"] for one in all_of_it["processes"]])
        self.assertIn("not its user's alone", " ".join(all_of_it["problems"]))

    @unittest.skipUnless(shutil.which("setpriv"), "needs setpriv")
    def test_another_user_than_root_is_refused(self):
        finished = subprocess.run(
            ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", CUVMM, "top",
             "--all"], env=dict(os.environ, **self.env), capture_output=True, timeout=60,
            check=False)
        if b"setpriv" in finished.stderr:
            self.skipTest("nobody cannot reach the build")
        self.assertEqual(finished.returncode, 1)
        self.assertIn("only to root", text(finished.stderr))


@unittest.skipUnless(can_look_everywhere(), "needs root with CAP_SYS_ADMIN")
class Containers(TopTest):
    def join_container(self, holder, name):
        """Moves the process to a cgroup as Docker names it."""
        base = next((place for place in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")
                     if os.path.exists(place + "/cgroup.procs")), None)
        if base is None:
            self.skipTest("there are no cgroups")
        parent = os.path.join(base, "docker")
        cgroup = os.path.join(parent, name)
        try:
            os.makedirs(cgroup, exist_ok=True)
            with open(cgroup + "/cgroup.procs", "w", encoding="utf-8") as file:
                file.write(str(holder.number))
        except OSError as error:
            self.skipTest(f"cgroups cannot be changed: {error}")

        def leave():
            holder.end()
            for folder in (cgroup, parent):
                try:
                    os.rmdir(folder)
                except OSError:  # others use it
                    pass
        self.addCleanup(leave)

    def test_processes_can_be_listed_by_container(self):
        first, second, outside = "ab" * 32, "cd" * 32, None
        holders = {name: self.holder([size]) for name, size in
                   ((second, 64), (first, 8), (outside, 128))}
        for name in (first, second):
            self.join_container(holders[name], name)
        numbers = {name: holder.number for name, holder in holders.items()}
        one = self.seen("--container", "abab")
        self.assertEqual(set(one), {numbers[first]})
        self.assertEqual(one[numbers[first]]["container"], {"id": first, "pod": None})
        self.assertEqual(self.seen("--container", "ef"), {})
        table = self.good("top", "-1", "--sort", "container", env=self.env).splitlines()
        self.assertRegex(table[0], "^PROCESS +CONTAINER ")
        self.assertEqual([line.split()[:2] for line in table[1:]],
                         [[str(numbers[first]), first[:12]], [str(numbers[second]), second[:12]],
                          [str(numbers[outside]), "-"]])

    @unittest.skipUnless(shutil.which("unshare"), "needs unshare")
    def test_a_process_with_its_own_tmp_and_numbers_is_listed_by_the_hosts(self):
        script = 'mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp && exec "$@"'
        launcher = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                    "bash", "-c", script, "bash"]
        probe = subprocess.run([*launcher, "true"], capture_output=True, timeout=60, check=False)
        if probe.returncode != 0:
            self.skipTest(text(probe.stderr))
        if os.path.realpath(BUILD).startswith("/tmp/"):
            self.skipTest("the build is in /tmp, which such a process does not see")
        inside = self.holder([24], launcher=launcher, XDG_RUNTIME_DIR="/tmp")
        self.assertLess(inside.number, 100)
        self.assertEqual(self.seen(), {})
        until = time.monotonic() + 60
        while not (found := [number for number, one in self.seen("--all").items()
                             if one["live_bytes"] == 24 * MiB and one["answers"]]):
            self.assertLess(time.monotonic(), until)
        (outside,) = found
        with open(f"/proc/{outside}/cmdline", "rb") as file:
            self.assertIn(b"libcuda.so.1", file.read())


if __name__ == "__main__":
    main()
