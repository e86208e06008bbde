# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line stand on: the built programs, a folder of their own, traces."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ.get("CUVMM_BUILD", "build")
CUVMM = os.path.join(BUILD, "bin", "cuvmm")


def run(*words, **more):
    """A program's status, output and errors. A hang fails the test."""
    environment = dict(os.environ, LC_ALL="C.UTF-8")
    environment.update(more.pop("env", {}))
    for name in more.pop("without", ()):
        environment.pop(name, None)
    return subprocess.run([str(word) for word in words], capture_output=True, timeout=60,
                          env=environment, stdin=subprocess.DEVNULL, **more)


def cuvmm(*words, **more):
    return run(CUVMM, *words, **more)


def text(output):
    return output.decode("utf-8", "replace")


class CliTest(unittest.TestCase):
    """Has a folder, with a blank and letters that are not English, for as long as a test runs."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="cuvmm cli é ")
        self.addCleanup(self._folder.cleanup)

    def path(self, name):
        return os.path.join(self._folder.name, name)

    def good(self, *words, **more):
        """The output of a command that has to succeed."""
        finished = cuvmm(*words, **more)
        self.assertEqual(finished.returncode, 0, text(finished.stderr))
        return text(finished.stdout)

    def assert_one_line(self, output):
        self.assertEqual(len(text(output).strip().splitlines()), 1, text(output))

    def json_of(self, *words, **more):
        return json.loads(self.good(*words, **more))


_traces = {}


def trace_of(program, mode, *words):
    """The trace of an example, taken once."""
    key = (program, mode, words)
    if key not in _traces:
        folder = tempfile.mkdtemp(prefix="cuvmm-traces-")
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
