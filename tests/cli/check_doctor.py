# SPDX-License-Identifier: Apache-2.0
"""`cuvmm doctor` reports the environment, survives broken parts, and has a reliable exit status."""

import glob
import json
import os
import shutil
import subprocess
import unittest

from cli_support import BUILD, CUVMM, CliTest, cuvmm, main, text

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNTIMES = sorted(glob.glob(os.path.join(ROOT, ".venv/runtimes/*/nvidia/*/lib")))


class Doctor(CliTest):
    def findings(self, *words, status=0, **more):

        finished = cuvmm("doctor", "--json", *words, **more)
        self.assertEqual(finished.returncode, status, text(finished.stdout + finished.stderr))
        all_of_it = json.loads(finished.stdout)
        self.assertEqual(all_of_it["schema"], 1)
        return {one["what"]: one for one in all_of_it["findings"]}

    def test_all_is_well_with_the_simulated_driver(self):
        findings = self.findings("--sim")
        for what in ("cuvmm", "preload library", "driver", "device 0", "virtual memory", "granule",
                     "preload"):
            self.assertEqual(findings[what]["verdict"], "good", findings[what])
            self.assertEqual(findings[what]["remedy"], "")
        self.assertIn("cuGetProcAddress", findings["preload"]["text"])

    @unittest.skipUnless(RUNTIMES, "no CUDA runtime below .venv/runtimes (./dev test installs them)")
    def test_runs_a_program_of_the_cuda_runtime(self):
        for folder in RUNTIMES:
            findings = self.findings("--sim", env={"LD_LIBRARY_PATH": folder})
            self.assertEqual(findings["CUDA runtime"]["verdict"], "good", findings)
            self.assertIn("starts", findings["CUDA runtime"]["text"])

    @unittest.skipUnless(RUNTIMES, "no CUDA runtime below .venv/runtimes (./dev test installs them)")
    def test_detects_a_runtime_without_a_private_table(self):
        findings = self.findings("--sim", status=1, env={
            "LD_LIBRARY_PATH": RUNTIMES[0],
            "VMM_SIM_FAULT": "cuGetExportTable:2=CUDA_ERROR_NOT_FOUND"})
        self.assertEqual(findings["CUDA runtime"]["verdict"], "bad")
        self.assertIn("private table", findings["CUDA runtime"]["remedy"])

    def test_checks_every_device(self):
        findings = self.findings("--sim", env={"VMM_SIM_DEVICES": "3", "VMM_SIM_MEMORY": "64M"})
        self.assertIn("64.0 MiB", findings["device 2"]["text"])

    @unittest.skipUnless(shutil.which("cc"), "no C compiler here")
    def test_other_checks_survive_a_crashing_driver(self):
        source = self.path("driver.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("__attribute__((constructor)) static void fall(void) { __builtin_trap(); }\n")
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", self.path("libcuda.so.1")],
                       check=True)
        findings = self.findings(status=1, env={"LD_LIBRARY_PATH": os.path.dirname(source)})
        self.assertIn("crashed", findings["driver"]["text"])
        self.assertIn("open files", findings)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a driver")
    def test_a_damaged_driver_is_not_a_missing_one(self):
        with open(self.path("libcuda.so.1"), "wb") as file:
            file.write(b"damaged" * 100)
        damaged = {"LD_LIBRARY_PATH": os.path.dirname(self.path("libcuda.so.1"))}
        driver = self.findings(status=1, env=damaged)["driver"]
        self.assertEqual(driver["verdict"], "bad")
        self.assertRegex(driver["text"], "cannot be loaded: .*libcuda.so.1: ")
        ran = cuvmm("run", "--", "true", env=damaged)
        self.assertIn("the CUDA driver cannot be loaded: ", text(ran.stderr))

    def test_remedies_for_the_simulated_driver_do_not_name_nvidias_tools(self):
        findings = self.findings("--sim", status=1, env={"VMM_SIM_DEVICES": "0"})
        self.assertEqual(findings["devices"]["verdict"], "bad")
        self.assertNotIn("nvidia-smi", findings["devices"]["remedy"])

    def test_a_failed_check_is_marked_and_names_a_remedy(self):
        finished = cuvmm("doctor", "--sim", env={"VMM_SIM_FAULT": "cuInit:1=CUDA_ERROR_NO_DEVICE"})
        self.assertEqual(finished.returncode, 1)
        lines = text(finished.stdout).splitlines()
        bad = [i for i, line in enumerate(lines) if line.startswith("✗")]
        self.assertTrue(bad)
        self.assertIn("→", lines[bad[0] + 1])

    def test_fix_hints_prints_only_the_remedies(self):
        findings = self.findings("--sim", status=1,
                                 env={"VMM_SIM_FAULT": "cuInit:1=CUDA_ERROR_NO_DEVICE"})
        wanted = [f"{what}: {one['remedy']}" for what, one in findings.items() if one["remedy"]]
        self.assertTrue(wanted)
        finished = cuvmm("doctor", "--sim", "--fix-hints",
                         env={"VMM_SIM_FAULT": "cuInit:1=CUDA_ERROR_NO_DEVICE"})
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(sorted(text(finished.stdout).splitlines()), sorted(wanted))

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_names_a_folder_that_another_user_owns(self):
        number = 54322
        taken = [f"{shared}/cuvmm-{number}" for shared in ("/tmp", "/dev/shm")]
        for folder in taken:
            os.mkdir(folder)
            self.addCleanup(shutil.rmtree, folder)
        finished = subprocess.run(
            ["setpriv", f"--reuid={number}", "--clear-groups", CUVMM, "doctor", "--sim", "--json"],
            env={"PATH": os.environ["PATH"]}, capture_output=True, timeout=60, check=False)
        if b"Permission denied" in finished.stderr and b"setpriv" in finished.stderr:
            self.skipTest("the build is not to be reached by another user")
        folders = [one for one in json.loads(finished.stdout)["findings"]
                   if one["what"] == "socket folder"]
        self.assertEqual(folders[0]["verdict"], "good", folders)
        self.assertTrue(folders[0]["text"].startswith(taken[0] + "-"), folders)
        shutil.rmtree(folders[0]["text"])
        for folder, one in zip(taken, folders[1:]):
            self.assertEqual(one["verdict"], "limited")
            self.assertIn(f"{folder} is not used", one["text"])
            self.assertTrue(one["remedy"])

    def test_a_report_can_be_pasted(self):
        out = self.good("doctor", "--sim", "--report", env={"VMM_LIMIT": "1G"})
        self.assertTrue(out.startswith("```\n") and out.endswith("```\n"))
        self.assertIn("VMM_LIMIT=1G", out)
        self.assertNotIn("\033", out)

    def test_it_runs_without_home_terminal_or_runtime_folder(self):
        self.findings("--sim", without=("HOME", "TERM", "XDG_RUNTIME_DIR", "USER"))

    def test_finds_hooks_missing_without_the_preload_library(self):
        sim = os.path.join(BUILD, "lib", "cuvmm", "sim")
        self.assertIn("dlsym", text(cuvmm("doctor", "--doors", env={"LD_LIBRARY_PATH": sim}).stdout))


if __name__ == "__main__":
    main()
