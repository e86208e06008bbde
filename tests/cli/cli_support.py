# SPDX-License-Identifier: Apache-2.0
"""The base of the command-line tests: the built programs, a temporary folder, and traces."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ.get("CUVMM_BUILD", "build")
CUVMM = os.path.join(BUILD, "bin", "cuvmm")


def run(*words, **more):
    """Runs a program and returns its status, output and errors. A hang fails the test."""
    environment = dict(os.environ, LC_ALL="C.UTF-8")
    environment.update(more.pop("env", {}))
    for name in more.pop("without", ()):
        environment.pop(name, None)
    return subprocess.run([str(word) for word in words], capture_output=True, timeout=200,
                          env=environment, stdin=subprocess.DEVNULL, **more)


def cuvmm(*words, **more):
    return run(CUVMM, *words, **more)


def text(output):
    return output.decode("utf-8", "replace")


class CliTest(unittest.TestCase):
    """Provides a temporary folder per test, with a blank and a non-ASCII letter in its name."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="cuvmm cli é ")
        self.addCleanup(self._folder.cleanup)

    def path(self, name):
        return os.path.join(self._folder.name, name)

    def good(self, *words, **more):
        """Returns the output of a command that must succeed."""
        finished = cuvmm(*words, **more)
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        return text(finished.stdout)

    def assert_one_line(self, output):
        self.assertEqual(len(text(output).strip().splitlines()), 1, text(output))

    def json_of(self, *words, **more):
        return json.loads(self.good(*words, **more))


_traces = {}


def trace_of(program, mode, *words):
    """Returns a trace of an example program, recorded once."""
    key = (program, mode, words)
    if key not in _traces:
        folder = tempfile.mkdtemp(prefix="cuvmm-traces-")
        atexit.register(shutil.rmtree, folder)
        path = os.path.join(folder, "run.trace")
        finished = cuvmm("run", "--sim=memory=64M", "--mode", mode, "--trace", path, "--",
                         os.path.join(BUILD, "bin", program), *words)
        assert os.path.exists(path), text(finished.stderr)
        _traces[key] = path
    return _traces[key]


def frag_trace(mode):
    return trace_of("frag_test", mode)


def main():
    unittest.main(argv=sys.argv[:1], verbosity=1)
