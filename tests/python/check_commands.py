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
        self.assertEqual(cuvmm.run(["false"], sim=True, check=False).returncode, 1)

    def test_env_converts_booleans_and_simulator_settings(self):
        variables = cuvmm.env({}, control=True, publish=False, sim={"memory": "8G", "devices": 2})
        self.assertEqual(variables["VMM_CONTROL"], "on")
        self.assertEqual(variables["VMM_PUBLISH"], "off")
        self.assertEqual(variables["VMM_SIM_MEMORY"], "8G")
        self.assertEqual(variables["VMM_SIM_DEVICES"], "2")
        self.assertIn("sim", variables["LD_LIBRARY_PATH"])

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
        while len([one for one in cuvmm.top() if one["live_bytes"]]) < 2:
            self.assertLess(time.monotonic(), until, "the programs never allocated")
            time.sleep(0.02)
        programs = {one["process"]: one["live_bytes"] for one in cuvmm.top()}
        report = cuvmm.pause(launcher.pid)
        self.assertGreaterEqual(report.moved, sum(programs.values()))
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
