# SPDX-License-Identifier: Apache-2.0
"""`cuvmm run --stacks`: which code allocates, in `stats --top`, in the summary and in a plot."""

import os
import sys
import unittest

from cli_support import BUILD, CliTest, cuvmm, main, text

# Allocates with the interpreter's lock (PyDLL), and without it (CDLL), as PyTorch does.
PROGRAM = """
import ctypes, os, sys, threading
cuda = ctypes.{kind}("libcuda.so.1")
def must(answer):
    assert answer == 0, answer
def allocate(size):
    address = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    return address
def keep_it():
    return allocate(32 << 20)
def use_and_free():
    must(cuda.cuMemFree_v2(allocate(4 << 20)))
def begin():
    context = ctypes.c_void_p()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
begin()
kept = keep_it()
for _ in range(20):
    use_and_free()
{more}
"""


class Stacks(CliTest):
    def traced(self, kind="PyDLL", more="", how="--stacks"):
        """Runs the program and returns the trace's path and what was printed."""
        program, trace = self.path("program.py"), self.path("run.trace")
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM.format(kind=kind, more=more))
        finished = cuvmm("run", "--sim", how, "--trace", trace, "--", sys.executable, program)
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        return trace, text(finished.stderr)

    def stacks(self, trace):
        return self.json_of("stats", "--json", "--top=100", trace)["stacks"]

    def place(self, stacks, function):
        """Returns the sums of the stacks that pass through a function of the program."""
        found = [one for one in stacks
                 if any(place.startswith(function + " (") and "program.py:" in place
                        for place in one["places"])]
        self.assertTrue(found, stacks)
        return {key: sum(one[key] for one in found)
                for key in ("at_peak_bytes", "never_freed_bytes", "allocated_bytes")}

    def test_name_the_python_functions_that_allocate(self):
        trace, said = self.traced()
        stacks = self.stacks(trace)
        self.assertEqual(self.place(stacks, "keep_it"), {
            "at_peak_bytes": 32 << 20, "never_freed_bytes": 32 << 20, "allocated_bytes": 32 << 20})
        self.assertEqual(self.place(stacks, "use_and_free"), {
            "at_peak_bytes": 4 << 20, "never_freed_bytes": 0, "allocated_bytes": 80 << 20})
        self.assertRegex(said, r"never freed +32\.0 MiB\n +32\.0 MiB +allocate \(.*program\.py:8\)")

    def test_name_them_when_the_lock_was_released(self):
        trace, _ = self.traced(kind="CDLL")
        stacks = self.stacks(trace)
        self.assertEqual(self.place(stacks, "keep_it")["never_freed_bytes"], 32 << 20)
        self.assertEqual(self.place(stacks, "use_and_free")["allocated_bytes"], 80 << 20)

    def test_without_a_pending_call_a_thread_shows_compiled_frames(self):
        trace, _ = self.traced(kind="CDLL", more="""
def in_thread():
    must(cuda.cuCtxSetCurrent(ctypes.c_void_p(context_of_main)))
    allocate(8 << 20)
current = ctypes.c_void_p()
must(cuda.cuCtxGetCurrent(ctypes.byref(current)))
context_of_main = current.value
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
""")
        compiled = [one for one in self.stacks(trace) if one["allocated_bytes"] == 8 << 20]
        self.assertEqual(len(compiled), 1)
        self.assertFalse([place for place in compiled[0]["places"] if "program.py" in place])
        self.assertTrue([place for place in compiled[0]["places"] if "python" in place.lower()])

    def test_become_rarer_where_they_take_long(self):
        # To ask Python for the stack takes little, but to find the line in a long function much.
        trace, _ = self.traced(kind="CDLL", more="""
import time
lines = ["def deep(levels):"] + [" levels += 0"] * 3000 + [" return deep(levels - 1) if levels else work()"]
def work():
    for _ in range(300):
        use_and_free()
        time.sleep(0.0005)
exec("\\n".join(lines))
deep(60)
""")
        sampled = [one["samples"] for one in self.stacks(trace)
                   if any("work (" in place for place in one["places"])]
        self.assertEqual(len(sampled), 1)
        self.assertLess(sampled[0], 240, "of 300")

    def test_survive_a_fork_and_allocations_at_exit(self):
        trace, _ = self.traced(more="""
import atexit
atexit.register(keep_it)
if os.fork() == 0:
    os._exit(0)
os.wait()
""")
        self.assertEqual(self.place(self.stacks(trace), "keep_it")["never_freed_bytes"], 64 << 20)

    def test_leave_a_pending_exception_alone(self):
        trace, _ = self.traced(more="""
class Closes:
    def __del__(self):
        keep_it()
try:
    closes = Closes()
    raise ValueError("kept")
except ValueError as error:
    del closes
    assert str(error) == "kept"
""")
        self.assertEqual(self.place(self.stacks(trace), "Closes.__del__" if sys.version_info >= (3, 11)
                                    else "__del__")["never_freed_bytes"], 32 << 20)

    def test_of_a_compiled_program_name_its_functions(self):
        trace = self.path("frag.trace")
        cuvmm("run", "--sim=memory=64M", "--stacks=all", "--trace", trace, "--",
              os.path.join(BUILD, "bin", "frag_test"))
        self.assertNotIn("estimated", self.good("stats", "--top", trace))
        first = self.stacks(trace)[0]
        self.assertEqual(first["at_peak_bytes"], 64 << 20)
        self.assertIn("main (frag_test)", first["places"])
        shown = self.good("stats", "--top=1", trace)
        self.assertRegex(shown, r"64\.0 MiB +0 B +64\.0 MiB .*\(frag_test\)\n +from ")

    def test_are_a_flame_graph_in_a_plot(self):
        trace, _ = self.traced()
        data = self.path("picture.json")
        self.good("plot", "-q", trace, "-o", data)
        import json
        with open(data, encoding="utf-8") as file:
            flames = json.load(file)["pictures"][0]["flames"]
        names = {one["name"].split(" (")[0]: one for one in flames}
        self.assertEqual(names["<module>"]["caller"], -1)
        self.assertEqual(flames[names["keep_it"]["caller"]]["name"].split(" (")[0], "<module>")
        self.assertEqual(names["keep_it"]["at_end"], 32 << 20)

    def test_need_a_trace_to_be_recorded_in(self):
        refused = cuvmm("run", "--sim", "--stacks", "--", "true", without=("VMM_TRACE_FILE",))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--trace", text(refused.stderr))
        self.assert_one_line(refused.stderr)

    def test_that_a_trace_lacks_are_said_to_be_missing(self):
        trace = self.path("plain.trace")
        self.good("run", "--sim=memory=64M", "--quiet", "--trace", trace, "--",
                  os.path.join(BUILD, "bin", "frag_test"))
        finished = cuvmm("stats", "--top", trace)
        self.assertEqual(finished.returncode, 0)
        self.assertIn("no call stacks", text(finished.stderr))


if __name__ == "__main__":
    main()
