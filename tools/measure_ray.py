#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what cuvmm.ray adds to a task of a local Ray, on a simulated card.

    measure_ray.py BUILD [TASKS]

Prints the raw output of bench/results. Run it with a Python that has requirements-ray.txt.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = str(ROOT / "python")
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
import cuvmm.ray  # noqa: E402
cuvmm.ray.enable()
import ray  # noqa: E402

ROUNDS = 20
CARD = f"measure-ray-{os.getpid()}"


def nothing():
    return os.getpid()


def first(task):
    """Returns the milliseconds until a task has run in a newly started worker."""
    begin = time.perf_counter()
    ray.get(task.remote())
    return (time.perf_counter() - begin) * 1e3


def warm(task, count):
    """Returns the milliseconds of each of `count` tasks in a row in a running worker."""
    ray.get(task.remote())
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        ray.get(task.remote())
        took.append((time.perf_counter() - begin) * 1e3)
    return took


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    plain = ray.remote(nothing)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, _temp_dir=folder,
                 logging_level="error", log_to_driver=False, object_store_memory=80 << 20)
        print(f"ray {ray.__version__}, load {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
        sim = {"card": CARD, "memory": "1G"}

        def with_cuvmm(number):
            return plain.options(**cuvmm.ray.share(0.25, sim=sim, name=f"task{number}"))

        def without(number):
            return plain.options(num_gpus=0.25, runtime_env={"env_vars": {"TASK": str(number)}})

        starts = {"without": [], "with cuvmm": []}
        runs = {"without": [], "with cuvmm": []}
        for number in range(ROUNDS):
            for name, made in (("without", without), ("with cuvmm", with_cuvmm)):
                task = made(number)
                starts[name].append(first(task))
                runs[name] += warm(task, count)
        for what, times in (("a task whose worker has to start, with a new runtime_env", starts),
                            ("a task in a worker that is there", runs)):
            medians = {}
            for name, took in times.items():
                took.sort()
                medians[name] = statistics.median(took)
                print(f"{what}, {name}: median {medians[name]:.3f} ms, least {took[0]:.3f} ms, "
                      f"most {took[-1]:.3f} ms, {len(took)} tasks")
            print(f"{what}: {medians['with cuvmm'] - medians['without']:+.3f} ms of the medians")
        ray.shutdown()
    Path(f"/dev/shm/cuvmm-sim-card-{os.getuid()}-{CARD}").unlink(True)


if __name__ == "__main__":
    main()
