# SPDX-License-Identifier: Apache-2.0
"""Commands that read traces, given traces that are truncated, foreign, newer or malicious."""

import json
import os
import random
import struct
import sys

from cli_support import BUILD, CliTest, cuvmm, frag_trace, main, text

# 30 pools, of which the last holds most.
MANY_POOLS = """
import ctypes, struct
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for i in range(30):
    pool = ctypes.c_void_p()
    pinned, none, device = 1, 0, 1
    properties = struct.pack("4i72x", pinned, none, device, 0)
    assert cuda.cuMemPoolCreate(ctypes.byref(pool), properties) == 0
    size = ctypes.c_size_t((12 if i == 29 else 2) << 20)
    assert cuda.cuMemAllocFromPoolAsync(ctypes.byref(address), size, pool, None) == 0
"""

OWN_CHUNKS = """
import ctypes, struct
cuda, context, chunk = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
pinned, none, device = 1, 0, 1
properties = struct.pack("4i16x", pinned, none, device, 0)
assert cuda.cuMemCreate(ctypes.byref(chunk), ctypes.c_size_t(32 << 20), properties,
                        ctypes.c_uint64(0)) == 0
"""


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


REFUSED_CHUNK = OWN_CHUNKS + """
answer = cuda.cuMemCreate(ctypes.byref(chunk), ctypes.c_size_t(48 << 20), properties,
                          ctypes.c_uint64(0))
assert answer == 2, answer
answer = cuda.cuMemCreate(ctypes.byref(chunk), ctypes.c_size_t(12345), properties,
                          ctypes.c_uint64(0))
assert answer == 1, answer
"""


class Traces(CliTest):
    def write(self, content):
        path = self.path("a trace ü.trace")
        with open(path, "wb") as file:
            file.write(content)
        return path

    def refused(self, content):
        finished = cuvmm("stats", self.write(content))
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(finished.stdout, b"")
        self.assert_one_line(finished.stderr)
        return text(finished.stderr)

    def test_a_truncated_trace_is_read_up_to_its_last_complete_record(self):
        with open(frag_trace("monitor"), "rb") as file:
            whole = file.read()
        events = self.json_of("stats", "--json", frag_trace("monitor"))["events"]
        generator = random.Random(5)
        for size in sorted(generator.sample(range(len(whole)), 40)):
            finished = cuvmm("stats", "--json", self.write(whole[:size]))
            self.assertIn(finished.returncode, (0, 1))
            self.assert_one_line(finished.stderr)
            if finished.returncode == 0:
                self.assertLessEqual(json.loads(finished.stdout)["events"], events)
                self.assertGreater(json.loads(finished.stdout)["events"], 0)

    def test_no_more_than_all_of_the_memory_is_used_with_spilling(self):
        trace = self.path("spilled.trace")
        cuvmm("run", "-q", "--sim=memory=64M", "--limit", "16M", "--spill", "host", "--trace", trace,
              "--", os.path.join(BUILD, "bin", "frag_test"))
        stats = self.json_of("stats", "--json", trace)
        self.assertGreater(stats["spilled_peak_bytes"], 0)
        self.assertGreater(stats["live_peak_bytes"], stats["physical_peak_bytes"])
        self.assertGreater(stats["utilisation"], 0.5)
        self.assertLessEqual(stats["utilisation"], 1)

    def test_the_use_of_a_programs_own_chunks_is_not_known(self):
        trace = self.path("chunks.trace")
        ran = cuvmm("run", "--sim=memory=64M", "--trace", trace, "--", sys.executable, "-c",
                    OWN_CHUNKS)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("its use is unknown", text(ran.stderr))
        stats = self.json_of("stats", "--json", trace)
        self.assertGreaterEqual(stats["physical_peak_bytes"], 32 << 20)
        self.assertIsNone(stats["utilisation"])

    def test_chunks_that_a_program_is_refused_count_as_refusals(self):
        for mode in ("vmm", "monitor"):
            trace = self.path(mode + ".trace")
            ran = cuvmm("run", "--sim=memory=64M", "--mode", mode, "--trace", trace, "--",
                        sys.executable, "-c", REFUSED_CHUNK)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            stats = self.json_of("stats", "--json", trace)
            self.assertEqual(stats["failed_allocations"], 1)
            self.assertLess(stats["physical_peak_bytes"] or 0, 48 << 20)

    def test_of_memory_that_the_driver_serves_only_the_requests_are_known(self):
        stats = self.json_of("stats", "--json", frag_trace("monitor"))
        self.assertIsNone(stats["physical_peak_bytes"])
        self.assertIsNone(stats["utilisation"])
        said = self.good("stats", frag_trace("monitor"))
        self.assertIn("peak requested of the driver", said)
        self.assertNotIn("physical", said)

    def test_of_a_log_of_several_processes_the_busiest_is_shown(self):
        log = self.path("several.log")
        lines = ["cuvmm[41] WARNING 90 hello", "cuvmm[41] INFO 91 reserve address=0x10 size=64",
                 *(f"cuvmm[42] INFO {100 + i} allocate address={64 * i:#x} size=8" for i in range(1, 4)),
                 "cuvmm[43] INFO 105 allocate address=0x10 size=8"]
        with open(log, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        finished = cuvmm("stats", "--json", log)
        self.assertEqual(json.loads(finished.stdout)["process"], 42)
        self.assertEqual(json.loads(finished.stdout)["allocations"], 3)
        self.assert_one_line(finished.stderr)
        self.assertRegex(text(finished.stderr), "shows process 42; .* 2 other processes.*%p in VMM_LOG_FILE")

    def test_of_many_arenas_only_the_largest_are_listed(self):
        trace = self.path("pools.trace")
        cuvmm("run", "-q", "--sim=memory=256M", "--trace", trace, "--", sys.executable, "-c", MANY_POOLS)
        arenas = self.json_of("stats", "--json", trace)["arenas"]
        self.assertGreater(len(arenas), 50)
        table = text(cuvmm("stats", trace).stdout).partition("arenas, at the end")[2].splitlines()[1:]
        rows = table[:table.index("")] if "" in table else table
        self.assertEqual(len(rows), 21)
        self.assertIn(f"{len(arenas) - 20} others", rows[-1])
        largest = max(one["used_bytes"] + one["free_bytes"] for one in arenas)
        self.assertGreaterEqual(largest, 12 << 20)
        self.assertIn("12.0 MiB", rows[0])

    def test_a_file_that_is_no_trace_is_refused_in_one_line(self):
        self.refused(b"")
        self.refused(b"hello\n")
        self.refused(b"\x7fELF" + bytes(1000))
        self.refused(b"CUVMMTRC")
        self.refused(b"CUVMMTRC" + b"\xff" * 5000)
        self.refused(b"cuvmm[" + b"\xff" * 500_000)

    def test_a_path_that_is_no_regular_file_is_refused(self):
        os.mkfifo(self.path("pipe"))
        for path in ("/nonexistent/run.trace", "/tmp", "/dev/zero", self.path("pipe")):
            finished = cuvmm("stats", path)
            self.assertEqual(finished.returncode, 1)
            self.assert_one_line(finished.stderr)

    def test_names_in_a_trace_cannot_control_the_terminal(self):
        with open(frag_trace("vmm"), "rb") as file:
            content = bytearray(file.read())
        place = struct.unpack_from("<I", content, 16)[0]  # behind the header
        while place < len(content):
            kind, size = struct.unpack_from("<HxxI", content, place + 4)
            payload = bytes(content[place + 64 : place + 64 + size])
            if kind == 2:  # sections
                payload = payload.replace(b"device 0", b"\033]0;abc\a")
                content[place + 64 : place + 64 + size] = payload
                struct.pack_into("<I", content, place + 20, crc32c(payload))
                struct.pack_into("<I", content, place + 60, crc32c(content[place : place + 60]))
            place += 64 + size
        said = self.good("stats", self.write(content))
        self.assertIn("?]0;abc?, blocking", said)

    def test_a_newer_version_is_refused(self):
        with open(frag_trace("monitor"), "rb") as file:
            whole = bytearray(file.read())
        struct.pack_into("<H", whole, 12, 2)
        size = struct.unpack_from("<I", whole, 16)[0]
        struct.pack_into("<I", whole, 24, 0)
        struct.pack_into("<I", whole, 24, crc32c(whole[:size]))
        self.assertRegex(self.refused(bytes(whole)), "newer|version")

    def test_a_damaged_trace_is_harmless(self):
        with open(frag_trace("vmm"), "rb") as file:
            whole = file.read()
        generator = random.Random(int(os.environ.get("CUVMM_TEST_SEED", "6")))
        for _ in range(25):
            damaged = bytearray(whole)
            for _ in range(generator.randint(1, 40)):
                damaged[generator.randrange(len(damaged))] = generator.randrange(256)
            path = self.write(bytes(damaged))
            for words in (("stats", path), ("plot", path, "-o", self.path("out.json")),
                          ("export", "--format", "memory_viz", path, "-o", "/dev/null")):
                self.assertIn(cuvmm(*words).returncode, (0, 1), words)


if __name__ == "__main__":
    main()
