# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory snapshots and RMM's logs.

Every command that reads traces reads them and executes nothing in them. Any other file is rejected
with an error that says what it is.
"""

import gzip
import json
import os
import pickle
import shutil
import zipfile

from cli_support import BUILD, CliTest, cuvmm, frag_trace, main, text
from histories import FRAGMENTED_PEAK, MIB, History, fragmented, rmm_log, steady


FRAG = os.path.join(BUILD, "bin", "frag_test")


class CallsWhenLoaded:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Snapshots(CliTest):
    def test_every_pickle_protocol_gives_the_same_summary(self):
        said = set()
        for protocol in (2, 3, 4, 5):
            path = fragmented().dump(self.path(f"p{protocol}.pickle"), protocol)
            said.add(self.good("stats", "--json", path))
        self.assertEqual(len(said), 1)
        stats = json.loads(said.pop())
        self.assertEqual(stats["source"], "PyTorch memory snapshot")
        self.assertEqual(stats["allocations"], 3)
        self.assertEqual(stats["frees"], 1)
        self.assertEqual(stats["live_peak_bytes"], FRAGMENTED_PEAK)

    def test_replay_reads_a_snapshot(self):
        path = fragmented().dump(self.path("s.pickle"))
        caching = self.json_of("replay", path, "--policy", "caching", "--json")
        expandable = self.json_of("replay", path, "--policy", "expandable", "--json")
        self.assertEqual(caching["trace_events"], 4)
        self.assertGreater(caching["physical_peak_bytes"], expandable["physical_peak_bytes"])

    def test_plot_and_export_read_a_snapshot(self):
        path = fragmented().dump(self.path("s.pickle"))
        self.good("plot", path, "-o", self.path("s.json"))
        with open(self.path("s.json"), encoding="utf-8") as file:
            self.assertIn("PyTorch memory snapshot", file.read())
        self.good("export", "--format", "rmm-csv", path, "-o", self.path("s.csv"))
        again = self.json_of("stats", "--json", self.path("s.csv"))
        self.assertEqual(again["source"], "RMM log")
        self.assertEqual(again["live_peak_bytes"], FRAGMENTED_PEAK)

    def test_reads_its_own_exported_snapshot(self):
        self.good("export", "--format", "memory_viz", frag_trace("vmm"), "-o", self.path("v.pickle"))
        stats = self.json_of("stats", "--json", self.path("v.pickle"))
        ours = self.json_of("stats", "--json", frag_trace("vmm"))
        self.assertEqual(stats["live_peak_bytes"], ours["live_peak_bytes"])

    def test_nothing_in_a_pickle_is_executed(self):
        made = self.path("made by the pickle")
        for protocol in (2, 4):
            path = self.path(f"evil{protocol}.pickle")
            with open(path, "wb") as file:
                pickle.dump({"segments": [], "device_traces": [[CallsWhenLoaded(made)]]}, file,
                            protocol)
            for words in (("stats",), ("replay",), ("advise",), ("plot", "-o", self.path("x.json"))):
                finished = cuvmm(*words, path)
                self.assertEqual(finished.returncode, 1, words)
                self.assertRegex(text(finished.stderr), "GLOBAL would run Python code")
        self.assertFalse(os.path.exists(made))

    def test_a_small_file_cannot_take_much_memory(self):
        path = self.path("bomb.pickle.gz")
        with gzip.open(path, "wb", 9) as file:
            file.write(b"\x80\x02")
            for _ in range(60):
                file.write(b"N0" * 500_000)
            file.write(b"N.")
        finished = cuvmm("stats", path)
        self.assertEqual(finished.returncode, 1)
        self.assertIn("the pickle holds too many values", text(finished.stderr))

    def test_nothing_in_a_file_controls_the_terminal(self):
        history = History()
        history.event("\x1b[31m", addr=1, size=1)
        with open(self.path("evil.csv"), "w", encoding="ascii") as file:
            file.write("time_us,action,address,size,stream\n1,\x1b[31m,a0,1,0\n")
        for path in (history.dump(self.path("evil.pickle")), self.path("evil.csv")):
            finished = cuvmm("stats", path)
            self.assertEqual(finished.returncode, 1)
            self.assertIn("no action is called '?[31m'", text(finished.stderr))
        trace = self.path("evil.trace")
        program = self.path("\x1b[31m")
        shutil.copy(FRAG, program)
        cuvmm("run", "-q", "--sim=memory=64M", "--trace", trace, "--", program)
        self.assertNotIn("\x1b", self.good("stats", trace))

    def test_a_size_out_of_range_is_refused(self):
        most = 2**64 - 1
        with open(self.path("large.csv"), "w", encoding="ascii") as file:
            file.write(f"time_us,action,address,size,stream\n1,alloc,a0,{most},0\n")
        for path in (self.path("large.csv"),
                     rmm_log(self.path("rmm.csv"), [("allocate", 0x1000, most)])):
            finished = cuvmm("stats", path)
            self.assertEqual(finished.returncode, 1)
            self.assertIn(f"ize is out of range: '{most}'", text(finished.stderr))

    def test_a_snapshot_without_history_says_how_to_record_one(self):
        finished = cuvmm("stats", History().dump(self.path("none.pickle")))
        self.assertEqual(finished.returncode, 1)
        self.assertIn("_record_memory_history()", text(finished.stderr))

    def test_every_command_reads_an_rmm_log(self):
        path = rmm_log(self.path("rmm.csv"), [("allocate", 0x1000, 512), ("allocate", 0x2000, 512),
                                              ("free", 0x1000, 512)])
        self.assertEqual(self.json_of("stats", "--json", path)["live_peak_bytes"], 1024)
        self.good("plot", path, "-o", self.path("rmm.json"))
        self.good("replay", path, "--policy", "driver")

    def test_every_command_identifies_other_files(self):
        with open(self.path("plain"), "wb") as file:
            file.write(b"hello\n")
        with open(self.path("model.json"), "wb") as file:
            file.write(b'{"a": 1}\n')
        with open(self.path("list.pickle"), "wb") as file:
            pickle.dump([1, 2], file)
        with open(self.path("long.json"), "wb") as file:
            file.write(b'{"a": "' + b"x" * 10_000 + b'"}')
        with open(self.path("empty"), "wb"):
            pass
        with zipfile.ZipFile(self.path("model.pt"), "w") as archive:
            archive.writestr("data.pkl", b"x")
        for name, kind in (("plain", "it is in an unknown format"), ("model.json", "it is JSON"),
                           ("long.json", "it is JSON"),
                           (os.path.join(BUILD, "bin", "cuvmm"), "it is a program"),
                           ("list.pickle", "not a memory snapshot of PyTorch's"),
                           ("empty", "the file is empty"), ("none", "No such file"),
                           ("model.pt", r"a zip archive, as torch\.save\(\) writes them")):
            for words in (("stats",), ("replay",), ("advise",), ("plot", "-o", self.path("x.json")),
                          ("export", "--format", "csv", "-o", self.path("x.csv"))):
                finished = cuvmm(*words, os.path.abspath(name) if "/" in name else self.path(name))
                self.assertEqual(finished.returncode, 1, (words, name))
                self.assert_one_line(finished.stderr)
                self.assertRegex(text(finished.stderr), kind)

    def test_replay_identifies_a_cuvmm_log(self):
        with open(self.path("log"), "wb") as file:
            file.write(b"cuvmm[7] INFO 1 x\n")
        finished = cuvmm("replay", self.path("log"))
        self.assertEqual(finished.returncode, 1)
        self.assertIn("a log of cuvmm: `cuvmm stats` and `cuvmm plot` read it",
                      text(finished.stderr))


class Advise(CliTest):
    def verdict(self, path, *more):
        advice = self.json_of("advise", "--json", path, *more)
        shown = self.good("advise", path, *more)
        self.assertIn(advice["text"], shown)
        self.assertIn(advice["setting"], shown)
        return advice["verdict"], advice["setting"]

    def test_recommends_expandable_segments_if_they_suffice(self):
        path = fragmented().dump(self.path("s.pickle"))
        setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        self.assertEqual(self.verdict(path), ("expandable_segments", setting))
        self.assertEqual(self.verdict(path, "--limit", "1.1x"), ("expandable_segments", setting))

    def test_each_mark_of_expandable_segments_is_enough(self):
        def policy_in_use(mark):
            history = fragmented()
            if mark == "unmap":
                history.event("segment_unmap", addr=0x7f8000000000, size=2 * MIB)
            snapshot = history.snapshot()
            snapshot["segments"][0]["is_expandable"] = mark == "segment"
            snapshot["allocator_settings"]["expandable_segments"] = mark == "setting"
            path = self.path(f"{mark}.pickle")
            with open(path, "wb") as file:
                pickle.dump(snapshot, file)
            return self.json_of("advise", "--json", path)["policy_in_use"]

        self.assertEqual(policy_in_use("none"), "caching")
        for mark in ("unmap", "segment", "setting"):
            self.assertEqual(policy_in_use(mark), "expandable", mark)

    def test_recommends_nothing_if_the_trace_fits(self):
        path = fragmented().dump(self.path("s.pickle"))
        self.assertEqual(self.verdict(path, "--limit", "8G"), ("fits", ""))

    def test_recommends_nothing_if_no_memory_is_lost(self):
        self.assertEqual(self.verdict(steady().dump(self.path("s.pickle"))),
                         ("nothing_to_gain", ""))

    def test_recommends_spilling_beyond_the_memory(self):
        verdict, setting = self.verdict(steady().dump(self.path("s.pickle")), "--limit", "512M")
        self.assertEqual(verdict, "spill")
        self.assertIn("--spill host", setting)

    # The device's total is its free memory plus what PyTorch had reserved.
    def test_a_refused_request_says_how_much_there_was(self):
        history = steady(blocks=4)
        history.oom(100 * MIB, 50 * MIB)
        advice = self.json_of("advise", "--json",
                              history.dump(self.path("oom.pickle"), reserved=160 * MIB))
        self.assertEqual(advice["limit_bytes"], 210 * MIB)
        self.assertEqual(advice["live_peak_bytes"], 260 * MIB)
        self.assertEqual(advice["refused_allocations"], 1)
        self.assertEqual(advice["verdict"], "spill")

    def test_times_in_a_table_may_count_from_1970(self):
        path = self.path("table.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("time_us,action,address,size,stream\n"
                       "1700000000000000,segment_alloc,a0,2097152,0\n"
                       "1700000000000001,alloc,a0,64,0\n"
                       "1700000000500000,free_completed,a0,64,0\n")
        self.assertEqual(self.json_of("stats", "--json", path)["duration_us"], 500_000)
        self.assertEqual(self.json_of("replay", "--json", path)["duration_us"], 500_000)

    def test_a_limit_of_one_device_is_the_limit_of_its_refusals(self):
        trace = self.path("limited.trace")
        cuvmm("run", "--sim=memory=64M", "--trace", trace, "--", FRAG, env={"CUDA_DEVICE_MEMORY_LIMIT_0": "32m"})
        self.assertEqual(self.json_of("advise", "--json", trace)["limit_bytes"], 32 * MIB)

    def test_a_refusal_in_a_trace_of_cuvmm_limits_to_the_device_or_the_limit(self):
        native = self.json_of("advise", "--json", frag_trace("monitor"))
        self.assertGreater(native["refused_allocations"], 0)
        self.assertEqual(native["limit_bytes"], 64 * MIB)
        trace = self.path("limited.trace")
        cuvmm("run", "--sim=memory=64M", "--limit", "32M", "--trace", trace, "--", FRAG)
        limited = self.json_of("advise", "--json", trace)
        self.assertGreater(limited["refused_allocations"], 0)
        self.assertEqual(limited["limit_bytes"], 32 * MIB)

    def test_a_program_that_only_looked_for_what_is_free_fits(self):
        verdict, setting = self.verdict(frag_trace("vmm"))
        self.assertEqual((verdict, setting), ("cuvmm", "cuvmm run --limit 64M -- ./program"))

    def test_what_a_trace_lacks_is_said(self):
        path = self.path("cut.trace")
        with open(frag_trace("vmm"), "rb") as whole, open(path, "wb") as cut:
            cut.write(whole.read()[:30_000])
        for command in ("advise", "replay"):
            finished = cuvmm(command, path)
            self.assertEqual(finished.returncode, 0)
            self.assertIn(f"cuvmm: {path}: its end is missing", text(finished.stderr))

    def test_a_trace_without_allocations_is_refused(self):
        path = rmm_log(self.path("empty.csv"), [])
        for command in ("advise", "replay"):
            finished = cuvmm(command, path)
            self.assertEqual(finished.returncode, 1)
            self.assertEqual(text(finished.stderr),
                             f"cuvmm: {path}: it contains no allocation of device memory\n")

    def test_tries_a_limit_beyond_the_modelled_card(self):
        path = rmm_log(self.path("rmm.csv"),
                       [("allocate", 0x1000 * (i + 1), 100 << 30) for i in range(4)])
        replayed = self.json_of("replay", "--json", path, "--limit", "1T", "--policy", "driver")
        self.assertTrue(replayed["completed"])
        self.assertEqual(self.verdict(path, "--limit", "1T")[0], "fits")

    def test_recommends_compaction_of_small_blocks_if_only_that_serves_a_comb(self):
        block, count = 64 << 10, 4096  # 256 MiB
        rows = [("allocate", 0x10000000 + i * block, block) for i in range(count)]
        rows += [("free", 0x10000000 + i * block, block) for i in range(0, count, 2)]
        path = rmm_log(self.path("comb.csv"), rows + [("allocate", 0x90000000, 96 * MIB)])
        self.assertEqual(self.verdict(path, "--limit", "256M"),
                         ("cuvmm", "VMM_COMPACT=all cuvmm run --limit 256M -- ./program"))
        tried = self.json_of("advise", "--json", path, "--limit", "256M")["policies"]
        self.assertEqual([(one["policy"], one["compact"], one["fits"]) for one in tried],
                         [("driver", "auto", False), ("arena", "auto", False), ("arena", "all", True)])

    def test_recommends_cuvmm_for_a_native_trace(self):
        trace = frag_trace("monitor")
        verdict, setting = self.verdict(trace, "--limit", "70M")
        self.assertEqual(verdict, "cuvmm", self.good("advise", trace))
        self.assertIn("cuvmm run", setting)

    def test_usage_errors_are_reported(self):
        self.assertEqual(cuvmm("advise", "--limit", "much", "x").returncode, 2)
        for command in ("advise", "replay"):
            self.assertEqual(cuvmm(command, "--limit", "1M", "x").stderr,
                             b"cuvmm: --limit 1M: the limit must be at least 2 MiB\n")
            for wrong in ("abc", "50%", "1,02x"):
                self.assertEqual(text(cuvmm(command, "--limit", wrong, "x").stderr),
                                 f"cuvmm: --limit {wrong}: allowed: a size (16G), or a multiple of the peak (1.02x)\n")
        self.assertEqual(cuvmm("advise").returncode, 2)


if __name__ == "__main__":
    main()
