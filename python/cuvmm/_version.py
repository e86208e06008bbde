# SPDX-License-Identifier: Apache-2.0
"""This package's version, which is that of everything in it."""

__version__ = "0.1.0"
