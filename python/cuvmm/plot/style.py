# SPDX-License-Identifier: Apache-2.0
"""Colours for colour-blind readers (Okabe and Ito's palette), with one meaning in all plots."""

USED = "#0072B2"       # blue: the program holds it
CACHED = "#E69F00"     # orange: mapped or cached, but not in use
UNMAPPED = "#F2F2F2"   # no memory behind the addresses
PHYSICAL = "#000000"
SPILLED = "#56B4E9"    # sky blue: the program holds it, but elsewhere
LIMIT = "#CC79A7"      # purple
REFUSED = "#D55E00"    # vermilion
WASTE = "#009E73"      # green
TEXT = "#222222"
FAINT = "#666666"
LANES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]


def rgb(colour):
    return tuple(int(colour[i:i + 2], 16) for i in (1, 3, 5))
