#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package's pools, on the driver that LD_LIBRARY_PATH leads to."""

import array
import gc
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import cuvmm  # noqa: E402

MIB = 1 << 20


class Elastic(unittest.TestCase):
    def test_holds_what_is_written(self):
        with cuvmm.ElasticPool(64 * MIB) as pool:
            numbers = array.array("f", range(1000))
            one = pool.array((10, 100), "float32")
            one.copy_from(numbers)
            self.assertEqual(one.tobytes(), numbers.tobytes())
            interface = one.__cuda_array_interface__
            self.assertEqual(interface["shape"], (10, 100))
            self.assertEqual(interface["typestr"], "<f4")
            self.assertEqual(interface["data"], (pool.base_address + one.offset, False))
            self.assertEqual(interface["version"], 3)
            self.assertTrue(pool.is_mapped(one.offset, one.nbytes))
            one.free()
            one.free()
            self.assertEqual(pool.stats().physical_bytes, 0)
            with self.assertRaises(cuvmm.InvalidArgument):
                one.__cuda_array_interface__

    def test_a_pool_and_its_arrays_print_their_sizes_and_their_state(self):
        with cuvmm.ElasticPool(64 * MIB) as pool:
            one = pool.array((512, 512), "float32")
            memory = pool.stats().physical_bytes // MIB
            self.assertEqual(repr(pool), "<cuvmm.ElasticPool: 1 MiB of 64 MiB allocated, "
                                         f"{memory} MiB of memory on device 0>")
            about = f"<cuvmm.DeviceArray: (512, 512) float32, 1 MiB at {one.address:#x}, device 0"
            self.assertEqual(repr(one), about + ">")
            with pool.array(3, "int16") as two:
                pass
            self.assertRegex(repr(two), r"\(3,\) int16, 6 B at .*; it has been freed>$")
        self.assertEqual(repr(pool), "<cuvmm.ElasticPool: closed>")
        self.assertEqual(repr(one), about + "; its memory has been released>")
        with cuvmm.SharedPool(8 * MIB) as pool, pool.model("a", MIB):
            self.assertEqual(repr(pool), "<cuvmm.SharedPool: 1 model, 0 B of at most 8 MiB of memory "
                                         "on device 0>")

    def test_places_print_what_they_were_made_of(self):
        places = cuvmm.Places(host=cuvmm.HostUse.LAST, granule=4 * MIB)
        self.assertEqual(vars(eval(repr(places), vars(cuvmm))), vars(places))

    def test_allocations_have_an_offset_and_an_address(self):
        with cuvmm.ElasticPool(64 * MIB) as pool:
            found, chosen = pool.allocate(MIB), pool.allocate_at(40 * MIB, MIB)
            self.assertEqual(chosen.offset, 40 * MIB)
            for one in (found, chosen):
                self.assertEqual((one.address, one.size), (pool.base_address + one.offset, MIB))
                with self.assertRaises(TypeError):
                    pool.is_mapped(one)  # the caller must choose which of its numbers to pass
            with chosen:
                self.assertTrue(pool.is_mapped(40 * MIB, MIB))
            self.assertFalse(pool.is_mapped(40 * MIB))
            pool.deallocate(found.offset, 4096)  # a part of it
            self.assertFalse(pool.is_mapped(found.offset))
            pool.deallocate(found.offset + 4096, MIB - 4096)
            self.assertEqual(pool.stats().allocated_bytes, 0)
            for wrong in ((found, 1), (0,)):
                with self.assertRaises(TypeError):
                    pool.deallocate(*wrong)
            with cuvmm.ElasticPool(64 * MIB) as other:
                mine = pool.allocate(MIB)
                with self.assertRaisesRegex(ValueError, "of another pool"):
                    other.deallocate(mine)
                self.assertEqual(pool.stats().allocated_bytes, MIB)
                pool.deallocate(mine)
                pool.deallocate(mine)
            left = pool.array(10)
        left.free()
        with self.assertRaisesRegex(ValueError, "freed|ended"):
            left.tobytes()

    def test_errors_have_types_and_details(self):
        with cuvmm.ElasticPool(8 * MIB, physical_limit=2 * MIB) as pool:
            with self.assertRaises(cuvmm.InvalidOffset) as caught:
                pool.allocate_at(7 * MIB, 2 * MIB)
            self.assertEqual((caught.exception.offset, caught.exception.size,
                              caught.exception.capacity), (7 * MIB, 2 * MIB, 8 * MIB))
            with self.assertRaises(cuvmm.OutOfPhysicalMemory) as caught:
                pool.allocate(4 * MIB)
            self.assertEqual((caught.exception.requested, caught.exception.available),
                             (4 * MIB, 2 * MIB))
            self.assertIsInstance(caught.exception, MemoryError)
            with self.assertRaises(cuvmm.NotMapped):
                pool.deallocate(0, 1)
            pool.allocate_at(0, 10)
            with self.assertRaises(cuvmm.AlreadyMapped):
                pool.allocate_at(9, 1)
            for nothing in (0, (-4, -4), (4, 0)):
                with self.assertRaises(cuvmm.InvalidArgument):
                    pool.array(nothing)
            with self.assertRaises(TypeError):
                pool.array((1.5, 2))
            with self.assertRaises(cuvmm.InvalidArgument):
                pool.array(10, "quaternion")
        with self.assertRaises(cuvmm.InvalidGranule):
            cuvmm.ElasticPool(MIB, cuvmm.Places(granule=3 * MIB))
        with self.assertRaises(cuvmm.NotSupported):
            cuvmm.ElasticPool(MIB, cuvmm.Places(devices=[99]))
        with self.assertRaises(cuvmm.InvalidArgument):
            pool.capacity

    def test_out_of_range_numbers_raise_instead_of_truncating(self):
        beyond = 2**64 + 4096
        with cuvmm.ElasticPool(8 * MIB) as pool:
            for call in (pool.allocate, pool.grow, lambda n: pool.allocate_at(n, 1),
                         lambda n: pool.allocate_at(0, n), lambda n: pool.deallocate(0, n),
                         lambda n: pool.deallocate(n, 1), pool.is_mapped,
                         lambda n: pool.is_mapped(0, n), pool.fence):
                with self.assertRaisesRegex(OverflowError, str(beyond)):
                    call(beyond)
                with self.assertRaisesRegex(ValueError, "negative: -5"):
                    call(-5)
            with self.assertRaises(TypeError):
                pool.allocate(1.5)
            self.assertEqual(pool.stats().allocated_bytes, 0)
        for options in ({"capacity": beyond}, {"capacity": 1, "most_capacity": beyond},
                        {"capacity": 1, "physical_limit": beyond}):
            with self.assertRaisesRegex(OverflowError, str(beyond)):
                cuvmm.ElasticPool(**options)
        with cuvmm.SharedPool(4 * MIB) as pool:
            for options in ({"minimum": beyond}, {"maximum": beyond}, {"priority": 2**31}):
                with self.assertRaises(OverflowError):
                    pool.register_model("a", MIB, **options)
            pool.register_model("a", MIB)
            for call in (lambda n: pool.allocate("a", n), lambda n: pool.allocate_at("a", 0, n),
                         lambda n: pool.deallocate("a", n, 1)):
                with self.assertRaisesRegex(OverflowError, str(beyond)):
                    call(beyond)
        with self.assertRaises(OverflowError):
            cuvmm.SharedPool(beyond)
        with self.assertRaises(OverflowError):
            cuvmm.device_info(2**32)

    def test_places_need_a_device(self):
        with self.assertRaisesRegex(ValueError, "devices is empty"):
            cuvmm.Places(devices=[])
        for wrong in ({"devices": [2**32]}, {"granule": 2**64}, {"host_node": 2**32}):
            with self.assertRaises(OverflowError):
                cuvmm.Places(**wrong)
        with self.assertRaisesRegex(ValueError, "negative"):
            cuvmm.Places(devices=[-1])

    def test_compaction_reports_its_moves(self):
        with cuvmm.ElasticPool(16 * MIB) as pool:
            pool.allocate_at(0, 4096)
            pool.allocate_at(2 * pool.granule, 4096, movable=True)
            done = pool.compact()
            self.assertEqual(len(done.moves), 1)
            self.assertEqual(done.moves[0].old_offset, 2 * pool.granule)
            self.assertTrue(pool.is_mapped(done.moves[0].new_offset, 4096))
            self.assertEqual(done.physical_released, pool.granule)

    def test_closing_releases_everything(self):
        before = cuvmm.device_info().physical_in_use
        pool = cuvmm.ElasticPool(16 * MIB)
        pool.allocate(MIB)
        self.assertGreater(cuvmm.device_info().physical_in_use, before)
        del pool
        gc.collect()
        self.assertEqual(cuvmm.device_info().physical_in_use, before)


    def test_the_process_limit_applies(self):
        code = ("import cuvmm\n"
                "pool = cuvmm.ElasticPool(64 << 20)\n"
                "try:\n"
                "    pool.allocate(16 << 20)\n"
                "except cuvmm.OutOfPhysicalMemory as refused:\n"
                "    print(refused.requested >> 20, refused.available >> 20)\n"
                "pool.allocate(8 << 20)\n"
                "print(cuvmm.device_info().physical_in_use >> 20)\n")
        package = str(Path(cuvmm.__file__).parents[1])
        said = subprocess.run([sys.executable, "-B", "-c", code], text=True, check=True,
                              stdout=subprocess.PIPE,
                              env={**os.environ, "VMM_LIMIT": "8M", "PYTHONPATH": package})
        self.assertEqual(said.stdout.split(), ["16", "8", "8"])


class Shared(unittest.TestCase):
    def test_models_take_turns(self):
        lost = []
        with cuvmm.SharedPool(8 * MIB) as pool:
            pool.register_model("a", 32 * MIB, lost=lambda offset, size: lost.append((offset, size)))
            pool.register_model("b", 32 * MIB)
            weights = pool.array("a", 4 * MIB, "uint8")
            weights.copy_from(bytes(range(256)) * (4 * MIB // 256))
            pool.deactivate("a")
            self.assertEqual(pool.activate("a"), cuvmm.Activation.KEPT)
            self.assertEqual(weights.tobytes()[:256], bytes(range(256)))
            pool.deactivate("a")
            pool.allocate("b", 6 * MIB)
            self.assertEqual(lost, [(0, 32 * MIB)])
            pool.unregister_model("b")
            for wrong in ("a\0b", "\0"):
                with self.assertRaisesRegex(cuvmm.InvalidArgument, "null character"):
                    pool.unregister_model(wrong)
            with self.assertRaises(TypeError):
                pool.unregister_model(None)
            self.assertEqual(pool.activate("a"), cuvmm.Activation.LOST)
            self.assertEqual(pool.stats().physical_bytes,
                             pool.model_stats("a").memory.physical_bytes)

    def test_a_model_is_unregistered_at_the_end_of_its_block(self):
        with cuvmm.SharedPool(8 * MIB) as pool:
            with pool.model("a", 32 * MIB, priority=3) as base:
                one = pool.allocate("a", MIB)
                at = pool.allocate_at("a", 8 * MIB, MIB)
                self.assertEqual((one.address, at.address),
                                 (base + one.offset, base + 8 * MIB))
                self.assertEqual(pool.model_stats("a").priority, 3)
                pool.deallocate("a", one)
                at.free()
                self.assertEqual(pool.model_stats("a").memory.allocated_bytes, 0)
                with pool.model("b", MIB):
                    with self.assertRaisesRegex(ValueError, "another pool or model"):
                        pool.deallocate("b", pool.allocate("a", 1))
            self.assertEqual(pool.stats().models, 0)
            with pool.model("a", MIB):
                pool.allocate("a", 4096)
                with pool.active("a") as activation:
                    self.assertEqual(activation, cuvmm.Activation.KEPT)
                    self.assertTrue(pool.model_stats("a").is_active)
                self.assertFalse(pool.model_stats("a").is_active)
            with self.assertRaises(ZeroDivisionError), pool.model("c", MIB):
                raise ZeroDivisionError
            self.assertEqual(pool.stats().models, 0)

    def test_reclaim_asks_another_model(self):
        with cuvmm.SharedPool(4 * MIB) as pool:
            wanted = []

            def reclaim(size):
                wanted.append(size)
                pool.deallocate("a", 0, 4 * MIB)

            pool.register_model("a", 8 * MIB, reclaim=reclaim)
            pool.register_model("b", 8 * MIB)
            pool.allocate_at("a", 0, 4 * MIB)
            pool.allocate("b", 2 * MIB)
            self.assertEqual(wanted, [2 * MIB])

    def test_an_evicted_allocation_is_no_longer_the_callers_to_free(self):
        lost = []
        with cuvmm.SharedPool(4 * MIB) as pool:
            pool.register_model("a", 32 * MIB, lost=lambda *bytes: lost.append(bytes))
            pool.register_model("b", 32 * MIB)
            with pool.array("a", 2 * MIB, "uint8", evictable=True) as scratch:
                with pool.array("b", 4 * MIB, "uint8"):
                    self.assertEqual(lost, [(0, 2 * MIB)])
                    with self.assertRaisesRegex(cuvmm.InvalidArgument, "evicted"):
                        scratch.tobytes()
                other = pool.array("a", 2 * MIB, "uint8")
                self.assertEqual(other.offset, scratch.offset)
                other.copy_from(bytes([7]) * (2 * MIB))
            self.assertEqual(other.tobytes()[:3], bytes([7]) * 3)

    def test_an_inactive_models_allocations_stay_though_their_contents_are_lost(self):
        with cuvmm.SharedPool(4 * MIB) as pool:
            pool.register_model("a", 32 * MIB)
            pool.register_model("b", 32 * MIB)
            kept = pool.allocate("a", 2 * MIB, evictable=True)
            pool.deactivate("a")
            with pool.array("b", 4 * MIB, "uint8"):
                pass
            self.assertEqual(pool.activate("a"), cuvmm.Activation.LOST)
            kept.free()
            self.assertEqual(pool.model_stats("a").memory.allocated_bytes, 0)

    def test_a_callback_may_unregister_its_model(self):
        lost = []
        with cuvmm.SharedPool(8 * MIB) as pool:
            def are_lost(offset, size):
                lost.append(offset)
                pool.unregister_model("a")
            pool.register_model("a", 32 * MIB, lost=are_lost)
            pool.register_model("b", 32 * MIB)
            for _ in range(4):
                pool.allocate("a", 2 * MIB, evictable=True)
            pool.allocate("b", 8 * MIB)
            self.assertEqual(len(lost), 1)

    def test_duplicate_and_unknown_models_raise(self):
        with cuvmm.SharedPool(4 * MIB) as pool:
            pool.register_model("a", MIB)
            with self.assertRaises(cuvmm.ModelAlreadyExists) as caught:
                pool.register_model("a", MIB)
            self.assertEqual(caught.exception.model, "a")
            with self.assertRaises(cuvmm.ModelNotFound) as caught:
                pool.activate("b")
            self.assertEqual(caught.exception.model, "b")


if __name__ == "__main__":
    unittest.main()
