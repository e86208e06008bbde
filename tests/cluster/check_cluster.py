#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the simulated cluster may and may not do.

    check_cluster.py PROGRAM
"""

import json
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]


def run(*options):
    return subprocess.run([PROGRAM, "--json", *options], capture_output=True, text=True, timeout=120,
                          check=False)


def figures(*options):
    """Returns the figures of one cluster, by sharing."""
    ended = run(*options)
    assert ended.returncode == 0, ended.stderr
    return {one["sharing"]: one for one in map(json.loads, ended.stdout.splitlines())}


class Cluster(unittest.TestCase):
    def test_the_same_seed_gives_the_same_figures(self):
        once, again = (run("--cards", "40", "--seed", "7").stdout for _ in range(2))
        self.assertEqual(once, again)
        self.assertNotEqual(once, run("--cards", "40", "--seed", "8").stdout)

    def test_guarantees_hold_however_full_the_cluster_is(self):
        for load in ("0.5", "1", "3"):
            for sharing, one in figures("--cards", "64", "--load", load).items():
                self.assertEqual(one["broken_guarantees"], 0, (sharing, load))
                self.assertLessEqual(one["finished"], one["started"])
                self.assertLessEqual(one["started"], one["arrived"])

    def test_only_lent_memory_is_taken_back(self):
        of = figures("--cards", "64", "--load", "1.5")
        for sharing in ("whole", "fixed", "kept"):
            self.assertEqual((of[sharing]["pauses"], of[sharing]["refusals"], of[sharing]["stalled"]),
                             (0, 0, 0), sharing)
        self.assertGreater(of["lent"]["pauses"], 0)
        self.assertGreater(of["lent"]["stalled"], 0)

    def test_a_full_cluster_serves_more_with_finer_shares(self):
        of = figures("--cards", "200", "--load", "2")
        self.assertLess(of["whole"]["served"], of["fixed"]["served"])
        self.assertLess(of["fixed"]["served"], of["kept"]["served"])
        self.assertLessEqual(of["kept"]["served"], 1.0, "it cannot serve more than there is")
        self.assertGreater(of["kept"]["wait_95_s"], 0)

    def test_an_empty_cluster_starts_every_job_at_once_and_serves_every_request(self):
        for sharing, one in figures("--cards", "400", "--load", "0.1", "--hours", "96").items():
            self.assertEqual((one["wait_95_s"], one["started"]), (0, one["arrived"]), sharing)
            self.assertAlmostEqual(one["served"], 0.1, delta=0.03, msg=sharing)

    def test_fully_guaranteed_shares_lend_nothing(self):
        of = figures("--cards", "64", "--load", "1.5", "--guaranteed", "1", "--sharing", "kept,lent")
        self.assertEqual(of["lent"]["pauses"], 0)
        self.assertAlmostEqual(of["lent"]["served"], of["kept"]["served"], places=3)

    def test_wrong_options_are_refused(self):
        for wrong in (("--cards", "0"), ("--sharing", "some"), ("--load", "-1"), ("--hours", "x")):
            self.assertEqual(run(*wrong).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
