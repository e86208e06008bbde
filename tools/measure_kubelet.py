#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long the device plugin takes to answer a kubelet.

    measure_kubelet.py BUILD [CALLS]

There are 1,000 units, on 8 simulated cards of 125 GiB. Prints the raw output of bench/results.
Needs the packages of requirements-kubelet.txt.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/kubernetes"))
from fake_kubelet import FakeKubelet, PluginClient  # noqa: E402


def times(name, calls, call):
    took = []
    for number in range(calls):
        begin = time.perf_counter()
        call(number)
        took.append((time.perf_counter() - begin) * 1e3)
    took.sort()
    print(f"{name}: median {statistics.median(took):.3f} ms, "
          f"99% {took[len(took) * 99 // 100]:.3f} ms, most {took[-1]:.3f} ms, {calls} calls")


def main():
    build = Path(sys.argv[1]).resolve()
    calls = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    card = f"measure-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        kubelet = FakeKubelet(folder).start()
        plugin = subprocess.Popen(
            [build / "bin/cuvmm-device-plugin", "--plugins-folder", folder, "--libraries",
             build / "lib", "--reserve", "0", "--log-level", "error",
             f"--sim=card={card},memory=125G,devices=8"])
        try:
            client = PluginClient(folder, kubelet.registered.get(timeout=30).endpoint)
            units = sorted(client.watch().get(timeout=30))
            cards = [[unit for unit in units if unit.startswith(name)]
                     for name in sorted({unit.rsplit("-", 1)[0] for unit in units})]
            print(f"units: {len(units)} on {len(cards)} cards")
            print(f"load: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
            draw = random.Random(1)
            times("Allocate of 1 unit", calls, lambda n: client.allocate([units[n % len(units)]]))
            times("Allocate of 125 units", calls, lambda n: client.allocate(cards[n % len(cards)]))
            times("Allocate of 8 containers with 125 units each, 1,000 in all", calls,
                  lambda _: client.allocate(*cards))
            times("GetPreferredAllocation of 1 to 125 of 1,000 available units", calls,
                  lambda _: client.prefer(units, draw.randint(1, 125)))
        finally:
            plugin.terminate()
            plugin.wait()
            kubelet.stop()
            Path(f"/dev/shm/cuvmm-sim-card-{os.getuid()}-{card}").unlink(True)


if __name__ == "__main__":
    main()
