# SPDX-License-Identifier: Apache-2.0
"""Plots of traces, drawn from the data that `cuvmm plot` reads and downsamples."""
