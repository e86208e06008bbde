# SPDX-License-Identifier: Apache-2.0
"""The version of this package and of all parts of cuvmm in it."""

__version__ = "0.2.0"
