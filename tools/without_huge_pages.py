#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command without transparent huge pages: without_huge_pages.py COMMAND [ARGUMENT...]

Virtual machines give huge pages that nobody uses back to their host. There, a test that takes one
waits until the host has found and cleared it again: a third of the kernel time of the tests that
pause programs."""

import ctypes
import os
import sys

PR_SET_THP_DISABLE = 41  # inherited by all that the command starts


def main():
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # a kernel without them refuses
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
