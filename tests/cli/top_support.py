# SPDX-License-Identifier: Apache-2.0
"""Processes for `cuvmm top` to list."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cli_support import CUVMM, CliTest, cuvmm, text

# Holds the given memory, and executes each line of its input.
HOLDER = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def must(answer):
    assert answer == 0, answer
def allocate(size):
    address = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address
must(cuda.cuInit(0))
context = ctypes.c_void_p()
must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
held = [allocate(int(size) << 20) for size in sys.argv[1:]]
print("holds", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Holder:
    """A process under cuvmm that holds blocks of the given sizes in MiB."""

    def __init__(self, sizes, *run_words, env=None, source=HOLDER, launcher=()):
        environment = dict(os.environ, **(env or {}))
        self.process = subprocess.Popen(
            [*launcher, CUVMM, "run", "--sim=memory=256M", *run_words, "--", sys.executable, "-c",
             source, *map(str, sizes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        assert self.process.stdout.readline() == "holds\n"
        self.number = int(self.do("print(os.getpid())"))
        self.is_stopped = False

    def do(self, code):
        """Runs code in the process. Returns what it printed."""
        self.process.stdin.write(code + "\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line == "done\n":
                break
            lines.append(line)
        return "".join(lines)

    def stop(self):
        """Stops the process. All its threads are stopped when this returns."""
        self.is_stopped = True
        os.kill(self.number, signal.SIGSTOP)
        tasks = f"/proc/{self.number}/task"
        def stands_still(thread):
            with open(f"{tasks}/{thread}/stat", encoding="utf-8") as file:
                return file.read().rpartition(") ")[2][0] == "T"
        while not all(map(stands_still, os.listdir(tasks))):
            time.sleep(0.01)

    def go_on(self):
        os.kill(self.number, signal.SIGCONT)
        self.is_stopped = False

    def kill(self):
        """Kills the process. All its threads have ended when this returns."""
        process = os.pidfd_open(self.number)
        os.kill(self.number, signal.SIGKILL)
        select.select([process], [], [])
        os.close(process)
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=60)
        self.process.stdout.close()
        self.process.stdin.close()


class TopTest(CliTest):
    """Gives each test its own folder for figures."""

    def setUp(self):
        super().setUp()
        self.runtime = tempfile.mkdtemp(prefix="cuvmm top é ")
        self.addCleanup(shutil.rmtree, self.runtime)
        self.env = {"XDG_RUNTIME_DIR": self.runtime, "VMM_PUBLISH": "on"}
        self.folder = os.path.join(self.runtime, "cuvmm")
        self.holders = []
        others = self.seen()
        if others:  # `top` looks in /tmp too
            self.skipTest(f"programs of others run under cuvmm: {sorted(others)}")

    def holder(self, sizes, *run_words, source=HOLDER, launcher=(), **more):
        holder = Holder(sizes, *run_words, env=dict(self.env, **more), source=source,
                        launcher=launcher)
        self.addCleanup(holder.end)
        self.holders.append(holder)
        return holder

    def seen(self, *words, status=0):
        """Returns all listed processes, by process id.

        `top` waits only for a moment for their answers, which may be too short on a busy machine.
        Therefore it is asked again until all answer that are not stopped.
        """
        until = time.monotonic() + 60
        while True:
            finished = cuvmm("top", "--json", *words, env=self.env)
            self.assertEqual(finished.returncode, status, text(finished.stdout + finished.stderr))
            all_of_it = json.loads(finished.stdout)
            self.assertEqual(all_of_it["schema"], 1)
            listed = {one["process"]: one for one in all_of_it["processes"]}
            running = {holder.number for holder in self.holders if not holder.is_stopped}
            if all(listed[one]["answers"] for one in running & set(listed)):
                return listed
            if time.monotonic() > until:
                return listed

    def files(self):
        return sorted(os.listdir(self.folder)) if os.path.isdir(self.folder) else []
