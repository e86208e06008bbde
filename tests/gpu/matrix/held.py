# SPDX-License-Identifier: Apache-2.0
"""Memory that a program of the matrix holds while it works, since the operations that it samples are
small.

Fills blocks, frees some, and fills larger ones, so that whatever caches the freed ones has more than
the program uses: a limit below that binds. The contents become outputs before and after the work.
"""
import hashlib
import random

MIB = 1 << 20


class Held:
    """`make(count, factor)` returns a device array of `count` int32, the i-th of them `i * factor`
    (mod 2^32); `fetch(array)` returns its bytes."""

    def __init__(self, seed, scale, make, fetch):
        self.chance = random.Random(seed)
        self.scale, self.make, self.fetch = scale, make, fetch
        self.blocks = []

    def size(self, least, most):
        return max(64, int(self.chance.randrange(least * MIB, most * MIB) * self.scale) // 4)

    def take(self, count, least, most):
        for _ in range(count):
            size, factor = self.size(least, most), self.chance.randrange(1, 1 << 16) * 2 + 1
            self.blocks.append((size, factor, self.make(size, factor)))

    def prepare(self):
        """Leaves some 450 MiB in use and about 200 MiB free in between."""
        self.take(24, 8, 24)
        self.chance.shuffle(self.blocks)
        del self.blocks[::2]
        self.take(8, 28, 40)

    def churn(self):
        """Replaces an eighth of the blocks by others, between pieces of the program's work."""
        for _ in range(max(1, len(self.blocks) // 8)):
            del self.blocks[self.chance.randrange(len(self.blocks))]
            self.take(1, 8, 40)

    def check(self, outputs, when):
        """Adds each block's digest. Wrong contents end the program, natively as well."""
        for number, (size, factor, array) in enumerate(self.blocks):
            contents = self.fetch(array)
            outputs.all.append({"name": f"held block {number} {when}",
                                "digest": hashlib.sha256(contents).hexdigest()})
            for at in (0, size // 2, size - 1):
                found = int.from_bytes(contents[4 * at:4 * at + 4], "little")
                if found != at * factor % (1 << 32):
                    raise SystemExit(f"held block {number} {when}: word {at} is {found}, "
                                     f"not {at * factor % (1 << 32)}")
