# SPDX-License-Identifier: Apache-2.0
"""`cuvmm top`: the figures of processes under cuvmm, which processes it lists, and for how long."""

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from cli_support import BUILD, CUVMM, cuvmm, main, text
from top_support import HOLDER, TopTest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(os.path.abspath(BUILD), "lib", "libcuvmm.so")
MiB = 1 << 20
# Offsets in the file: of all after the publisher's magic, version, process and namespace, and of
# the answer, which begins with the checksum of its rest.
KEPT_OF_PUBLISHER = 24
ANSWER = 408


def crc32c(data):
    checksum = 0xffffffff
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82f63b78 if checksum & 1 else 0)
    return checksum ^ 0xffffffff


class Figures(TopTest):
    def test_lists_a_process_with_its_memory(self):
        holder = self.holder([32, 16], "--limit", "128M")
        one = self.seen()[holder.number]
        self.assertEqual(one["live_bytes"], 48 * MiB)
        self.assertEqual(one["limit_bytes"], 128 * MiB)
        self.assertGreaterEqual(one["physical_bytes"], 48 * MiB)
        self.assertEqual(one["spilled_bytes"], 0)
        self.assertTrue(one["answers"])
        self.assertEqual(one["mode"], "VMM")
        self.assertIn("python", one["command"])
        self.assertEqual(one["devices"][0]["device_bytes"], 256 * MiB)
        self.assertEqual(one["devices"][0]["live_bytes"], 48 * MiB)

    def test_can_list_a_single_device(self):
        both = self.holder([16], VMM_SIM_DEVICES="2")
        first = self.holder([16])
        both.do("second = ctypes.c_void_p(); must(cuda.cuCtxCreate_v2(ctypes.byref(second), 0, 1)); "
                "held.append(allocate(32 << 20))")
        self.assertEqual(set(self.seen()), {both.number, first.number})
        self.assertEqual(self.seen()[both.number]["live_bytes"], 48 * MiB)
        on_second = self.seen("--gpu", 1)
        self.assertEqual(set(on_second), {both.number})
        self.assertEqual(on_second[both.number]["live_bytes"], 32 * MiB)
        table = text(cuvmm("top", "-1", env=self.env).stdout)
        self.assertRegex(table.splitlines()[0], r"^PROCESS +GPU ")
        self.assertRegex(table, rf"(?m)^ *{both.number} +0,1 ")
        self.assertRegex(table, rf"(?m)^ *{first.number} +0 ")

    def test_can_list_processes_by_id(self):
        one, other = self.holder([8]), self.holder([8])
        self.assertEqual(set(self.seen(one.number)), {one.number})
        self.assertEqual(set(self.seen(one.number, other.number)), {one.number, other.number})
        missing = cuvmm("top", "-1", 99999999, env=self.env)
        self.assertEqual(missing.returncode, 1)
        self.assertEqual(text(missing.stderr), "cuvmm: 99999999: no such process\n")
        self.assertEqual(text(missing.stdout), "")
        missing = cuvmm("top", "-1", os.getpid(), env=self.env)
        self.assertRegex(text(missing.stderr), f"{os.getpid()}: no process (of this user )?that runs under")
        self.assertIn("no process matches", self.good("top", "-1", "--gpu", 7, env=self.env))

    def test_the_id_of_a_launcher_means_its_programs(self):
        one, _ = self.holder([8], "--trace", self.path("one.trace")), self.holder([8])
        self.assertNotEqual(one.process.pid, one.number)
        self.assertEqual(set(self.seen(one.process.pid)), {one.number})

    def test_figures_follow_the_program(self):
        holder = self.holder([32, 32])
        before = self.seen()[holder.number]
        self.assertGreater(before["utilisation"], 0.9)
        holder.do("must(cuda.cuMemFree_v2(held.pop()))")
        after = self.seen()[holder.number]
        self.assertEqual(after["live_bytes"], 32 * MiB)
        self.assertEqual(after["cached_bytes"] + 32 * MiB, after["physical_bytes"])
        self.assertLess(after["utilisation"], before["utilisation"])
        self.assertIsNone(after["limit_bytes"])

    def test_chunks_that_the_program_creates_are_counted(self):
        holder = self.holder([16], "--limit", "64M", "--spill", "host")
        for mib in (32, 48):  # the second does not fit beside the first
            holder.do(f"chunk = ctypes.c_uint64(); must(cuda.cuMemCreate(ctypes.byref(chunk), "
                      f"ctypes.c_size_t({mib} << 20), __import__('struct').pack('4i16x', 1, 0, 1, 0), "
                      f"ctypes.c_uint64(0)))")
            seen = self.seen()[holder.number]
            self.assertEqual(seen["live_bytes"], (48 if mib == 32 else 96) * MiB)
            self.assertGreaterEqual(seen["physical_bytes"], 48 * MiB)
            self.assertLessEqual(seen["physical_bytes"], 64 * MiB)
        self.assertGreaterEqual(seen["spilled_bytes"], 32 * MiB)

    def test_counts_moves(self):
        holder = self.holder([1] * 60, "--limit", "64M")
        self.assertEqual(self.seen()[holder.number]["moves"], 0)
        holder.do("[must(cuda.cuMemFree_v2(one)) for one in held[::2]]")
        holder.do("large = allocate(24 << 20)")
        after = self.seen()[holder.number]
        self.assertGreater(after["moves"], 0)
        self.assertGreater(after["moved_bytes"], 0)

    def test_reports_spilled_memory(self):
        holder = self.holder([64, 64], "--limit", "64M", "--spill", "host")
        one = self.seen()[holder.number]
        self.assertGreaterEqual(one["spilled_bytes"], 60 * MiB)
        self.assertLessEqual(one["physical_bytes"], 64 * MiB)

    def test_reports_memory_that_a_partial_resume_left_on_the_host(self):
        card = f"top-{os.getpid()}"
        self.addCleanup(os.unlink, f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{card}")
        first = self.holder([40] * 4, f"--sim=card={card}", "--control")
        self.good("pause", str(first.number), env=self.env)
        self.holder([160], f"--sim=card={card}")
        self.good("resume", "--partly", str(first.number), env=self.env)
        one = self.seen()[first.number]
        self.assertLess(one["physical_bytes"], 96 * MiB)
        self.assertGreaterEqual(one["physical_bytes"] + one["spilled_bytes"], 160 * MiB)

    def test_pools_and_buffers_of_the_library_are_live(self):
        holder = self.holder([], PYTHONPATH=os.path.join(ROOT, "python"), CUVMM_LIBRARY=LIBRARY)
        holder.do("import cuvmm; pool = cuvmm.ElasticPool(64 << 20); part = pool.allocate(24 << 20)")
        self.assertEqual(self.seen()[holder.number]["live_bytes"], 24 * MiB)
        self.assertEqual(self.seen()[holder.number]["utilisation"], 1)
        holder.do("buffer = cuvmm.ResizableBuffer(64 << 20); buffer.resize(16 << 20)")
        self.assertEqual(self.seen()[holder.number]["live_bytes"], 40 * MiB)
        holder.do("pool.deallocate(part); buffer.resize(8 << 20)")
        self.assertEqual(self.seen()[holder.number]["live_bytes"], 8 * MiB)
        holder.do("pool.allocate(4 << 20); pool.close(); buffer.close()")
        self.assertEqual(self.seen()[holder.number]["live_bytes"], 0)

    def test_monitored_memory_is_not_counted(self):
        holder = self.holder([8], "--mode", "monitor")
        one = self.seen()[holder.number]
        self.assertEqual(one["mode"], "MONITOR")
        self.assertTrue(one["answers"])
        for key in ("live_bytes", "physical_bytes", "utilisation", "limit_bytes"):
            self.assertIsNone(one[key])

    def test_a_forked_child_does_not_answer_for_its_parent(self):
        holder = self.holder([16])
        child = int(holder.do(
            "child = os.fork(); "
            "r = child or [cuda.cuInit(0), __import__('time').sleep(60)]; print(child)"))
        self.addCleanup(os.kill, child, signal.SIGKILL)
        seen = self.seen()
        self.assertNotIn(child, seen, "it has no context")
        self.assertEqual(seen[holder.number]["live_bytes"], 16 * MiB)


class WhoIsSeen(TopTest):
    def test_only_the_user_can_access_the_files(self):
        self.holder([1])
        self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o700)
        (name,) = self.files()
        self.assertEqual(os.stat(os.path.join(self.folder, name)).st_mode & 0o777, 0o600)

    def test_a_process_that_exits_removes_its_file(self):
        self.holder([1]).end()
        self.assertEqual(self.files(), [])
        self.assertEqual(self.seen(), {})

    def test_top_removes_the_file_of_a_killed_process(self):
        holder = self.holder([1])
        os.kill(holder.number, signal.SIGKILL)
        holder.process.wait(timeout=60)
        self.assertEqual(len(self.files()), 1)
        self.assertEqual(self.seen(), {})
        self.assertEqual(self.files(), [])

    def test_a_new_process_removes_the_files_of_killed_ones(self):
        for _ in range(2):
            holder = self.holder([1])
            os.kill(holder.number, signal.SIGKILL)
            holder.process.wait(timeout=60)
        last = self.holder([1])
        (name,) = self.files()
        self.assertIn(f"figures-{last.number}-", name)

    def test_the_option_bounds_cached_memory(self):
        holder = self.holder([32, 32], VMM_CACHE="8M")
        holder.do("[must(cuda.cuMemFree_v2(one)) for one in held]")
        one = self.seen()[holder.number]
        self.assertEqual(one["live_bytes"], 0)
        self.assertLessEqual(one["physical_bytes"], 8 * MiB)

    def test_a_process_that_executes_another_program_is_no_longer_listed(self):
        holder = self.holder([1])
        holder.process.stdin.write("os.execvp('sleep', ['sleep', '60'])\n")
        holder.process.stdin.flush()
        self.addCleanup(os.kill, holder.number, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while self.seen() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.seen(), {})
        self.assertEqual(self.files(), [])

    def test_a_process_that_never_answered_says_so(self):
        holder = self.holder([16])
        holder.stop()
        try:
            self.assertIn("(does not answer)", self.good("top", "-1", env=self.env))
        finally:
            holder.go_on()

    def test_a_stopped_process_is_listed_with_its_last_figures(self):
        holder = self.holder([16])
        self.seen()
        holder.stop()
        try:
            one = self.seen()[holder.number]
            self.assertFalse(one["answers"])
            self.assertGreater(one["silent_us"], 0)
            self.assertEqual(one["live_bytes"], 16 * MiB)
            self.assertIn("(silent", self.good("top", "-1", env=self.env))
        finally:
            holder.go_on()
        self.assertTrue(self.seen()[holder.number]["answers"])

    def test_a_program_without_driver_calls_has_no_thread_and_no_file(self):
        finished = cuvmm("run", "--sim", "--", sys.executable, "-c",
                         "import os; print(len(os.listdir('/proc/self/task')))", env=self.env)
        self.assertEqual(text(finished.stdout), "1\n")
        self.assertEqual(self.files(), [])

    def test_a_process_recovers_from_running_out_of_descriptors(self):
        holder = self.holder([8])
        holder.do("import resource")
        holder.do("was = resource.getrlimit(resource.RLIMIT_NOFILE)")
        holder.do("resource.setrlimit(resource.RLIMIT_NOFILE, (0, was[1]))")
        cuvmm("top", "--json", env=self.env)  # it may not answer now
        holder.do("resource.setrlimit(resource.RLIMIT_NOFILE, was)")
        for _ in range(20):
            if self.seen()[holder.number]["answers"]:
                return
        self.fail("it does not answer any more")

    def test_publishing_can_be_disabled(self):
        for settings in ({"VMM_PUBLISH": "off"}, {"VMM_MODE": "OFF"}):
            self.holder([1], **settings)
            self.assertEqual(self.files(), [])

    def test_concurrent_readers_see_every_process(self):
        numbers = {self.holder([1]).number for _ in range(3)}
        until = time.monotonic() + 60
        while True:
            lookers = [subprocess.Popen([CUVMM, "top", "--json"], stdout=subprocess.PIPE,
                                        env=dict(os.environ, **self.env)) for _ in range(4)]
            looks = [json.loads(looker.communicate(timeout=60)[0])["processes"]
                     for looker in lookers]
            for seen in looks:
                self.assertEqual({one["process"] for one in seen}, numbers)
            # On a busy machine an answer may take longer than a look.
            if all(one["answers"] for seen in looks for one in seen):
                break
            self.assertLess(time.monotonic(), until)


class WhatIsWrong(TopTest):
    """Errors that stop neither the program nor the command."""

    def test_a_truncated_file_kills_no_process(self):
        holder = self.holder([16])
        (name,) = self.files()
        self.seen()
        os.truncate(os.path.join(self.folder, name), 0)
        self.assertEqual(self.seen(status=1), {})
        self.assertEqual(holder.do("print(len(held))"), "1\n")
        os.truncate(os.path.join(self.folder, name), 8192)
        self.seen(status=1)
        self.assertEqual(holder.do("print(len(held))"), "1\n")

    def test_a_process_survives_the_removal_of_its_file(self):
        holder = self.holder([16])
        os.unlink(os.path.join(self.folder, self.files()[0]))
        self.assertEqual(self.seen(), {})
        self.assertEqual(holder.do("print(len(held))"), "1\n")
        holder.end()
        self.assertEqual(holder.process.returncode, 0)

    def test_a_program_that_cannot_write_files_runs_unlisted(self):
        script = 'ulimit -f 0; exec "$@"'
        finished = subprocess.run(
            ["bash", "-c", script, "bash", CUVMM, "run", "--sim", "--", sys.executable, "-c",
             HOLDER, "1"], env=dict(os.environ, **self.env, VMM_SIM_BACKING="none"), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=60, check=False)
        self.assertEqual(text(finished.stderr), "")
        self.assertEqual(finished.returncode, 0)

    def test_foreign_files_are_reported_and_kept(self):
        holder = self.holder([1])
        space = 1  # another container's: top cannot tell whether they have exited
        def put(number, content, mode=0o600):
            path = os.path.join(self.folder, f"figures-{number}-{space}")
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)
            return path
        with open(os.path.join(self.folder, self.files()[0]), "rb") as file:
            good = file.read()
        put(1, b"")
        put(2, b"\xff" * 4096)
        put(3, good, mode=0o644)
        put(4, good[:8] + b"\x63\0\0\0" + good[12:])
        os.mkfifo(os.path.join(self.folder, f"figures-5-{space}"))
        os.symlink("/etc/passwd", os.path.join(self.folder, f"figures-6-{space}"))
        put("x", b"not looked at")
        finished = cuvmm("top", "--json", env=self.env)
        self.assertEqual(finished.returncode, 0)
        all_of_it = json.loads(finished.stdout)
        self.assertEqual([one["process"] for one in all_of_it["processes"]], [holder.number])
        self.assertEqual(len(all_of_it["problems"]), 6)
        self.assertIn("another version", " ".join(all_of_it["problems"]))
        self.assertEqual(len(text(finished.stderr).splitlines()), 6)
        self.assertEqual(len(self.files()), 8)

    def test_an_invalid_answer_is_not_shown(self):
        holder = self.holder([16])
        holder.stop()
        self.addCleanup(holder.go_on)
        path = os.path.join(self.folder, self.files()[0])
        with open(path, "r+b") as file:
            content = bytearray(file.read())
            content[400:] = b"\xa5" * (len(content) - 400)
            file.seek(0)
            file.write(content)
        one = self.seen()[holder.number]
        self.assertFalse(one["answers"])
        self.assertIsNone(one["live_bytes"])

    def test_malformed_figures_with_a_good_checksum_harm_nobody(self):
        holder = self.holder([16])
        self.seen()
        with open(os.path.join(self.folder, self.files()[0]), "rb") as file:
            good = file.read()
        seed = int(os.environ.get("CUVMM_TEST_SEED", "1"))
        mutate = random.Random(seed)
        malformed = 60
        for number in range(1, malformed + 1):
            content = bytearray(good)
            struct.pack_into("<iQ", content, 12, number, 1)  # its process is in another namespace
            for _ in range(mutate.choice([1, 4, 64, 2048])):
                at = mutate.randrange(KEPT_OF_PUBLISHER, len(content))
                content[at] = mutate.choice([0, 0x7f, 0xff, mutate.randrange(256)])
            if number == 1:
                content[KEPT_OF_PUBLISHER:] = b"\xff" * (len(content) - KEPT_OF_PUBLISHER)
            struct.pack_into("<I", content, ANSWER, crc32c(content[ANSWER + 4:]))
            path = os.path.join(self.folder, f"figures-{number}-1")
            with open(path, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
        for words in (("--json",), ("-1",), ("-1", "--sort", "used"), ("--json", "--gpu", "0")):
            finished = cuvmm("top", *words, env=self.env)
            self.assertEqual(finished.returncode, 0, f"seed {seed}: {text(finished.stderr)}")
            self.assertNotIn("\033", text(finished.stdout), f"seed {seed}")
        seen = json.loads(cuvmm("top", "--json", env=self.env).stdout)["processes"]
        self.assertEqual(len(seen), malformed + 1, f"seed {seed}")
        self.assertIn((holder.number, 16 * MiB),
                      [(one["process"], one["live_bytes"]) for one in seen])

    def test_a_folder_open_to_others_is_not_read(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        problems = json.loads(cuvmm("top", "--json", env=self.env).stdout)["problems"]
        self.assertIn("not this user's alone", problems[0])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_an_unreadable_folder_is_reported(self):
        os.mkdir(self.folder, 0o700)
        os.chown(self.folder, 65534, 65534)
        os.chmod(self.folder, 0o000)
        os.chmod(self.runtime, 0o755)
        finished = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", CUVMM, "top", "-1"],
            env=dict(os.environ, **self.env), capture_output=True, timeout=60, check=False)
        if b"Permission denied" in finished.stderr and b"setpriv" in finished.stderr:
            self.skipTest("the build is not to be reached by nobody")
        self.assertEqual(finished.returncode, 1)
        self.assertIn("Permission denied", text(finished.stderr))

    def test_control_characters_in_a_command_never_reach_the_terminal(self):
        environment = dict(os.environ, **self.env)
        process = subprocess.Popen(
            [CUVMM, "run", "--sim", "--", sys.executable, "-c", HOLDER.replace("sys.argv[1:]", "[]"),
             "\033[31mred\033]0;title\a \xc3 é"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        self.assertEqual(process.stdout.readline(), "holds\n")
        try:
            finished = cuvmm("top", "-1", env=self.env)
            self.assertNotIn(b"\033", finished.stdout)
            self.seen()
        finally:
            process.communicate(timeout=60)

    def test_wrong_usage(self):
        for words in (("--sort", "size"), ("--interval", "0"), ("--interval", "soon"), ("more",)):
            self.assertEqual(cuvmm("top", *words, env=self.env).returncode, 2)


class Shown(TopTest):
    def test_without_processes_prints_one_line(self):
        self.assertEqual(self.good("top", "-1", env=self.env), "no process runs under cuvmm\n")
        self.assertEqual(self.good("top", env=self.env), "no process runs under cuvmm\n")

    def test_sorts_as_requested(self):
        small, large = self.holder([2]).number, self.holder([64]).number
        self.seen()  # from now on the figures of both are known
        def order(*words):
            lines = self.good("top", "-1", *words, env=self.env).splitlines()
            self.assertTrue(lines[0].split()[0] == "PROCESS")
            return [int(line.split()[0]) for line in lines[1:]]
        self.assertEqual(order(), [large, small])
        self.assertEqual(order("-r"), [small, large])
        self.assertEqual(order("--sort", "process"), sorted([small, large]))


def packed(name):
    return bytes([len(name)]) + name.encode()


class StubService(threading.Thread):
    """Answers every observer with the same messages: each its kind and its fields."""

    def __init__(self, path, messages):
        super().__init__(daemon=True)
        self.messages = messages
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(path)
        self.socket.listen()

    def run(self):
        while True:
            observer, _ = self.socket.accept()
            with observer:
                observer.recv(4096)
                for kind, fields in self.messages:
                    observer.send(struct.pack("<4sHH", b"CVND", kind, 0) + fields)
                observer.recv(4096)  # until it has read them


class Reclaims(TopTest):
    UUID = b"u" * 16
    MOVE = (struct.pack("<QQ", 1_500_000, 1_500_000) + UUID + packed("server") + packed("trainer") +
            struct.pack("<BQQB", 2, 64 * MiB, 16 * MiB, 0))

    def shown(self, move):
        """How `cuvmm top` shows the service's only reclaim: its line, and its JSON."""
        path = os.path.join(tempfile.mkdtemp(dir=self.runtime), "node.sock")
        place = self.UUID + struct.pack("<BIQQQ", 0, 3, 128 * MiB, 128 * MiB, 0)
        client = (struct.pack("<QII", 1, 1, 1) + packed("server") + packed("") +
                  struct.pack("<Ii???", 1, 0, False, False, False))
        StubService(path, [(66, place), (67, client), (69, move), (70, bytes(8))]).start()
        env = dict(self.env, VMM_NODE_SOCKET=path)
        table = self.good("top", "-1", env=env)
        lines = [line for line in table.splitlines() if " s ago: " in line]
        moves = json.loads(self.good("top", "--json", env=env))["node"]["moves"]
        self.assertEqual((len(lines), len(moves)), (1, 1), table)
        return lines[0], moves[0]

    def test_are_in_progress_until_they_have_ended(self):
        line, move = self.shown(self.MOVE + b"\1")
        self.assertEqual(line, "1.5 s ago: server has given 16.0 MiB of 64.0 MiB on device 3 "
                               "(pause, in progress) for trainer")
        self.assertIsNone(move["outcome"])
        line, move = self.shown(self.MOVE + b"\0")
        self.assertEqual(line, "1.5 s ago: server gave 16.0 MiB of 64.0 MiB on device 3 "
                               "(pause, applied in 1500 ms) for trainer")
        self.assertEqual(move["outcome"], "applied")

    def test_of_an_older_service_are_shown(self):
        line, move = self.shown(self.MOVE)
        self.assertIn("applied in 1500 ms", line)
        self.assertEqual(move["outcome"], "applied")


if __name__ == "__main__":
    main()
