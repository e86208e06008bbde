#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kubernetes and cuvmm's programs accept the manifests in tools/kubernetes.

    check_manifests.py BUILD ROOT
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

BUILD, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
FOLDER = ROOT / "tools/kubernetes"
VERSIONS = ("1.29", "1.36")  # the oldest that Kubernetes still packaged, and a recent one
DRA_VERSION = "1.36"         # consumable capacity is beta


def objects(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def daemon_set(name):
    return next(one for one in objects(name) if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]


class Manifests(unittest.TestCase):
    def test_are_valid(self):
        for name in ("cuvmm.yaml", "cuvmm-sim.yaml", "pod.yaml"):
            for one in objects(name):
                for version in VERSIONS:
                    with self.subTest(name=name, kind=one["kind"], version=version):
                        kubernetes_validate.validate(one, version, strict=True)

    def test_the_dra_manifests_are_valid(self):
        kinds = []
        for one in objects("dra-design.yaml"):
            kubernetes_validate.validate(one, DRA_VERSION, strict=True)
            kinds.append(one["kind"])
        self.assertEqual(kinds, ["ResourceSlice", "DeviceClass", "ResourceClaimTemplate", "Pod"])

    def test_validation_can_fail(self):
        wrong = objects("cuvmm.yaml")[1]
        wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "cuvmm"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)

    def test_commands_match_our_programs_options(self):
        card = f"manifest-{os.getpid()}"
        self.addCleanup(Path(f"/dev/shm/cuvmm-sim-card-{os.getuid()}-{card}").unlink, True)
        for name in ("cuvmm.yaml", "cuvmm-sim.yaml"):
            for container in daemon_set(name)["containers"]:
                program, *options = container["command"]
                options = [option for option in options
                           if not option.startswith(("--libraries", "--sim"))]
                if program == "cuvmm-device-plugin":
                    options.append(f"--libraries={BUILD}/lib")
                ended = subprocess.run(
                    [BUILD / "bin" / program, *options, "--check",
                     f"--sim=card={card},memory=8G"],
                    capture_output=True, text=True, timeout=30, check=False)
                self.assertEqual(ended.returncode, 0, f"{name}: {program}: {ended.stderr}")

    def test_the_service_can_load_what_it_uses_of_the_driver(self):
        service = next(one for one in daemon_set("cuvmm.yaml")["containers"]
                       if one["name"] == "cuvmmd")
        variables = {one["name"]: one["value"] for one in service["env"]}
        # libcuda, for the helpers of deep pauses, and NVML.
        self.assertEqual(set(variables["NVIDIA_DRIVER_CAPABILITIES"].split(",")),
                         {"compute", "utility"})

    def test_pods_request_the_plugins_resource(self):
        said = subprocess.run([BUILD / "bin/cuvmm-device-plugin", "--help"], capture_output=True,
                              text=True, timeout=30, check=True).stdout
        for pod in objects("pod.yaml"):
            for resource in pod["spec"]["containers"][0]["resources"]["limits"]:
                self.assertIn(resource, said)

    def test_containers_mount_the_files_that_the_daemon_set_installs(self):
        for name in ("cuvmm.yaml", "cuvmm-sim.yaml"):
            spec = daemon_set(name)
            hosts = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
            plugin = next(one for one in spec["containers"] if one["name"] == "device-plugin")
            self.assertIn(f"--libraries={hosts['libraries']}", plugin["command"])
            self.assertIn(f"--node-socket={hosts['service']}/cuvmmd.sock", plugin["command"])
            # The plugin uses the same path on the host and in its container.
            mounted = {one["name"]: one["mountPath"] for one in plugin["volumeMounts"]}
            self.assertEqual(mounted["libraries"], hosts["libraries"])
            self.assertEqual(mounted["plugins"], hosts["plugins"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
