# SPDX-License-Identifier: Apache-2.0
"""`cuvmm cdi generate`: what it describes, and what it refuses.

    check_cdi.py BUILD
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
CUVMM = os.path.join(BUILD, "bin", "cuvmm")
SIM = "--sim=devices=2,memory=8G"


def generate(*words, **environment):
    known = {name: value for name, value in os.environ.items() if not name.startswith("VMM_")}
    known.pop("XDG_RUNTIME_DIR", None)
    return subprocess.run([CUVMM, "cdi", "generate", *words], capture_output=True, text=True,
                          env=known | environment, timeout=60, check=False)


class Specification(unittest.TestCase):
    def described(self, *words, **environment):
        done = generate(SIM, *words, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, *words, because):
        done = generate(*words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn(because, done.stderr)

    def test_each_card_has_each_share(self):
        spec = self.described("--shares", "4G,1.5G,50%", "--node-socket", "none")
        self.assertEqual((spec["cdiVersion"], spec["kind"]), ("0.5.0", "cuvmm.dev/share"))
        limits = {device["name"]: device["containerEdits"]["env"][0] for device in spec["devices"]}
        half = f"VMM_LIMIT={4 << 30}"
        some = f"VMM_LIMIT={3 << 29}"
        self.assertEqual(limits, {"gpu0-4g": half, "gpu0-1.5g": some, "gpu0-50pct": half,
                                  "gpu1-4g": half, "gpu1-1.5g": some, "gpu1-50pct": half})
        cards = {device["containerEdits"]["env"][1] for device in spec["devices"]}
        self.assertEqual(len(cards), 2)

    def test_mounts_exist_and_are_read_only(self):
        for mount in self.described("--node-socket", "none")["containerEdits"]["mounts"]:
            self.assertTrue(os.path.exists(mount["hostPath"]), mount)
            self.assertIn("ro", mount["options"])

    def test_the_list_of_preloads_names_the_stub_where_it_is_mounted(self):
        mounts = {mount["containerPath"]: mount["hostPath"]
                  for mount in self.described("--node-socket", "none")["containerEdits"]["mounts"]}
        with open(mounts["/etc/ld.so.preload"], encoding="utf-8") as file:
            stub = file.read().strip()
        self.assertTrue(mounts[stub].endswith("libcuvmm_stub.so"))
        # The engine is mounted beside the stub.
        self.assertIn(os.path.join(os.path.dirname(stub), "libcuvmm_preload.so"), mounts)

    def test_the_environment_can_preload_instead(self):
        edits = self.described("--preload", "environment", "--node-socket", "none")["containerEdits"]
        self.assertIn("LD_PRELOAD=/opt/cuvmm/libcuvmm_stub.so", edits["env"])
        self.assertNotIn("/etc/ld.so.preload", [mount["containerPath"] for mount in edits["mounts"]])

    def test_the_folder_of_the_service_is_mounted(self):
        with tempfile.TemporaryDirectory() as folder:
            edits = self.described("--node-socket", f"{folder}/own.sock")["containerEdits"]
            self.assertIn("VMM_NODE_SOCKET=/run/cuvmm/own.sock", edits["env"])
            self.assertIn((folder, "/run/cuvmm"), [(mount["hostPath"], mount["containerPath"])
                                                   for mount in edits["mounts"]])
            os.mkdir(f"{folder}/cuvmm")
            edits = self.described(XDG_RUNTIME_DIR=folder)["containerEdits"]
            self.assertIn("VMM_NODE_SOCKET=/run/cuvmm/cuvmmd.sock", edits["env"])

    def test_every_known_version_can_be_generated(self):
        for version in ("0.3.0", "0.6.0", "1.0.0"):
            self.assertEqual(self.described("--cdi-version", version)["cdiVersion"], version)
        self.refused(SIM, "--cdi-version", "0.5", because="0.3.0 to 1.0.0")

    def test_a_file_is_replaced_atomically(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cuvmm.json")
            for shares in ("1G", "2G"):
                self.assertEqual(generate(SIM, "--shares", shares, "-o", path).returncode, 0)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(len(json.load(file)["devices"]), 2)
            self.assertEqual(generate(SIM, "--shares", "9G", "-o", path).returncode, 2)
            self.assertEqual(os.listdir(folder), ["cuvmm.json"])
            missing = generate(SIM, "-o", os.path.join(folder, "none", "cuvmm.json"))
            self.assertEqual(missing.returncode, 1)
            self.assertIn("none/cuvmm.json", missing.stderr)

    def test_wrong_shares_are_named(self):
        self.refused(SIM, "--shares", "9G", because="9G is more than device 0 has, 8.00 GiB")
        self.refused(SIM, "--shares", "4G,much", because="'much'")
        self.refused(SIM, "--shares", "0", because="'0'")
        self.refused(SIM, "--shares", "none", because="'none'")
        self.refused(SIM, "--shares", "4G,4g", because="twice")
        self.refused(SIM, "--shares", ",", because="''")
        self.refused(SIM, "--node-socket", "here.sock", because="absolute")
        self.refused("--sim=devices=x", because="devices")


if __name__ == "__main__":
    unittest.main()
