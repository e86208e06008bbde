# SPDX-License-Identifier: Apache-2.0
"""The files of `cuvmm export` are what their readers expect."""

import csv
import importlib.util
import json
import os
import pickle
import pickletools
import shutil
import sys

from cli_support import CliTest, cuvmm, frag_trace, main, text

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MiB = 1 << 20
READER = os.path.join(ROOT, ".venv", "viewers", "_memory_viz.py")  # tools/setup.sh fetches it

# Asks for two thirds of a card of 64 MiB of which half is taken, in two ways.
TOO_LARGE = """
import ctypes, struct
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
def chunk(mib):
    pinned, none, device = 1, 0, 1
    return cuda.cuMemCreate(ctypes.byref(memory), ctypes.c_size_t(mib << 20),
                            struct.pack("4i16x", pinned, none, device, 0), ctypes.c_uint64(0))
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert chunk(32) == 0 and chunk(48) == 2
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(40 << 20)) == 2
"""

# The pickle opcodes that the viewer's own JavaScript reader understands.
VIEWER_OPCODES = {
    "PROTO", "EMPTY_DICT", "MARK", "SHORT_BINUNICODE", "BINUNICODE", "BININT1", "BININT2", "LONG1",
    "EMPTY_LIST", "APPENDS", "SETITEMS", "STOP",
}


def pytorchs_reader():
    """Loads the reader as a module by itself: it needs nothing else of PyTorch."""
    if not os.path.exists(READER):
        return None
    found = importlib.util.spec_from_file_location("pytorch_memory_viz", READER)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class OwnInput(CliTest):
    def test_no_command_overwrites_the_trace_that_it_reads(self):
        trace = self.path("keep.json")
        shutil.copy(frag_trace("vmm"), trace)
        os.symlink(trace, self.path("link.json"))
        with open(trace, "rb") as file:
            before = file.read()
        for out in (trace, self.path("link.json")):
            for words in (("export", "--format", "csv"), ("plot",)):
                finished = cuvmm(*words, trace, "-o", out)
                self.assertEqual(finished.returncode, 2, words)
                self.assertIn("this is the trace itself", text(finished.stderr))
        with open(trace, "rb") as file:
            self.assertEqual(file.read(), before)


class Segments:
    """The viewer's disjoint segments [begin, end) while it goes back through the events."""

    def __init__(self, spans):
        self.spans = sorted(spans)

    def add(self, begin, end):
        for other in self.spans:
            assert end <= other[0] or begin >= other[1], "a segment that is there already"
        joined = [begin, end]
        kept = []
        for span in self.spans:
            if span[1] == joined[0] or span[0] == joined[1]:
                joined = [min(span[0], joined[0]), max(span[1], joined[1])]
            else:
                kept.append(span)
        self.spans = sorted(kept + [tuple(joined)])

    def remove(self, begin, end):
        holder = [span for span in self.spans if span[0] <= begin and end <= span[1]]
        assert len(holder) == 1, "a segment goes that is not there"
        self.spans.remove(holder[0])
        for rest in ((holder[0][0], begin), (end, holder[0][1])):
            if rest[0] < rest[1]:
                self.spans.append(rest)
        self.spans.sort()

    def hold(self, address, size):
        return any(begin <= address and address + size <= end for begin, end in self.spans)


class MemoryViz(CliTest):
    def snapshot(self, trace):
        path = self.path("a snapshot.pickle")
        self.good("export", "--format", "memory_viz", trace, "-o", path)
        with open(path, "rb") as file:
            content = file.read()
        used = {opcode.name for opcode, _, _ in pickletools.genops(content)}
        self.assertLessEqual(used, VIEWER_OPCODES)
        return pickle.loads(content)

    def check(self, trace):
        snapshot = self.snapshot(trace)
        blocks = {}
        spans = []
        for segment in snapshot["segments"]:
            self.assertEqual(segment["total_size"], sum(b["size"] for b in segment["blocks"]))
            address = segment["address"]
            spans.append((address, address + segment["total_size"]))
            for block in segment["blocks"]:
                self.assertEqual(block["address"], address)
                if block["state"] == "active_allocated":
                    self.assertLessEqual(block["requested_size"], block["size"])
                    blocks[address] = block["size"]
                address += block["size"]
        segments = Segments(spans)
        events = snapshot["device_traces"][0]
        counts = {}
        for event in reversed(events):
            counts[event["action"]] = counts.get(event["action"], 0) + 1
            for address, size in blocks.items():
                self.assertTrue(segments.hold(address, size), "a live block outside of a segment")
            span = (event.get("addr", 0), event.get("addr", 0) + event["size"])
            if event["action"] == "free_completed":
                self.assertNotIn(span[0], blocks)
                blocks[span[0]] = event["size"]
            elif event["action"] == "alloc":
                del blocks[span[0]]
            elif event["action"] == "segment_map":
                segments.remove(*span)
            elif event["action"] == "segment_unmap":
                segments.add(*span)
        self.assertEqual(blocks, {})
        self.assertEqual(segments.spans, [])
        self.assertEqual(counts["free_requested"], counts["free_completed"])
        return counts

    def test_refusals_show_the_memory_that_was_free(self):
        for mode in ("vmm", "monitor"):
            trace = self.path(mode + ".trace")
            ran = cuvmm("run", "-q", "--sim=memory=64M", "--mode", mode, "--trace", trace, "--",
                        sys.executable, "-c", TOO_LARGE)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            events = self.snapshot(trace)["device_traces"][0]
            refused = [event for event in events if event["action"] == "oom"]
            self.assertEqual([event["size"] for event in refused], [48 * MiB, 40 * MiB])
            for event in refused:
                self.assertGreaterEqual(event["device_free"], 8 * MiB)
                self.assertLessEqual(event["device_free"], 32 * MiB)

    def test_every_native_block_is_always_inside_a_segment(self):
        counts = self.check(frag_trace("monitor"))
        self.assertEqual(counts["alloc"], counts["free_completed"])
        self.assertGreater(counts["oom"], 0)

    def test_every_served_block_is_always_inside_a_segment(self):
        counts = self.check(frag_trace("vmm"))
        self.assertEqual(counts["alloc"], counts["free_completed"])
        self.assertGreater(counts["segment_unmap"], 0)

    def cut_trace(self):
        with open(frag_trace("vmm"), "rb") as file:
            content = file.read()
        path = self.path("cut.trace")
        with open(path, "wb") as file:
            file.write(content[:len(content) * 2 // 3])
        return path

    def test_pytorchs_own_reader_agrees(self):
        viewer = pytorchs_reader()
        if viewer is None:
            self.skipTest("PyTorch's reader is not here (CUVMM_VIEWERS=1 ./dev test fetches it)")
        snapshot = self.snapshot(self.cut_trace())
        live = [block for segment in snapshot["segments"] for block in segment["blocks"]
                if block["state"] == "active_allocated"]
        self.assertGreater(len(live), 0)
        # It asserts that blocks and gaps fill each segment.
        summary = viewer.segsum(snapshot)
        self.assertIn(f"segments: {len(snapshot['segments'])}\n", summary)
        size = viewer.Bytes(sum(block["requested_size"] for block in live))
        self.assertIn(f"total_allocated: {size}\n", summary)
        # One line for each kind of memory, with its bytes at the end.
        lines = viewer.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
        self.assertEqual(sum(int(line.split()[-1]) for line in lines if "active_allocated" in line),
                         sum(block["requested_size"] for block in live))
        listed = viewer.trace(snapshot)
        events = snapshot["device_traces"][0]
        self.assertIn(f"{len(events)} entries\n", listed)
        self.assertEqual(listed.count("\ndel "),
                         sum(event["action"] == "free_requested" for event in events))
        self.assertIn("MemoryViz.js", viewer.trace_plot(snapshot))

    def test_a_truncated_trace_keeps_its_live_blocks(self):
        snapshot = self.snapshot(self.cut_trace())
        states = [b["state"] for s in snapshot["segments"] for b in s["blocks"]]
        self.assertIn("active_allocated", states)


class Others(CliTest):
    def exported(self, how, trace):
        path = self.path("é out." + how)
        self.good("export", "--format", how, trace, "-o", path)
        with open(path, encoding="utf-8") as file:
            return file.read(), path

    def test_chrome_pairs_lifetimes_and_keeps_times_positive(self):
        content, _ = self.exported("chrome", frag_trace("vmm"))
        events = json.loads(content)["traceEvents"]
        begun = {}
        for event in events:
            if event["ph"] == "b":
                self.assertNotIn(event["id"], begun)
                begun[event["id"]] = event
            elif event["ph"] == "e":
                beginning = begun.pop(event["id"])
                self.assertGreaterEqual(event["ts"], beginning["ts"])
                self.assertEqual((event["cat"], event["name"]),
                                 (beginning["cat"], beginning["name"]))
            elif event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
        self.assertEqual(begun, {})
        self.assertTrue(any(event["ph"] == "C" for event in events))
        self.assertTrue(all("pid" in event for event in events))

    def test_waits_for_a_time_grant_are_shown_inside_their_calls(self):
        path = self.path("waits.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write("cuvmm[7] INFO 100 allocate address=0x10000 size=4096 device=0\n"
                       "cuvmm[7] DEBUG 1000 time_grant_wait waited_us=2500 device=0\n"
                       "cuvmm[7] DEBUG 990 launch function=0x1 threads=1 took_us=2600\n"
                       "cuvmm[7] DEBUG 9000 time_grant_wait waited_us=500 device=0\n")
        stats = self.json_of("stats", "--json", path)
        self.assertEqual(stats["time_grant_waits"], 2)
        self.assertEqual(stats["time_grant_wait_us"], 3000)
        self.assertEqual(stats["longest_time_grant_wait_us"], 2500)
        self.assertRegex(self.good("stats", path),
                         r"waits for device time +2   0\.003 s, at most 2\.500 ms")
        content, _ = self.exported("chrome", path)
        waits = [event for event in json.loads(content)["traceEvents"]
                 if event["name"] == "wait for a time grant"]
        self.assertEqual([(event["ph"], event["ts"], event["dur"]) for event in waits],
                         [("X", 900, 2500), ("X", 8900, 500)])

    def test_replay_reads_rmm_csv(self):
        for mode in ("monitor", "vmm"):
            _, path = self.exported("rmm-csv", frag_trace(mode))
            told = self.json_of("replay", "--json", path)
            direct = self.json_of("replay", "--json", frag_trace(mode))
            for key in ("trace_events", "live_peak_bytes"):
                self.assertEqual(told[key], direct[key])

    def test_csv_has_one_line_per_event(self):
        content, path = self.exported("csv", frag_trace("vmm"))
        rows = list(csv.DictReader(content.splitlines()))
        stats = self.json_of("stats", "--json", frag_trace("vmm"))
        self.assertEqual(len(rows), stats["events"])
        self.assertEqual(sum(row["event"] == "Allocate" for row in rows), stats["allocations"])

    def test_standard_output_is_clean(self):
        finished = cuvmm("export", "--format", "csv", frag_trace("vmm"), "-o", "-")
        self.assertTrue(finished.stdout.startswith(b"time_us,"))
        self.assertEqual(finished.stderr, b"")

    def test_a_failed_write_leaves_no_file(self):
        finished = cuvmm("export", "--format", "csv", frag_trace("vmm"), "-o", "/dev/full")
        self.assertEqual(finished.returncode, 1)
        self.assert_one_line(finished.stderr)
        finished = cuvmm("export", "--format", "csv", "/nonexistent", "-o", self.path("out"))
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(os.listdir(os.path.dirname(self.path("out"))), [])

    def test_an_unknown_format_is_a_usage_error(self):
        finished = cuvmm("export", "--format", "xml", frag_trace("vmm"), "-o", "-")
        self.assertEqual(finished.returncode, 2)


if __name__ == "__main__":
    main()
