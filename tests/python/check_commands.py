#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line from Python: runs, pauses and lists programs, and displays traces.

CUVMM_BUILD is the build tree.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CUVMM_BUILD", "build")).resolve()
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import cuvmm  # noqa: E402
import cuvmm.ray  # noqa: E402
from cuvmm import _options  # noqa: E402
from histories import fragmented  # noqa: E402

SIM = {"memory": "64M"}


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cuvmm-py-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = folder.name
        self.addCleanup(lambda: os.environ.pop("XDG_RUNTIME_DIR") if before is None
                        else os.environ.update(XDG_RUNTIME_DIR=before))

    def trace(self):
        path = self.folder / "run.trace"
        base = dict(os.environ)
        with open(os.devnull, "w", encoding="ascii") as nowhere:
            kept = os.dup(1), os.dup(2)
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            try:
                cuvmm.run([BUILD / "bin" / "frag_test"], base=base, sim=SIM, trace_file=path)
            finally:
                os.dup2(kept[0], 1)
                os.dup2(kept[1], 2)
                os.close(kept[0])
                os.close(kept[1])
        return path

    def test_the_version_is_the_librarys(self):
        self.assertEqual(cuvmm.__version__, cuvmm.version())
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        self.assertIn(f'version = "{cuvmm.__version__}"', project)

    def test_run_runs_a_program_under_cuvmm(self):
        stats = cuvmm.stats(self.trace())
        self.assertEqual(stats["mode"], "VMM")
        self.assertGreater(stats["allocations"], 100)
        with self.assertRaises(subprocess.CalledProcessError):
            cuvmm.run(["false"], sim=True)
        with self.assertRaises(ValueError):
            cuvmm.run([])
        self.assertEqual(cuvmm.run(["false"], sim=True, check=False).returncode, 1)

    def test_env_converts_booleans_and_simulator_settings(self):
        variables = cuvmm.env({}, control=True, publish=False, sim={"memory": "8G", "devices": 2})
        self.assertEqual(variables["VMM_CONTROL"], "on")
        self.assertEqual(variables["VMM_PUBLISH"], "off")
        self.assertEqual(variables["VMM_SIM_MEMORY"], "8G")
        self.assertEqual(variables["VMM_SIM_DEVICES"], "2")
        self.assertIn("sim", variables["LD_LIBRARY_PATH"])

    def test_env_and_a_ray_share_refuse_invalid_values(self):
        for name, value in (("limit", "banana"), ("limit", 0.5), ("limit", True), ("weight", 0),
                            ("cap", 0), ("cap", 101), ("guarantee", "x"), ("wait", 5),
                            ("stacks", 0), ("spill", "off:1G"), ("spill_peers", "1,1")):
            for make in (lambda **options: cuvmm.env({}, **options),
                         lambda **options: cuvmm.ray.share(0.25, **options)):
                with self.assertRaisesRegex(ValueError, f"invalid {name}: .*; allowed: "):
                    make(**{name: value})
        with self.assertRaisesRegex(TypeError, "no option speed"):
            cuvmm.env({}, speed=3)

    def test_env_refuses_a_limit_without_its_unit(self):
        with self.assertRaisesRegex(ValueError, "at least 2 MiB; 16 is 16 bytes, 16G is 16 GiB"):
            cuvmm.env({}, limit=16)
        self.assertEqual(cuvmm.env({}, limit="2M")["VMM_LIMIT"], "2M")

    def test_env_refuses_invalid_simulator_settings(self):
        with self.assertRaisesRegex(TypeError, "no setting memry; there are devices, memory"):
            cuvmm.env({}, sim={"memry": "8G"})
        for no_mapping in ("memory=8G", 1, None):
            with self.assertRaisesRegex(TypeError, "mapping"):
                cuvmm.env({}, sim=no_mapping)
        for name, value in (("memory", "much"), ("devices", 9), ("driver", 13), ("order", "soon"),
                            ("fault", "cuMemMap=1"), ("delay", "cuMemMap"), ("granularity", 3)):
            with self.assertRaisesRegex(ValueError, f"invalid {name}: .*; allowed: "):
                cuvmm.env({}, sim={name: value})

    def test_simulator_settings_accept_what_the_library_accepts(self):
        table = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `VMM_SIM_(\w+)` \|[^|]*\| ([^|]*) \|", table, re.M)
        self.assertEqual([name.lower() for name, _ in rows], list(_options.SIM_OPTIONS))
        for name, allowed in rows:
            if allowed != "any text":  # checked by the command line only
                self.assertEqual(_options.SIM_OPTIONS[name.lower()].allowed, allowed)
        values = ["0", "1", "8", "9", "8G", "1.5GiB", "2M", "3M", "4K", "2K", "12.4", "13.0", "13", "1000.0", "1.100",
                  "eager", "LAZY", "random", "random:42", "random:x", "on", "off", "memory", "none",
                  "report", "debug", "a.b-c_d", ".a", "x" * 64, "x" * 65, "a b", " a ", "é"]
        for value in values:
            given = {**os.environ, **{f"VMM_SIM_{name}": value for name, _ in rows}}
            said = subprocess.run([BUILD / "bin" / "cuvmm", "config", "--sim"], env=given, check=False,
                                  capture_output=True).stderr.decode()
            for name, allowed in rows:
                if allowed != "any text":
                    self.assertEqual(_options.SIM_OPTIONS[name.lower()].accepts(value),
                                     f"VMM_SIM_{name}: " not in said, f"{name}={value!r}: {said}")
        for fault in ("cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY", "cuMemMap:1=SIGKILL, cuInit:2=CUDA_ERROR_UNKNOWN"):
            self.assertTrue(_options.SIM_OPTIONS["fault"].accepts(fault))
        self.assertTrue(_options.SIM_OPTIONS["delay"].accepts("cuMemMap=25us,cuInit=1ms"))

    def test_a_ray_worker_of_many_gpus_has_a_weight_that_the_library_accepts(self):
        self.assertEqual(cuvmm.ray.environment({"num_gpus": 200}, {})["VMM_WEIGHT"], "10000")

    def test_env_knows_every_option_and_what_it_allows(self):
        table = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `VMM_(?!SIM_)(\w+)` \|[^|]*\| ([^|]*) \|", table, re.M)
        self.assertEqual({name: kind.allowed for name, kind in _options.OPTIONS.items()},
                         {name.lower(): allowed for name, allowed in rows})

    def test_env_accepts_exactly_the_values_that_the_library_accepts(self):
        values = ["0", "1", "-1", "100", "-100", "101", "10000", "10001", "1023", "1024", "0,1",
                  "1,0, 2", "1,1", "1,", "8G", "8 g", "1.5GiB", " 2M ", "0.5", "8.0", "1.0001B", "8X",
                  "8Gi", "8iB", "16E", "15E", "18446744073709551615", "18446744073709551616",
                  "50%", "100.0%", "100.5%", "101%", "50 %", "0%", "%", "none", "Unlimited", "1.",
                  ".5G", "1s", "50US", "1.5h", "24h", "24.1h", "1d", "0us", "0.0", "-1s", "on", "OFF",
                  "all", "auto", "host", "host:32G", "auto:50%", "peer:none", "peer: 1G", "host:",
                  "off:1G", "monitor", "VMM ", "tight", "require", "fair", "debug", "banana", "٣",
                  "1_000", "+1", "1e9", "\t1", "0.0001K"]
        for value in values:
            given = {**os.environ, **{f"VMM_{name.upper()}": value for name in _options.OPTIONS
                                      if name != "log_file"}}
            said = subprocess.run([BUILD / "bin" / "cuvmm", "config"], env=given, check=False,
                                  capture_output=True).stderr.decode()
            # The library accepts limits that the commands take for mistakes.
            lines = [line for line in said.splitlines() if "a limit must be" not in line]
            for name, kind in _options.OPTIONS.items():
                refused = any(f"VMM_{name.upper()}: " in line for line in lines)
                self.assertEqual(kind.accepts(value), not refused, f"{name}={value!r}: {said}")

    def test_another_process_can_be_paused_listed_and_resumed(self):
        program = subprocess.Popen(
            [BUILD / "bin" / "take_turns", "--memory", "25", "--steps", "100000", "--rest", "5"],
            env=cuvmm.env(sim={"memory": "256M"}, control=True), stdout=subprocess.DEVNULL)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        until = time.monotonic() + 60
        while not list((self.folder / "cuvmm").glob(f"control-{program.pid}-*")):
            self.assertLess(time.monotonic(), until, "it never opened its socket")
            time.sleep(0.02)
        while not any(one["process"] == program.pid for one in cuvmm.top()):
            self.assertLess(time.monotonic(), until, "top never saw it")
            time.sleep(0.02)
        while cuvmm.pause(program.pid).moved == 0:  # it has not allocated yet
            cuvmm.resume(program.pid)
            self.assertLess(time.monotonic(), until)
        report = cuvmm.resume(program.pid)
        self.assertGreater(report.moved, 0)
        self.assertGreaterEqual(report.took_us, report.maps_us)
        # Its card is not shared, so the simulated driver cannot take it off.
        paused = cuvmm.pause(program.pid, deep=True)
        self.assertGreater(paused.moved, 0)
        self.assertFalse(paused.off_devices)
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", paused.why)
        self.assertGreater(cuvmm.resume(program.pid).moved, 0)

    def test_a_launcher_stands_for_all_of_its_programs(self):
        turns = f"{BUILD}/bin/take_turns --memory 25 --steps 100000 --rest 5 & "
        launcher = subprocess.Popen(
            [BUILD / "bin" / "cuvmm", "run", "--quiet", "--control", "--sim=memory=256M", "--",
             "sh", "-c", turns * 2 + "wait"], stdout=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(launcher.wait)
        self.addCleanup(lambda: os.killpg(launcher.pid, signal.SIGKILL))
        until = time.monotonic() + 60
        share = 64 << 20
        programs = []
        while len(programs) < 2:  # a program of an earlier test may still be ending
            self.assertLess(time.monotonic(), until, "the programs never allocated")
            time.sleep(0.02)
            programs = [one["process"] for one in cuvmm.top() if one["live_bytes"] == share]
        report = cuvmm.pause(launcher.pid)
        self.assertEqual(report.moved, 2 * share)
        for process in programs:
            self.assertGreater(cuvmm.resume(process).moved, 0)
        self.assertEqual(cuvmm.resume(launcher.pid).moved, 0, "all are back")

    def test_pausing_an_unreachable_process_raises(self):
        with self.assertRaisesRegex(cuvmm.NotFound, "no such process"):
            cuvmm.pause(99999999)
        with self.assertRaisesRegex(cuvmm.NotFound, "no control socket"):
            cuvmm.resume(os.getpid())
        for wrong in (0, -1, True, 1.5):
            with self.assertRaises(cuvmm.InvalidArgument):
                cuvmm.pause(wrong)

    def test_reads_and_advises_on_foreign_traces(self):
        path = fragmented().dump(self.folder / "s.pickle")
        self.assertEqual(cuvmm.stats(path)["source"], "PyTorch memory snapshot")
        self.assertEqual(cuvmm.advise(path)["verdict"], "expandable_segments")
        self.assertEqual(cuvmm.advise(path, limit="8G")["verdict"], "fits")
        with self.assertRaises(FileNotFoundError):
            cuvmm.stats(self.folder / "none")
        with self.assertRaises(FileNotFoundError):
            cuvmm.Trace(self.folder / "none")

    def test_a_path_that_begins_with_a_dash_is_a_path(self):
        fragmented().dump(self.folder / "-s.pickle")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.assertEqual(cuvmm.stats("-s.pickle")["source"], "PyTorch memory snapshot")
        self.assertEqual(cuvmm.advise("-s.pickle", limit="8G")["verdict"], "fits")
        cuvmm.Trace("-s.pickle").plot("-plot.json")
        self.assertTrue((self.folder / "-plot.json").exists())
        with self.assertRaises(FileNotFoundError):
            cuvmm.stats("--help")

    def test_a_notebook_shows_a_trace(self):
        trace = cuvmm.Trace(self.trace())
        shown = trace._repr_html_()
        self.assertIn("<td>live_peak_bytes</td>", shown)
        trace.plot(self.folder / "data.json")
        self.assertTrue((self.folder / "data.json").exists())
        svg = trace._repr_svg_()
        if svg is None:
            self.skipTest("no matplotlib here")
        self.assertRegex(svg, re.compile(r"<svg.*</svg>", re.S))
        self.assertIn("<svg", shown)


if __name__ == "__main__":
    unittest.main()
