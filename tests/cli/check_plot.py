# SPDX-License-Identifier: Apache-2.0
"""Plots: the data they are drawn from, and complete, self-contained output files."""

import functools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import unittest
import zlib

from cli_support import BUILD, CliTest, cuvmm, frag_trace, main, run, text

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

from cuvmm.plot import data  # noqa: E402


def python_for_plots():
    """Returns the interpreter that cuvmm itself would use."""
    own = os.path.join(ROOT, ".venv", "bin", "python")
    return os.environ.get("CUVMM_PYTHON") or (own if os.path.exists(own) else "python3")


@functools.cache
def can_draw(package):
    return subprocess.run([python_for_plots(), "-c", f"import {package}"],
                          capture_output=True, check=False).returncode == 0


def png_size(content):
    return struct.unpack(">II", content[16:24])


def png_bytes(content):
    """Returns the decompressed, still filtered pixels: enough to see that a plot is not blank."""
    packed = b"".join(content[m.end():m.end() + struct.unpack(">I", content[m.start() - 4:
                                                                           m.start()])[0]]
                      for m in re.finditer(b"IDAT", content))
    return zlib.decompress(packed)


# Gives the device work, but allocates none of its memory.
WORKER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
for _ in range(5):
    assert cuda.cuLaunchHostFunc(None, function, None) == 0
assert cuda.cuCtxSynchronize() == 0
"""


# PyTorch's history as a table; the last block is held to the end.
HISTORY = """time_us,action,address,size,stream
0,segment_alloc,7f0000000000,134217728,0
1,alloc,7f0000000000,67108864,0
900,free_completed,7f0000000000,67108864,0
950,alloc,7f0000000000,1048576,0
"""
# Clamped to the address space, the only block has no byte.
AT_THE_END = """time_us,action,address,size,stream
0,alloc,ffffffffffffffff,512,0
"""

# Draws DATA to FILE, then prints what an expression says about the figure.
DRAW_AND_TELL = """
import sys
from cuvmm.plot import data, figure
figure.plt.close = lambda drawn: print(eval(sys.argv[3], {"axes": drawn.axes}))
figure.draw(data.read(sys.argv[1]), sys.argv[2])
"""


class PlotTest(CliTest):
    def data_of(self, *traces):
        path = self.path("data.json")
        self.good("plot", *traces, "-o", path)
        return path

    def picture(self, *traces):
        with open(self.data_of(*traces), encoding="utf-8") as file:
            return json.load(file)

    def history(self, content=HISTORY, name="history.csv"):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return path

    def without_a_map(self):
        """Returns the trace of a program that takes device memory, but maps none of it."""
        trace = self.path("unmapped.trace")
        self.good("run", "--sim=memory=64M", "--trace", trace, "--",
                  os.path.join(BUILD, "bin", "take_turns"), "--memory", "20", "--steps", "1")
        return trace

    def draw(self, name, *words):
        path = self.path(name)
        finished = cuvmm("plot", *words, "-o", path)
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        self.assertEqual(finished.stdout, b"")
        self.assert_one_line(finished.stderr)
        with open(path, "rb") as file:
            return file.read()

    def in_html(self, *traces):
        """Returns the pictures that the page draws."""
        content = text(self.draw("pictures.html", *traces))
        return json.loads(re.search('type="application/json">(.*?)</script>', content)[1])

    def told(self, expression, *traces):
        """Returns what an expression says about the `axes` of a drawn figure."""
        finished = run(python_for_plots(), "-B", "-c", DRAW_AND_TELL, self.data_of(*traces),
                       self.path("told.png"), expression,
                       env={"PYTHONPATH": os.path.join(ROOT, "python")})
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        return text(finished.stdout).strip()


class Data(PlotTest):

    def test_the_data_matches_the_trace(self):
        both = self.picture(frag_trace("monitor"), frag_trace("vmm"))
        self.assertEqual(both["schema"], 1)
        for picture, mode in zip(both["pictures"], ("monitor", "vmm")):
            stats = self.json_of("stats", "--json", frag_trace(mode))
            self.assertEqual(picture["requested_peak_bytes"], stats["live_peak_bytes"])
            self.assertEqual(stats["physical_peak_bytes"],
                             None if mode == "monitor" else picture["physical_peak_bytes"])
            self.assertEqual(picture["is_native"], mode == "monitor")
            self.assertEqual(sum(picture["sizes"]), stats["allocations"])
            self.assertEqual(max(picture["requested_bytes"]), picture["requested_peak_bytes"])
            self.assertEqual(len(picture["requested_bytes"]), picture["columns"])
        self.assertAlmostEqual(max(both["pictures"][0]["fragmentation"]), 1)

    def test_only_a_limit_that_applied_is_drawn(self):
        frag = os.path.join(BUILD, "bin", "frag_test")
        for number, (mode, option, env, limits) in enumerate([
                ("monitor", ["--limit", "16M"], {}, []), ("vmm", ["--limit", "16M"], {}, [16 << 20]),
                ("vmm", [], {"CUDA_DEVICE_MEMORY_LIMIT_0": "24m"}, [24 << 20])]):
            trace = self.path(f"{number}.trace")
            cuvmm("run", "-q", "--sim=memory=64M", "--mode", mode, *option, "--trace", trace, "--", frag, env=env)
            (picture,) = self.picture(trace)["pictures"]
            self.assertEqual([one["bytes"] for one in picture["limits"]], limits)
            self.assertEqual(picture["limit_bytes"], limits[0] if limits else None)

    def test_the_data_stays_small_for_a_long_trace(self):
        made = self.path("long.trace")
        finished = run(os.path.join(BUILD, "bin", "cuvmm_make_trace"), 300_000, made)
        self.assertEqual(finished.returncode, 0)
        self.picture(made)
        self.assertLess(os.path.getsize(self.path("data.json")), 1_500_000)

    def test_work_without_memory_has_its_lanes(self):
        trace = self.path("work.trace")
        self.good("run", "--sim", "--trace", trace, "--", sys.executable, "-c", WORKER)
        (picture,) = self.picture(trace)["pictures"]
        self.assertEqual(picture["address_bytes"], 0)
        (lane,) = picture["lanes"]
        self.assertEqual(sum(lane["operations"]), 5)
        self.good("plot", trace, "-o", self.path("work.html"))
        if can_draw("matplotlib"):
            self.good("plot", trace, "-o", self.path("work.png"))

    def test_a_device_without_memory_is_an_error(self):
        finished = cuvmm("plot", frag_trace("vmm"), "--device", "7", "-o", self.path("x.json"))
        self.assertEqual(finished.returncode, 1)
        self.assert_one_line(finished.stderr)
        self.assertIn("no memory was taken on device 7; the trace has device 0", text(finished.stderr))

    def test_every_format_says_what_was_written(self):
        path = self.path("x.json")
        finished = cuvmm("plot", frag_trace("vmm"), "-o", path)
        self.assertEqual(text(finished.stderr), f"cuvmm: wrote {path}\n")
        self.assertEqual(cuvmm("plot", "-q", frag_trace("vmm"), "-o", path).stderr, b"")

    def test_a_folder_that_is_missing_is_named(self):
        for name in ("x.json", "x.html"):
            finished = cuvmm("plot", frag_trace("vmm"), "-o", "/nodir/" + name)
            self.assertEqual(finished.returncode, 1)
            self.assertEqual(text(finished.stderr), f"cuvmm: /nodir/{name}: there is no folder /nodir\n")

    def test_an_unknown_file_type_is_a_usage_error(self):
        for name in ("x", "x.gif", "x.png.txt"):
            self.assertEqual(cuvmm("plot", frag_trace("vmm"), "-o", self.path(name)).returncode, 2)

    def test_a_log_gives_the_same_data_as_a_trace(self):
        log = self.path("run.log")
        trace = self.path("run.trace")
        self.good("run", "--sim=memory=64M", "--mode", "vmm", "--log-level", "info", "--log-file",
                  log, "--trace", trace, "--", os.path.join(BUILD, "bin", "frag_test"))
        by_log, by_trace = self.picture(log, trace)["pictures"]
        for key in ("requested_peak_bytes", "physical_peak_bytes", "sizes", "refusal_count"):
            self.assertEqual(by_log[key], by_trace[key], key)

    def test_shows_what_is_spilled(self):
        trace = self.path("spilled.trace")
        self.good("run", "-q", "--sim=memory=256M", "--limit", "32M", "--spill", "host", "--trace", trace,
                  "--", os.path.join(BUILD, "bin", "take_turns"), "--mib", "96", "--steps", "2")
        picture = self.picture(trace)["pictures"][0]
        spilled = self.json_of("stats", "--json", trace)["spilled_peak_bytes"]
        self.assertGreater(spilled, 0)
        self.assertEqual(picture["spilled_peak_bytes"], spilled)
        self.assertEqual(max(picture["spilled_bytes"]), spilled)
        self.assertEqual(max(data.Picture(picture).spilled_bytes), spilled)
        self.assertIn("peak spilled", data.Picture(picture).subtitle())


class Words(CliTest):
    """What pictures of all kinds say."""

    def picture(self, **fields):
        return data.Picture({"command": [], "note": "", "lanes": [], "mode": "", "device": 1,
                             "address_bytes": 0, "requested_peak_bytes": 1 << 20,
                             "physical_peak_bytes": 0, "mapped_bytes": [0], "refusals": [],
                             "refusal_count": 0, "largest_refusal_bytes": 0, "device_count": 2, **fields})

    def test_one_of_several_devices_is_named(self):
        self.assertNotIn("device", self.picture(device_count=1).subtitle())
        self.assertIn("device 1", self.picture(device_count=2).subtitle())

    def test_physical_memory_is_told_if_the_trace_has_it(self):
        self.assertNotIn("physical", self.picture().subtitle())
        self.assertIn("peak physical 2 MiB", self.picture(physical_peak_bytes=2 << 20).subtitle())

    def test_requests_of_the_driver_are_not_called_physical(self):
        fields = {"is_native": True, "physical_peak_bytes": 2 << 20}
        own_chunks = self.picture(requested_bytes=[1 << 20], physical_bytes=[2 << 20], **fields)
        self.assertIn("peak requested of the driver 2 MiB", own_chunks.subtitle())
        alone = self.picture(requested_bytes=[2 << 20], physical_bytes=[2 << 20], **fields)
        self.assertFalse(alone.has_backing)

    def test_a_limit_may_change(self):
        fields = {"begin_ns": 100, "limit_bytes": None, "device_bytes": 8 << 20}
        picture = self.picture(limits=[{"time_ns": 200, "bytes": 2 << 20}, {"time_ns": 300, "bytes": None}], **fields)
        self.assertEqual(picture.limit_steps(), [(0, 8 << 20), (100, 2 << 20), (200, 8 << 20)])
        self.assertEqual(picture.limit(), (8 << 20, "limit (2 MiB to 8 MiB)"))
        picture = self.picture(limits=[{"time_ns": 100, "bytes": 2 << 20}], **fields)
        self.assertEqual(picture.limit(), (2 << 20, "limit (2 MiB)"))
        self.assertEqual(self.picture(**fields).limit(), (8 << 20, "device memory (8 MiB)"))

    def test_a_refusal_is_shown_even_if_no_memory_was_taken(self):
        picture = self.picture(requested_peak_bytes=0, refusal_count=1, largest_refusal_bytes=1 << 30,
                               refusals=[{"time_ns": 0, "asked_bytes": 1 << 30}])
        self.assertTrue(picture.has_timeline)
        self.assertEqual(picture.subtitle(), "device 1 · no device memory was taken · "
                         "1 allocation refused (largest 1 GiB)")

    def test_lifetimes_have_three_digits(self):
        for value, words in ((1, "1 µs"), (128, "128 µs"), (4096, "4.1 ms"), (131_072, "131 ms"),
                             (1 << 30, "1074 s")):
            self.assertEqual(data.microseconds(value), words)

    def test_a_long_name_keeps_its_ends(self):
        self.assertEqual(data.shortened("short", 5), "short")
        self.assertEqual(data.shortened("0123456789", 7), "012…789")
        self.assertEqual(data.shortened("日" * 10, 9), "日日…日日")


class Pictures(PlotTest):
    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_png_is_legible_and_not_blank(self):
        one = self.draw("eins zwei ü.png", frag_trace("vmm"))
        self.assertEqual(one[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreaterEqual(png_size(one)[0], 1200)
        self.assertGreater(len(set(png_bytes(one))), 50)
        two = self.draw("two.png", frag_trace("monitor"), frag_trace("vmm"))
        self.assertGreater(png_size(two)[0], png_size(one)[0])

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_svg_has_its_words_as_text(self):
        content = text(self.draw("one.svg", frag_trace("vmm")))
        for words in ("requested", "physical", "unmapped", "MiB"):
            self.assertIn(words, content)
        content = text(self.draw("one.svg", frag_trace("monitor")))
        self.assertIn("refused", content)
        self.assertNotIn("physical", content)

    def test_html_is_self_contained(self):
        content = text(self.draw("one.html", frag_trace("monitor"), frag_trace("vmm")))
        self.assertNotRegex(content, r'<(script|link|img|iframe)[^>]*\b(src|href)="?(https?:)?//')
        self.assertNotRegex(content, r"@[A-Z]+@")
        self.assertIn("data:image/png;base64,", content)

    def test_html_of_four_long_traces_has_at_most_2_mb(self):
        made = self.path("made.trace")
        run(os.path.join(BUILD, "bin", "cuvmm_make_trace"), 300_000, made)
        content = self.draw("four.html", *[made] * 4)
        self.assertLess(len(content), 2_000_000)

    def test_markup_in_a_name_is_text_in_html(self):
        trace = self.path("</script><b>.trace".replace("/", ":"))
        os.symlink(frag_trace("vmm"), trace)
        content = text(self.draw("one.html", trace))
        self.assertNotIn("<b>", content.partition("</style>")[2])

    def test_placeholders_in_a_name_are_text_in_html(self):
        trace = self.path("@DATA@ @SCRIPT@.trace")
        os.symlink(frag_trace("vmm"), trace)
        content = text(self.draw("one.html", trace))
        self.assertIn("<title>cuvmm: @DATA@ @SCRIPT@</title>", content)

    def test_a_name_may_be_of_any_bytes(self):
        trace = self.path(os.fsdecode(b"caf\xe9\n\x1b[1m.trace"))
        os.symlink(frag_trace("vmm"), trace)
        self.assertIn("cuvmm: caf\ufffd\ufffd\ufffd[1m<", text(self.draw("one.html", trace)))
        if can_draw("matplotlib"):
            self.draw("one.svg", trace)

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_a_name_may_be_long_and_in_any_script(self):
        trace = self.path("日本語" * 25 + ".trace")
        os.symlink(frag_trace("vmm"), trace)
        self.assertTrue(re.search("[日本語]…[日本語]", text(self.draw("one.svg", trace))))

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_the_memory_axis_reaches_what_pytorch_requested(self):
        timeline = "[float(one.get_ylim()[1]) for one in axes if 'memory (' in one.get_ylabel()]"
        for traces in ([self.history()], [frag_trace("monitor"), self.history()]):
            for limit in json.loads(self.told(timeline, *traces)):
                self.assertAlmostEqual(limit, 1.12 * (64 << 20), delta=1)

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_a_recording_by_pytorch_has_only_what_it_contains(self):
        content = text(self.draw("history.svg", self.history()))
        self.assertIn("requested", content)
        for words in ("physical", "mapped", "device memory", "granted"):
            self.assertNotIn(words, content)

    def test_pictures_in_html_share_the_scale_of_memory(self):
        bounds = [one["memory_bound"]
                  for one in self.in_html(frag_trace("monitor"), frag_trace("vmm"), self.history())]
        self.assertEqual(len(set(bounds)), 1)
        self.assertGreater(bounds[0], 128 << 20)  # frag_test maps more than the device has
        self.assertEqual(self.in_html(self.history())[0]["memory_bound"], 64 << 20)

    def test_memory_that_is_not_mapped_has_its_timeline(self):
        trace = self.without_a_map()
        (picture,) = self.in_html(trace)
        self.assertEqual((picture["has_map"], picture["has_timeline"]), (False, True))
        self.assertIn("peak physical 2 MiB", picture["subtitle"])
        if can_draw("matplotlib"):
            content = text(self.draw("unmapped.svg", trace))
            self.assertIn("physical", content)
            self.assertNotIn("addresses", content)
            self.draw("both.png", trace, frag_trace("vmm"))

    def test_nothing_to_draw_is_a_one_line_error(self):
        trace = self.history(AT_THE_END)
        for ending in ["html"] + ["png"] * can_draw("matplotlib"):
            finished = cuvmm("plot", trace, "-o", self.path("x." + ending))
            self.assertEqual(finished.returncode, 1)
            self.assert_one_line(finished.stderr)
            self.assertIn("nothing to draw", text(finished.stderr))
            self.assertFalse(os.path.exists(self.path("x." + ending)))

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_each_legend_stands_above_its_own_panel(self):
        above = ("[bool(one.get_legend().get_window_extent().y0 >= one.get_window_extent().y1 - 2) "
                 "for one in axes if one.get_legend() and 'size' not in one._left_title.get_text()]")
        self.assertEqual(self.told(above, frag_trace("vmm")), str([True] * 3))

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_the_words_above_the_histograms_of_four_traces_do_not_overlap(self):
        overlaps = ("[bool(one.get_legend().get_window_extent().overlaps("
                    "one._left_title.get_window_extent())) "
                    "for one in axes if one.get_legend() and 'size' in one._left_title.get_text()]")
        # Wide numbers on the axes leave less room.
        many = [f"{time},alloc,{0x7f0000000000 + 4096 * time:x},4096,0" for time in range(1200)]
        history = self.history("\n".join([HISTORY.splitlines()[0], *many, ""]))
        self.assertEqual(self.told(overlaps, *[history] * 4), str([False] * 4))

    def python(self, *words):
        return run(python_for_plots(), "-B", "-m", "cuvmm.plot", *words,
                   env={"PYTHONPATH": os.path.join(ROOT, "python")})

    def test_an_unforeseen_failure_is_a_one_line_error(self):
        path = self.path("data.json")
        for content in ('{"schema": 1, "pictures": [{"command": []}]}', "[]", "not\njson"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            finished = self.python(path, "-o", self.path("x.html"))
            self.assertEqual(finished.returncode, 1)
            self.assert_one_line(finished.stderr)

    def test_a_picture_never_replaces_its_input(self):
        trace = self.history(name="history.html")
        finished = self.python(self.data_of(trace), "-o", trace, "--label=" + trace)
        self.assertEqual(finished.returncode, 2)
        self.assert_one_line(finished.stderr)
        with open(trace, encoding="utf-8") as file:
            self.assertEqual(file.read(), HISTORY)

    @unittest.skipUnless(can_draw("matplotlib"), "no matplotlib here")
    def test_visualize_draws_a_log(self):
        log = self.path("a log.txt")
        self.good("run", "--sim=memory=64M", "--mode", "vmm", "--log-level", "info", "--log-file",
                  log, "--", os.path.join(BUILD, "bin", "frag_test"))
        path = self.path("log.png")
        finished = run(os.path.join(ROOT, "tools", "visualize.py"), log, "-o", path,
                       env={"PATH": os.path.abspath(os.path.join(BUILD, "bin")) + ":" +
                            os.environ["PATH"]})
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        self.assertGreater(os.path.getsize(path), 10_000)

    def test_an_output_that_cannot_be_written_is_named_without_the_draft(self):
        if os.geteuid() == 0:
            os.mkdir(self.path("y.html"))  # root may write anywhere, but not replace a folder
            words, why = self.path("y.html"), "Is a directory"
        else:
            os.mkdir(self.path("locked"), 0o500)
            words, why = os.path.join(self.path("locked"), "x.html"), "Permission denied"
        finished = cuvmm("plot", frag_trace("vmm"), "-o", words)
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(text(finished.stderr), f"cuvmm: {words}: {why}\n")

    def test_a_python_that_is_missing_is_a_one_line_error(self):
        finished = cuvmm("plot", frag_trace("vmm"), "-o", self.path("x.png"),
                         env={"CUVMM_PYTHON": "/nonexistent/python"})
        self.assertEqual(finished.returncode, 1)
        self.assertIn("CUVMM_PYTHON names no Python that can be run", text(finished.stderr))
        self.assertEqual([name for name in os.listdir(os.path.dirname(self.path("x")))
                          if name.startswith("x")], [])

    def python_that_kills_itself(self, with_signal):
        path = self.path("python")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\nkill -{with_signal} $$\n")
        os.chmod(path, 0o755)
        return path

    def test_a_python_that_is_killed_is_a_one_line_error(self):
        python = self.python_that_kills_itself("KILL")
        finished = cuvmm("plot", frag_trace("vmm"), "-o", self.path("x.html"), env={"CUVMM_PYTHON": python})
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(text(finished.stderr), f"cuvmm: {python} was killed: Killed\n")

    def test_ctrl_c_while_it_draws_ends_it(self):
        finished = cuvmm("plot", frag_trace("vmm"), "-o", self.path("x.html"),
                         env={"CUVMM_PYTHON": self.python_that_kills_itself("INT")})
        self.assertEqual((finished.returncode, text(finished.stderr)), (-signal.SIGINT, ""))

    def test_ctrl_c_while_it_draws_leaves_no_traceback(self):
        # It waits for data that never ends.
        path = self.path("endless.json")
        os.mkfifo(path)
        drawing = subprocess.Popen([python_for_plots(), "-B", "-m", "cuvmm.plot", path, "-o", self.path("x.html")],
                                   env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python")),
                                   stderr=subprocess.PIPE)
        self.addCleanup(drawing.kill)
        with open(path, "w", encoding="ascii") as endless:
            endless.write("{")
            endless.flush()
            drawing.send_signal(signal.SIGINT)
            self.assertEqual(drawing.wait(60), -signal.SIGINT)
        self.assertEqual(drawing.stderr.read(), b"")
        drawing.stderr.close()

    def test_ctrl_c_ends_the_demo(self):
        finished = cuvmm("demo", "--sim", "-o", self.path("demo"),
                         env={"CUVMM_PYTHON": self.python_that_kills_itself("INT")})
        self.assertEqual(finished.returncode, -signal.SIGINT)
        self.assertNotIn("== shown", text(finished.stdout))


if __name__ == "__main__":
    main()
