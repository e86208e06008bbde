#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A local Ray whose fractions of a GPU are enforced, on a simulated card that its workers share.

    check_ray.py BUILD ROOT
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD, ROOT = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
sys.path.insert(0, str(ROOT / "python"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests/ray")])
os.environ.update(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0", PYTHONDONTWRITEBYTECODE="1",
                  RAY_AUTH_MODE="disabled")  # it would leave a token in the home folder
import cuvmm.ray  # noqa: E402
cuvmm.ray.enable()
import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.util.placement_group import placement_group, remove_placement_group  # noqa: E402
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: E402

MIB = 1 << 20
CARD = f"ray-{os.getpid()}"
SIM = {"card": CARD, "memory": "1G", "backing": "none"}
WAIT = 120


def share(gpus, **options):
    return cuvmm.ray.share(gpus, sim=SIM, node="off", log_level="error", **options)


class Card:
    """CUDA through ctypes, in a worker."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        for name, *arguments in (("cuInit", 0), ("cuDeviceGet", ctypes.byref(device), 0),
                                 ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
                                 ("cuCtxSetCurrent", context)):
            answer = getattr(self.cuda, name)(*arguments)
            assert answer == 0, (name, answer)

    def total_mib(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return total.value // MIB

    def take(self, mib):
        """Allocates up to `mib` MiB in steps of 32. Returns how much it got."""
        address = ctypes.c_uint64()
        taken = 0
        while taken < mib and self.cuda.cuMemAlloc_v2(ctypes.byref(address),
                                                      ctypes.c_size_t(32 * MIB)) == 0:
            taken += 32
        return taken


def look(take):
    """Returns what a task sees of the card and can allocate on it, and its other settings."""
    card = Card()
    return {"total": card.total_mib(), "taken": card.take(take), "kept": cuvmm.ray.verify(),
            "weight": os.environ["VMM_WEIGHT"], "process": os.getpid()}


class Holder:
    def __init__(self, mib):
        self.card = Card()
        self.taken = self.card.take(mib)

    def seen(self):
        return {"total": self.card.total_mib(), "taken": self.taken, "kept": cuvmm.ray.verify(),
                "group": os.environ.get("VMM_GROUP"), "process": os.getpid()}


class Shares(unittest.TestCase):
    """Tests without a cluster."""

    def test_a_share_sets_num_gpus_limit_and_weight(self):
        options = cuvmm.ray.share(0.25, runtime_env={"working_dir": "."}, guarantee="1G")
        self.assertEqual(options["num_gpus"], 0.25)
        self.assertEqual(options["runtime_env"]["working_dir"], ".")
        variables = cuvmm.ray.environment(options["runtime_env"]["cuvmm"], {"LD_PRELOAD": "x.so"})
        self.assertEqual((variables["VMM_LIMIT"], variables["VMM_WEIGHT"], variables["VMM_GUARANTEE"]),
                         ("25%", "25", "1G"))
        self.assertRegex(variables["LD_PRELOAD"], r"^x\.so:.*libcuvmm_preload\.so$")

    def test_a_third_and_whole_gpus_have_limits_that_the_library_reads(self):
        third = cuvmm.ray.environment({"num_gpus": 1 / 3}, {})
        self.assertEqual(third["VMM_LIMIT"], "33.33%")
        shown = subprocess.run([BUILD / "bin/cuvmm", "config"], env={**os.environ, **{
            name: value for name, value in third.items() if name != "LD_PRELOAD"}},
            capture_output=True, text=True, check=True, timeout=WAIT).stdout
        self.assertIn("33.33%", shown)
        whole = cuvmm.ray.environment({"num_gpus": 2}, {})
        self.assertNotIn("VMM_LIMIT", whole)
        self.assertEqual(whole["VMM_WEIGHT"], "200")
        self.assertEqual(cuvmm.ray.environment({"num_gpus": 0.001, "limit": "2G"}, {})["VMM_LIMIT"],
                         "2G")

    def test_an_invalid_share_is_refused(self):
        for wrong in (0, -1, 1.5, "much", True, None, float("nan")):
            with self.assertRaises(ValueError, msg=repr(wrong)):
                cuvmm.ray.share(wrong)
        with self.assertRaisesRegex(ValueError, "no option speed"):
            cuvmm.ray.share(0.5, speed=3)
        for wrong in ({}, 0.5, {"limit": "1G"}):
            with self.assertRaisesRegex(ValueError, "share"):
                cuvmm.ray.CuvmmPlugin.validate({"cuvmm": wrong})
        cuvmm.ray.CuvmmPlugin.validate({"env_vars": {}})

    def test_enabling_keeps_others_plugins_and_ours_once(self):
        variables = {"RAY_RUNTIME_ENV_PLUGINS": '[{"class": "others.Plugin"}]'}
        cuvmm.ray.enable(variables)
        cuvmm.ray.enable(variables)
        self.assertEqual(variables["RAY_RUNTIME_ENV_PLUGINS"],
                         '[{"class": "others.Plugin"}, {"class": "cuvmm.ray.CuvmmPlugin"}]')


class LocalRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="cuvmm-ray-", dir="/tmp")
        ray.init(num_cpus=6, num_gpus=1, include_dashboard=False, _temp_dir=cls.folder.name,
                 logging_level="error", log_to_driver=False, object_store_memory=80 * MIB)

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.folder.cleanup()
        Path(f"/dev/shm/cuvmm-sim-card-{os.getuid()}-{CARD}").unlink(True)

    def test_tasks_get_exactly_their_fraction(self):
        task = ray.remote(look)
        quarter, half = ray.get([task.options(**share(0.25)).remote(4096),
                                 task.options(**share(0.5)).remote(4096)], timeout=WAIT)
        self.assertEqual((quarter["total"], quarter["taken"]), (256, 256))
        self.assertEqual((half["total"], half["taken"]), (512, 512))
        self.assertEqual((quarter["weight"], half["weight"]), ("25", "50"))
        self.assertNotEqual(quarter["process"], half["process"], "no worker serves two shares")

    def test_actors_share_the_card_and_a_killed_one_gives_its_memory_back(self):
        holder = ray.remote(Holder)
        first, second = (holder.options(**share(0.5)).remote(512) for _ in range(2))
        for actor in (first, second):
            self.assertEqual(ray.get(actor.seen.remote(), timeout=WAIT)["taken"], 512)
        process = ray.get(first.seen.remote())["process"]
        ray.kill(first)
        third = holder.options(**share(0.5)).remote(512)  # waits until half a GPU is free
        seen = ray.get(third.seen.remote(), timeout=WAIT)
        self.assertEqual(seen["taken"], 512)
        self.assertNotEqual(seen["process"], process)
        self.assertEqual(ray.get(second.seen.remote(), timeout=WAIT)["taken"], 512, "it goes on")
        for actor in (second, third):
            ray.kill(actor)

    def test_a_placement_groups_bundles_are_kept_to_their_share(self):
        group = placement_group([{"CPU": 1, "GPU": 0.4}, {"CPU": 1, "GPU": 0.6}])
        ray.get(group.ready(), timeout=WAIT)
        holder = ray.remote(Holder)
        actors = [holder.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=at), **share(gpus, group="job")).remote(4096)
            for at, gpus in enumerate((0.4, 0.6))]
        seen = ray.get([actor.seen.remote() for actor in actors], timeout=WAIT)
        self.assertEqual([one["kept"] for one in seen], [0.4, 0.6])
        self.assertEqual([one["group"] for one in seen], ["job", "job"])
        for one, most in zip(seen, (0.4 * 1024, 0.6 * 1024)):
            self.assertLessEqual(one["taken"], most)
            self.assertGreater(one["taken"], most - 64)
        remove_placement_group(group)

    def test_deployments_of_serve_share_the_card(self):
        def deployment(gpus):
            return serve.deployment(ray_actor_options={"num_cpus": 0.1, **share(gpus)})(
                type(f"Model{int(gpus * 100)}", (Model,), {}))
        serve.start(proxy_location="Disabled")
        try:
            small = serve.run(deployment(0.25).bind(), name="small", route_prefix=None)
            large = serve.run(deployment(0.5).bind(), name="large", route_prefix=None)
            answers = [handle.remote().result(timeout_s=WAIT) for handle in (small, large)]
        finally:
            serve.shutdown()
        self.assertEqual([(one["total"], one["taken"]) for one in answers], [(256, 256), (512, 512)])

    def test_a_wrong_share_fails_the_task_with_a_reason(self):
        task = ray.remote(look).options(num_gpus=0.1, runtime_env={"cuvmm": {"limit": "1G"}})
        with self.assertRaises(ray.exceptions.RuntimeEnvSetupError) as raised:
            ray.get(task.remote(0), timeout=WAIT)
        self.assertIn("cuvmm.ray.share()", str(raised.exception))

    def test_verify_detects_workers_without_enforcement(self):
        verify = ray.remote(cuvmm.ray.verify)
        with self.assertRaisesRegex(RuntimeError, "not under cuvmm"):
            ray.get(verify.options(num_gpus=0.1).remote(), timeout=WAIT)
        more = share(0.1) | {"num_gpus": 0.2}
        with self.assertRaisesRegex(RuntimeError, "Ray assigned 0.2 GPU"):
            ray.get(verify.options(**more).remote(), timeout=WAIT)


class Model:
    def __init__(self):
        self.card = Card()
        self.taken = self.card.take(4096)

    async def __call__(self):
        return {"total": self.card.total_mib(), "taken": self.taken}


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
