#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what `cuvmm top` costs, in itself and in the processes that it watches.

    measure_top.py BUILD [PROCESSES [SECONDS]]
"""

import os
import pty
import select
import subprocess
import sys
import time

HOLDER = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for size in range(1, 200):
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size << 12)) == 0
print("holds", flush=True)
time.sleep(3600)
"""
TICKS = os.sysconf("SC_CLK_TCK")


def time_of_figures(process):
    """Returns the CPU seconds of the process's thread that publishes its figures."""
    folder = f"/proc/{process}/task"
    for thread in os.listdir(folder):
        with open(f"{folder}/{thread}/stat", encoding="utf-8") as file:
            name, _, rest = file.read().partition(") ")
        if name.endswith("(cuvmm-figures"):
            fields = rest.split()
            return (int(fields[11]) + int(fields[12])) / TICKS
    raise RuntimeError("it publishes nothing")


def begin(build, count):
    holders = [subprocess.Popen([f"{build}/bin/cuvmm", "run", "--sim", "--quiet", "--",
                                 sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
               for _ in range(count)]
    for holder in holders:
        assert holder.stdout.readline() == "holds\n"
    return holders


def children_of(holders):
    for holder in holders:
        with open(f"/proc/{holder.pid}/task/{holder.pid}/children", encoding="utf-8") as file:
            yield from map(int, file.read().split())


def watch(build, seconds):
    """Runs top. Returns its CPU seconds and its peak memory in KiB."""
    number, terminal = pty.fork()
    if number == 0:
        os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
        os.execv(f"{build}/bin/cuvmm", ["cuvmm", "top"])
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            os.read(terminal, 65536)
    os.write(terminal, b"q")
    _, status, used = os.wait4(number, 0)
    assert status == 0, status
    return used.ru_utime + used.ru_stime, used.ru_maxrss


def main():
    build = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 30
    holders = begin(build, count)
    try:
        watched = list(children_of(holders))
        time.sleep(2)  # a thread sets its name only when it runs
        before = sum(map(time_of_figures, watched))
        taken, memory = watch(build, seconds)
        theirs = sum(map(time_of_figures, watched)) - before
    finally:
        for process in list(children_of(holders)):
            os.kill(process, 9)
        for holder in holders:
            holder.wait()
    with open("/proc/loadavg", encoding="utf-8") as file:
        load = file.read().split()[0]
    print(f"cuvmm top, {count} processes, every second for {seconds:g} s, load {load}")
    print(f"top itself             {100 * taken / seconds:.2f}% of a processor, {memory} KiB")
    print(f"a process that it sees {100 * theirs / seconds / len(watched):.3f}% of a processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
