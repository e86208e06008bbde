# SPDX-License-Identifier: Apache-2.0
"""Other products that intercept driver calls, or manage device memory themselves, beside cuvmm.

    check_interposers.py --cuvmm build/bin/cuvmm [--sim] [TEST...]

Each product's program must print the same under cuvmm as natively, whichever library is preloaded
first. With --sim it runs on the simulated driver, otherwise on the card. Exit status 77 if something
that the tests need is missing.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCTS = ROOT / ".venv" / "interposers"
PATIENCE = 120  # seconds
MISSING = 77

settings = argparse.Namespace()


def built(name):
    return settings.cuvmm.parent / name


def libraries():
    return settings.cuvmm.parent.parent / "lib"


def preload_library():
    return libraries() / "libcuvmm_preload.so"


def environment(**more):
    """Returns an environment in which a program finds the driver without cuvmm's help."""
    made = {**os.environ, **more}
    folders = [libraries() / "cuvmm" / "sim"] if settings.sim else []
    folders += [libraries(), *filter(None, [made.get("LD_LIBRARY_PATH")])]
    return {**made, "LD_LIBRARY_PATH": ":".join(map(str, folders))}


def without_sizes(output):
    return re.sub(r"(?m)^.* MiB\n", "", output)


class Beside:
    """What holds for every product. A subclass says how its program is run."""

    chunks = None  # that the program creates
    limit = None  # so that some of its memory is spilled

    @classmethod
    def needs(cls):
        return [cls.program()]

    def natively(self, memory="1G"):
        """Returns the output without cuvmm, from one run for all tests of a class."""
        outputs = type(self).__dict__.get("outputs") or {}
        type(self).outputs = outputs
        if memory not in outputs:
            outputs[memory] = self.play(self.alone(), environment(VMM_SIM_MEMORY=memory))
        return outputs[memory]

    def alone(self):
        return self.command()

    def under_cuvmm(self, *options, at_stage=None, **variables):
        return self.play(self.run_of(self.command(), *options), {**os.environ, **variables}, at_stage)

    @staticmethod
    def run_of(command, *options):
        sim = ["--sim=memory=1G"] if settings.sim else []
        return [settings.cuvmm, "run", "-q", *sim, *options, "--", *command]

    def play(self, command, variables, at_stage=None):
        """Runs a program to its end and returns its output. Calls at_stage(PID) at each stage."""
        waits = {"STAGES_WAIT": "1"} if at_stage else {}
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                [str(word) for word in command], env={**variables, **waits}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as program:
            alarm = threading.Timer(PATIENCE, program.kill)
            alarm.start()
            self.addCleanup(alarm.cancel)
            output = ""
            for line in program.stdout:
                output += line
                if at_stage and not line.endswith(" MiB\n"):
                    at_stage(program.pid)
                    program.stdin.write("\n")
                    program.stdin.flush()
            program.wait()
            errors.seek(0)
            self.assertEqual(program.returncode, 0, output + errors.read())
        return output

    def expect_pauses(self, *options, **variables):
        """Pauses and resumes the program at each of its stages, from outside."""

        def pause_and_resume(process):
            for words in (["pause", *options], ["resume"]):
                told = subprocess.run(
                    [settings.cuvmm, *words, str(process)], capture_output=True, text=True,
                    env=environment(**variables), timeout=PATIENCE, check=False)
                self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
                pauses.append(words)

        pauses = []
        with tempfile.TemporaryDirectory(prefix="cuvmm-beside-") as folder:
            variables["XDG_RUNTIME_DIR"] = folder
            output = self.under_cuvmm("--control", at_stage=pause_and_resume, **variables)
        self.assertEqual(output, self.natively())
        self.assertGreaterEqual(len(pauses), 10)

    def test_it_behaves_as_natively(self):
        expected = self.natively()
        for mode in ("monitor", "vmm"):
            with self.subTest(mode=mode):
                self.assertEqual(self.under_cuvmm("--mode", mode), expected)

    def test_a_trace_records_the_chunks_that_it_creates(self):
        with tempfile.TemporaryDirectory(prefix="cuvmm-beside-") as folder:
            trace = os.path.join(folder, "run.trace")
            self.under_cuvmm("--mode", "monitor", "--trace", trace)
            stats = json.loads(subprocess.check_output([settings.cuvmm, "stats", "--json", trace]))
        self.assertEqual(stats["chunks_created"], self.chunks)
        self.assertEqual(stats["dropped_events"], 0)

    def test_it_keeps_its_memory_if_some_is_spilled(self):
        output = self.under_cuvmm("--limit", self.limit, "--spill", "host")
        self.assertEqual(without_sizes(output), without_sizes(self.natively()))

    def test_it_can_be_paused_at_every_stage(self):
        self.expect_pauses()

    def test_its_contexts_can_leave_the_device_too(self):
        if not settings.sim:
            self.expect_pauses("--deep")
            return
        # Only a shared card has the driver's checkpoint.
        card = f"beside-{os.getpid()}"
        file = pathlib.Path(f"/dev/shm/cuvmm-sim-card-{os.geteuid()}-{card}")
        self.addCleanup(file.unlink, missing_ok=True)
        self.expect_pauses("--deep", VMM_SIM_CARD=card)


class MemorySaver(Beside):
    """torch_memory_saver, which is paused from outside also while it has paused its own memory."""

    chunks = 12  # 4 blocks, which return twice
    limit = "32M"

    @staticmethod
    def program():
        return built("cuvmm_test_memory_saver")

    @staticmethod
    def library(mode):
        return PRODUCTS / "torch-memory-saver-0.0.10" / f"torch_memory_saver_hook_mode_{mode}_cu13.abi3.so"

    @classmethod
    def needs(cls):
        return [cls.program(), cls.library("preload"), cls.library("torch")]

    def preloading(self, *preloaded):
        return ["env", "LD_PRELOAD=" + ":".join(map(str, preloaded)), self.program()]


class MemorySaverBeforeCuvmm(MemorySaver, unittest.TestCase):
    def alone(self):
        return self.preloading(self.library("preload"))

    def command(self):
        return self.preloading(self.library("preload"), preload_library())


class MemorySaverAfterCuvmm(MemorySaver, unittest.TestCase):
    def alone(self):
        return self.preloading(self.library("preload"))

    def command(self):
        return self.preloading(preload_library(), self.library("preload"))


class MemorySaverAsPyTorchsAllocator(MemorySaver, unittest.TestCase):
    def command(self):
        return [self.program(), self.library("torch")]


class Aimdo(Beside, unittest.TestCase):
    """comfy-aimdo, which asks for the free memory and gives up its own, so that none is spilled."""

    chunks = 3 + 1 + 5 + 4  # 3 pages, one of them twice, 5 of a buffer, and 4 of a recording
    library = PRODUCTS / "comfy-aimdo-0.6.0" / "comfy_aimdo" / "aimdo.so"
    test_it_keeps_its_memory_if_some_is_spilled = None

    @staticmethod
    def program():
        return built("cuvmm_test_aimdo")

    @classmethod
    def needs(cls):
        return [cls.program(), cls.library]

    def setUp(self):
        weights = tempfile.NamedTemporaryFile(prefix="cuvmm-beside-")
        self.addCleanup(weights.close)
        self.weights = weights.name

    def command(self):
        return [self.program(), self.library, self.weights]

    def test_it_gives_up_memory_at_a_limit_as_on_a_smaller_device(self):
        if not settings.sim:
            self.skipTest("a card has only one size")
        self.assertEqual(self.under_cuvmm("--limit", "512M"), self.natively(memory="512M"))


class PagedCache(Beside, unittest.TestCase):
    """The calls of kvcached."""

    chunks = 1 + 12 + 24  # a shared one, two tensors' pages, and those of a full tensor
    limit = "16M"

    @staticmethod
    def program():
        return built("cuvmm_test_paged_cache")

    def command(self):
        return [self.program()]

    def test_the_chunk_that_unused_pages_share_may_be_spilled(self):
        full = self.run_of([self.program(), "16"], "--limit", self.limit, "--spill", "host")
        self.assertEqual(self.play(full, os.environ), self.natively())

    def test_its_pages_run_out_at_a_limit_as_on_a_smaller_device(self):
        if not settings.sim:
            self.skipTest("a card has only one size")
        output = self.under_cuvmm("--limit", "32M")
        self.assertIn("10 pages of 48 MiB\n", output)
        self.assertEqual(output, self.natively(memory="32M"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cuvmm", required=True, type=pathlib.Path)
    parser.add_argument("--sim", action="store_true")
    _, tests = parser.parse_known_args(namespace=settings)
    settings.cuvmm = settings.cuvmm.resolve()
    named = [test.partition(".")[0] for test in tests if not test.startswith("-")]
    groups = [kind for kind in Beside.__subclasses__() + MemorySaver.__subclasses__()
              if issubclass(kind, unittest.TestCase) and (not named or kind.__name__ in named)]
    for group in groups:
        for path in group.needs():
            if not path.exists():
                print(f"skipped: {path.name} is missing (./dev test installs and builds it)")
                sys.exit(MISSING)
    unittest.main(argv=[sys.argv[0], *tests])


if __name__ == "__main__":
    main()
