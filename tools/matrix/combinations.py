# SPDX-License-Identifier: Apache-2.0
"""The combination matrix: its parameters, which values exclude each other, and a set of rows in which
every feasible pair of values occurs (a pairwise covering array).

The product of all values has a thousand rows, a covering array some fifty. A fault that needs two
values to meet shows in either.
"""
import dataclasses
import functools
import itertools
import zlib

PARAMETERS = {
    "family": ("torch", "transformers", "cupy", "jax", "triton"),
    "cuvmm": ("vmm", "monitor", "limit", "spill", "elide", "schedule", "node"),
    "use": ("plain", "graphs", "compile", "loaders", "generation"),
    "manager": ("caching", "expandable", "async", "pool", "none", "preallocating", "platform"),
}
MANAGERS = {
    "torch": ("caching", "expandable", "async"),
    "transformers": ("caching", "expandable", "async"),
    "triton": ("caching", "expandable", "async"),  # PyTorch allocates for it
    "cupy": ("pool", "async", "none"),
    "jax": ("preallocating", "platform", "async"),
}


@dataclasses.dataclass(frozen=True)
class Row:
    family: str
    cuvmm: str
    use: str
    manager: str

    def name(self):
        return f"{self.family} {self.use} ({self.manager}), {self.cuvmm}"

    @functools.lru_cache(maxsize=None)
    def pairs(self):
        values = zip(PARAMETERS, dataclasses.astuple(self))
        return {frozenset(pair) for pair in itertools.combinations(values, 2)}

    def seed(self, of_all):
        """Returns the row's own seed, so that rows with one family differ in what they sample."""
        return zlib.crc32(f"{of_all} {self.name()}".encode())


@dataclasses.dataclass(frozen=True)
class Constraint:
    name: str
    reason: str
    excludes: object  # (Row) -> bool


CONSTRAINTS = (
    Constraint("manager of the family", "a memory manager belongs to its framework",
               lambda row: row.manager not in MANAGERS[row.family]),
    Constraint("own mappings are not refused",
               "expandable segments are memory that the program creates and maps itself: it counts against the "
               "limit, but cuvmm refuses none of it, so no limit binds",
               lambda row: row.manager == "expandable" and row.cuvmm in ("limit", "spill")),
    Constraint("a preallocated pool never spills",
               "XLA sizes its pool by the memory that the driver reports, which is the limit, and never asks for more",
               lambda row: row.manager == "preallocating" and row.cuvmm == "spill"),
)


def every_row():
    return [Row(*values) for values in itertools.product(*PARAMETERS.values())]


def feasible_rows(constraints=CONSTRAINTS):
    return [row for row in every_row() if not any(one.excludes(row) for one in constraints)]


def pairs_of(rows):
    return set().union(*(row.pairs() for row in rows)) if rows else set()


def shown(pair):
    return " × ".join(f"{name} {value}" for name, value in sorted(pair, key=lambda one: list(PARAMETERS).index(one[0])))


def excluded_pairs(constraints=CONSTRAINTS):
    """Returns each pair that no feasible row has, with the names of the constraints that exclude it:
    those without which a row would have it."""
    found = {}
    for pair in pairs_of(every_row()) - pairs_of(feasible_rows(constraints)):
        reasons = [[one.name for one in constraints if one.excludes(row)]
                   for row in every_row() if pair in row.pairs()]
        fewest = min(map(len, reasons))
        found[shown(pair)] = sorted({name for names in reasons if len(names) == fewest for name in names})
    return dict(sorted(found.items()))


def uncovered(rows, constraints=CONSTRAINTS):
    """Returns the feasible pairs that these rows lack."""
    return pairs_of(feasible_rows(constraints)) - pairs_of(rows)


def covering_rows(constraints=CONSTRAINTS):
    """Returns rows that cover every feasible pair. The same rows every time.

    Greedy: takes the row with most pairs that are not covered yet, the first of equals. Each row
    covers at least one more, and each feasible pair is in a feasible row, so this ends and covers
    all. Then drops the rows whose pairs later ones cover as well.
    """
    candidates = feasible_rows(constraints)
    left, chosen = pairs_of(candidates), []
    while left:
        best = max(candidates, key=lambda row: len(row.pairs() & left))
        chosen.append(best)
        left -= best.pairs()
    for row in list(chosen):
        others = [one for one in chosen if one != row]
        if row.pairs() <= pairs_of(others):
            chosen = others
    return chosen
