#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package covers the whole C API, with types and docstrings.

Also tests sharing, resizing, clients and pausing. LD_LIBRARY_PATH leads to a driver;
CUVMM_TEST_ENGINE names the expected engine.
"""

import ctypes
import enum
import gc
import inspect
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import cuvmm  # noqa: E402
from cuvmm import _capi  # noqa: E402
from cuvmm._owned import Owned  # noqa: E402

MIB = 1 << 20
IS_PRELOADED = os.environ["CUVMM_TEST_ENGINE"] == "preloaded"
IN_TIME = 60.0


def promises(kind):
    """Returns the symbols, sizes, fields or constants in tests/install/abi.txt: name to number."""
    lines = (ROOT / "tests" / "install" / "abi.txt").read_text(encoding="utf-8").splitlines()
    found = (line.split() for line in lines)
    return {words[1]: words[-1] for words in found if words[0] == kind}


class Interface(unittest.TestCase):
    def test_covers_every_call_of_the_c_api(self):
        declared = {name.split("@")[0].replace("cuvmm_", "", 1) for name in promises("symbol")}
        self.assertEqual(set(_capi.CHECKED) | set(_capi.PLAIN),
                         {name for name in declared if name != "CUVMM_0"})
        text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "python" / "cuvmm").glob("*.py")
                       if path.name != "_capi.py")
        unused = {name for name in declared if not re.search(rf"\b{name}\b", text)}
        self.assertEqual(unused, {"status_name"}, "an exception's class says it")

    def test_structs_match_the_c_compilers_layout(self):
        sizes, fields = promises("size"), promises("field")
        structs = {name: kind for name, kind in vars(_capi).items()
                   if inspect.isclass(kind) and issubclass(kind, ctypes.Structure)
                   and kind is not ctypes.Structure}
        in_c = {"cuvmm_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): kind
                for name, kind in structs.items()}
        self.assertEqual(set(in_c), {name for name in sizes if "sim" not in name})
        for name, kind in in_c.items():
            self.assertEqual(ctypes.sizeof(kind), int(sizes[name]), name)
            found = {f"{name}.{field.rstrip('_')}": getattr(kind, field).offset
                     for field, _ in kind._fields_}
            self.assertEqual(found, {field: int(offset) for field, offset in fields.items()
                                     if field.startswith(name + ".")})

    def test_enumerators_match_the_headers(self):
        enums = {"ENGINE": cuvmm.EngineKind, "MODE": cuvmm.Mode, "PLACE": cuvmm.Placement,
                 "HOST": cuvmm.HostUse, "SCHEDULE": cuvmm.Policy, "CONTENTS": cuvmm.Activation}
        in_c = {name: int(number) for name, number in promises("constant").items()}
        for prefix, enum in enums.items():
            self.assertEqual({f"CUVMM_{prefix}_{one.name}": one.value for one in enum},
                             {name: number for name, number in in_c.items()
                              if name.startswith(f"CUVMM_{prefix}_")})
        for one in (*cuvmm.ShareEventKind, *cuvmm.Access):
            self.assertEqual(in_c[f"CUVMM_SHARE_{one.name}"], one.value)
        for number, error in _capi.BY_STATUS.items():
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", error.__name__).upper()
            self.assertEqual(in_c["CUVMM_ERROR_" + name], number)
        self.assertEqual(set(_capi.BY_STATUS),
                         {n for name, n in in_c.items() if name.startswith("CUVMM_ERROR_")})

    def test_everything_has_docstrings_and_types(self):
        def claims(name, thing):
            self.assertTrue(inspect.getdoc(thing), f"{name} has no description")
            call = inspect.signature(thing)
            for parameter in call.parameters.values():
                if parameter.name not in ("self", "_", "cls"):
                    self.assertIsNot(parameter.annotation, inspect.Parameter.empty,
                                     f"{name}({parameter.name}) has no type")
            self.assertIsNot(call.return_annotation, inspect.Signature.empty,
                             f"{name} answers no type")

        for name in cuvmm.__all__:
            thing = getattr(cuvmm, name)
            if not inspect.isclass(thing):
                claims(name, thing)
                continue
            self.assertTrue(inspect.getdoc(thing), f"{name} has no description")
            for part, one in vars(thing).items():
                if part.startswith("_") or issubclass(thing, tuple):
                    continue
                one = one.__func__ if isinstance(one, staticmethod) else one
                one = one.fget if isinstance(one, property) else one
                if inspect.isfunction(one) and one.__module__.startswith("cuvmm"):
                    claims(f"{name}.{part}", one)
        self.assertTrue((Path(cuvmm.__file__).parent / "py.typed").exists())

    def test_every_closable_object_is_a_context_manager(self):
        for kind in (cuvmm.ElasticPool, cuvmm.SharedPool, cuvmm.PoolAllocation, cuvmm.DeviceArray,
                     cuvmm.ResizableBuffer, cuvmm.SharedBuffer, cuvmm.ShareHost,
                     cuvmm.ShareSession, cuvmm.SharedImport, cuvmm.SharedMapping, cuvmm.Client):
            self.assertTrue(hasattr(kind, "__enter__") and hasattr(kind, "__exit__"), kind)


    def test_every_object_prints_what_it_is(self):
        for name in cuvmm.__all__:
            kind = getattr(cuvmm, name)
            if inspect.isclass(kind) and not issubclass(kind, (tuple, enum.Enum, Exception)):
                self.assertIsNot(kind.__repr__, object.__repr__, name)
            if inspect.isclass(kind) and issubclass(kind, Owned):
                self.assertIsNot(kind._describe, Owned._describe, name)


class Resizing(unittest.TestCase):
    def test_a_buffer_prints_its_size_and_whether_it_is_open(self):
        with cuvmm.ResizableBuffer(1 << 30) as buffer:
            buffer.resize(MIB)
            self.assertEqual(repr(buffer), "<cuvmm.ResizableBuffer: 1 MiB of at most 1 GiB at "
                                           f"{buffer.address:#x}, device 0>")
        self.assertEqual(repr(buffer), "<cuvmm.ResizableBuffer: closed>")

    def test_a_buffer_grows_in_place(self):
        before = cuvmm.device_info().physical_in_use
        with cuvmm.ResizableBuffer(1 << 30) as buffer:
            buffer.resize(MIB)
            address = buffer.address
            first = buffer.array(MIB, "uint8")
            first.copy_from(b"x" * MIB)
            with self.assertRaisesRegex(ValueError, "in a buffer of"):
                buffer.array(MIB + 1, "uint8")
            buffer.resize(64 * MIB)
            self.assertEqual((buffer.address, first.tobytes()), (address, b"x" * MIB))
            self.assertGreaterEqual(buffer.info().physical_bytes, 64 * MIB)
            buffer.resize_ordered(MIB, None)
            self.assertEqual(buffer.info().size, MIB)
            with self.assertRaises(cuvmm.InvalidArgument):
                buffer.resize(2 << 30)
            for wrong, error in ((2**64, OverflowError), (-1, ValueError)):
                with self.assertRaises(error):
                    buffer.resize(wrong)
        with self.assertRaisesRegex(ValueError, "has been released"):
            first.tobytes()
        with self.assertRaisesRegex(ValueError, "closed"):
            buffer.resize(1)
        self.assertEqual(cuvmm.device_info().physical_in_use, before)
        self.assertGreaterEqual(cuvmm.resize_info().elided_copies, 0)

    def test_an_unreferenced_buffer_is_released(self):
        before = cuvmm.device_info().physical_in_use
        buffer = cuvmm.ResizableBuffer(1 << 30)
        buffer.resize(8 * MIB)
        del buffer
        gc.collect()
        self.assertEqual(cuvmm.device_info().physical_in_use, before)

    def test_of_two_threads_that_close_an_object_one_releases_it(self):
        between = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, between)
        sys.setswitchinterval(1e-6)
        for _ in range(100):
            pool = cuvmm.ElasticPool(4 * MIB)
            threads = [threading.Thread(target=pool.close) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def test_a_forked_child_releases_nothing(self):
        with cuvmm.ElasticPool(64 * MIB) as pool, pool.array(100, "uint8") as one:
            one.copy_from(b"a" * 100)
            child = os.fork()
            if child == 0:
                try:
                    pool.allocate(10)
                except cuvmm.InvalidArgument:
                    if "parent process" not in repr(pool):
                        os._exit(2)
                    pool.close()
                os._exit(0 if not pool.is_open else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(one.tobytes(), b"a" * 100)


def importer(path, results):
    """The other process: receives two grants, and reports what it found."""
    try:
        with cuvmm.ShareSession(path, timeout=IN_TIME) as session:
            with session.receive(IN_TIME) as grant:
                about = grant.info()
                with grant.map() as mapping:
                    found = mapping.array(16, "uint8").tobytes()
                    mapping.array().copy_from(found[::-1] + bytes(about.size - 16))
                grant.acknowledge(7, timeout=IN_TIME)
            taken = session.receive(IN_TIME)
            mapping = taken.map()
            view = mapping.array(4, "uint8")
            refused = ""
            try:
                view.copy_from(b"1234")
            except cuvmm.InvalidArgument as error:
                refused = str(error)
            of_pool = view.tobytes()
            taken.release(IN_TIME)
            results.put((about.tag, about.access, found, of_pool, refused, mapping.is_open))
    except BaseException as error:
        results.put(repr(error))
        raise


class Sharing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "socket")

    def tearDown(self):
        self.folder.cleanup()

    def next(self, host, kind):
        while True:
            event = host.wait(IN_TIME)
            if event.kind is kind:
                return event

    def test_another_process_maps_the_same_memory(self):
        came, acknowledged, released = (cuvmm.ShareEventKind.CAME, cuvmm.ShareEventKind.ACKNOWLEDGED,
                                        cuvmm.ShareEventKind.RELEASED)
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        with cuvmm.ShareHost(self.path) as host, cuvmm.SharedBuffer(MIB) as buffer, \
                cuvmm.ElasticPool(64 * MIB, cuvmm.Places(shareable=True)) as pool:
            with self.assertRaisesRegex(ValueError, "not mapped"):
                buffer.array()
            size = buffer.info().size // MIB
            self.assertEqual(repr(buffer), f"<cuvmm.SharedBuffer: {size} MiB in 1 chunk, not mapped, device 0>")
            self.assertEqual(buffer.map(), buffer.info().address)
            self.assertIn(f", mapped at {buffer.info().address:#x}, ", repr(buffer))
            self.assertEqual(repr(host), f"<cuvmm.ShareHost: listening at {self.path}>")
            buffer.array(16, "uint8").copy_from(bytes(range(16)))
            granule = pool.granule
            pool.array(granule, "uint8", offset=granule).copy_from(b"pool" + bytes(granule - 4))
            process = context.Process(target=importer, args=(self.path, results))
            process.start()
            peer = self.next(host, came).peer
            grant = host.send(peer, buffer, tag=9)
            self.assertEqual(self.next(host, acknowledged)[1:], (peer, grant, 7))
            self.assertEqual(self.next(host, released).grant, grant)
            self.assertEqual(buffer.array(16, "uint8").tobytes(), bytes(range(16))[::-1])
            with self.assertRaises(cuvmm.InvalidOffset):
                host.send_of_pool(peer, pool, 1, granule)
            grant = host.send_of_pool(peer, pool, granule, granule, access=cuvmm.Access.READ_ONLY)
            self.assertEqual(self.next(host, released).grant, grant)
            self.next(host, cuvmm.ShareEventKind.LEFT)
            self.assertEqual(results.get(),
                             (9, cuvmm.Access.READ_WRITE, bytes(range(16)), b"pool",
                              "the memory was granted for reading only", False))
            process.join()
            with self.assertRaises(cuvmm.NotFound):
                host.send(peer, buffer)

    def test_an_importer_survives_the_end_of_its_session(self):
        with cuvmm.ShareHost(self.path) as host, cuvmm.SharedBuffer(MIB) as buffer:
            buffer.map()
            buffer.array(4, "uint8").copy_from(b"here")
            done = threading.Event()
            kept, printed = [], []

            def take():
                with cuvmm.ShareSession(self.path, timeout=IN_TIME) as session:
                    printed.append(repr(session))
                    grant = session.receive(IN_TIME)
                    kept.append(grant.map())
                    printed.extend(map(repr, (grant, kept[0])))
                done.set()

            thread = threading.Thread(target=take)
            thread.start()
            host.send(self.next(host, cuvmm.ShareEventKind.CAME).peer, buffer)
            self.next(host, cuvmm.ShareEventKind.LEFT)
            thread.join()
            self.assertEqual(kept[0].array(4, "uint8").tobytes(), b"here")
            size = f"{buffer.info().size // MIB} MiB"
            self.assertEqual(printed[0], f"<cuvmm.ShareSession: connected to {self.path}>")
            self.assertRegex(printed[1], rf"^<cuvmm.SharedImport: grant \d+ of {size}, read-write, device 0>$")
            self.assertEqual(printed[2], f"<cuvmm.SharedMapping: {size} at {kept[0].address:#x}, "
                                         "read-write, device 0>")
            kept.pop().close()

    def test_invalid_arguments_are_refused(self):
        with self.assertRaises(cuvmm.NotFound):
            cuvmm.ShareSession(self.path, timeout=0.01)
        with cuvmm.ShareHost(self.path) as host, cuvmm.SharedBuffer(MIB, chunk_size=0) as buffer:
            with self.assertRaises(cuvmm.AlreadyExists):
                cuvmm.ShareHost(self.path)
            with self.assertRaises(cuvmm.TimedOut):
                host.wait(0.01)
            for timeout in (-1, float("nan"), float("inf")):
                with self.assertRaisesRegex(ValueError, "number of seconds"):
                    host.wait(timeout)
            with self.assertRaises(OverflowError):
                host.wait(1e30)
            with self.assertRaises(OverflowError):
                host.send(2**64, buffer)
            with self.assertRaises(ValueError):
                host.send(1, buffer, chunk_count=-1)
            with self.assertRaises(cuvmm.InvalidArgument):
                host.send(1, buffer, chunk_count=2)
            descriptor = buffer.export_chunk(0)
            self.assertGreaterEqual(descriptor, 0)
            os.close(descriptor)
            with cuvmm.ElasticPool(4 * MIB) as pool:  # whose memory is not shareable
                pool.allocate_at(0, 4 * MIB)
                with self.assertRaises(cuvmm.NotSupported):
                    host.send_of_pool(1, pool, 0, pool.granule)
        with self.assertRaises(cuvmm.InvalidArgument):
            cuvmm.SharedBuffer(0)
        with self.assertRaises(OverflowError):
            cuvmm.SharedBuffer(2**64)


@unittest.skipIf(IS_PRELOADED, "the preload library is there")
class WithoutThePreloadLibrary(unittest.TestCase):
    def test_clients_and_pausing_are_refused(self):
        for call in (lambda: cuvmm.Client("a"), lambda: cuvmm.set_policy(cuvmm.Policy.FAIR),
                     lambda: cuvmm.pause(timeout=1), cuvmm.resume, cuvmm.away_info, cuvmm.Client.unbind):
            with self.assertRaises(cuvmm.NotSupported):
                call()


@unittest.skipUnless(IS_PRELOADED, "needs the preload library")
class Clients(unittest.TestCase):
    def test_a_client_can_be_bound_and_closed(self):
        cuvmm.set_policy(cuvmm.Policy.FAIR)
        with cuvmm.Client("python", priority=5, weight=2) as client:
            with cuvmm.ElasticPool(4 * MIB) as pool, client.bound():
                with pool.array(MIB, "uint8") as array:
                    array.copy_from(bytes(MIB))
                    self.assertEqual(array.tobytes(), bytes(MIB))
            self.assertEqual(repr(client), f"<cuvmm.Client: 'python', priority 5, weight 2, number {client.number}>")
            figures = client.figures()
            self.assertGreaterEqual(figures.bytes, 0)
            client.bind_others()
            client.unbind_others()
            number = client.number
        with self.assertRaises(cuvmm.NotFound):
            _capi.library().client_bind(number)
        with self.assertRaisesRegex(ValueError, "the client is closed"):
            client.bind()
        cuvmm.set_policy(cuvmm.Policy.OFF)

    def test_invalid_arguments_are_refused(self):
        for wrong in ({"priority": 101}, {"weight": 0}):
            with self.assertRaises(cuvmm.InvalidArgument):
                cuvmm.Client("a", **wrong)
        with self.assertRaises(OverflowError):
            cuvmm.Client("a", weight=2**32 + 1)
        with self.assertRaises(ValueError):
            cuvmm.set_policy(17)


@unittest.skipUnless(IS_PRELOADED, "needs the preload library")
class Pausing(unittest.TestCase):
    def test_memory_leaves_the_device_and_returns(self):
        # The program's own memory: cuvmm serves calls from ctypes like any others.
        cuvmm.engine_info()
        with cuvmm._driver.driver().primary_context(0):
            cuda = ctypes.CDLL("libcuda.so.1")
            address = ctypes.c_uint64()
            self.assertEqual(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(6 * MIB)), 0)
            block = cuvmm.DeviceArray(address.value, 6 * MIB, "uint8", 0)
            block.copy_from(b"p" * (6 * MIB))
            with cuvmm.paused(IN_TIME) as report:
                self.assertGreaterEqual(report.moved, 6 * MIB)
                self.assertTrue(cuvmm.away_info().is_paused)
                self.assertEqual(cuvmm.device_info().physical_in_use, 0)
            self.assertFalse(cuvmm.away_info().is_paused)
            self.assertEqual(block.tobytes(), b"p" * (6 * MIB))
            with self.assertRaises(ZeroDivisionError), cuvmm.paused(IN_TIME, strict=True):
                raise ZeroDivisionError
            self.assertFalse(cuvmm.away_info().is_paused)
            self.assertEqual(cuvmm.resume().moved, 0)
            self.assertEqual(cuda.cuMemFree_v2(address), 0)
        with self.assertRaisesRegex(ValueError, "number of seconds"):
            cuvmm.pause(timeout=-1)


if __name__ == "__main__":
    unittest.main()
