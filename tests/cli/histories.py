# SPDX-License-Identifier: Apache-2.0
"""Histories of invented programs: torch.cuda.memory._dump_snapshot() files and RMM logs."""

import pickle

MIB = 1 << 20


class History:
    """What PyTorch's own allocator would have recorded of a program."""

    def __init__(self):
        self.events = []
        self.live = {}

    def event(self, action, **fields):
        frames = [{"name": "forward", "filename": "train.py", "line": 7}]
        self.events.append({"action": action, "stream": 0, "frames": frames,
                            "time_us": 1_700_000_000_000_000 + 10 * len(self.events), **fields})

    def alloc(self, address, size):
        self.live[address] = size
        self.event("alloc", addr=address, size=size)

    def free(self, address):
        size = self.live.pop(address)
        self.event("free_requested", addr=address, size=size)
        self.event("free_completed", addr=address, size=size)

    def oom(self, size, device_free):
        self.event("oom", size=size, device_free=device_free)

    def snapshot(self, reserved=0):
        blocks = [{"address": address, "size": size, "requested_size": size,
                   "state": "active_allocated", "frames": []}
                  for address, size in sorted(self.live.items())]
        held = {"device": 0, "address": 0x7f0000000000, "total_size": reserved, "stream": 0,
                "segment_type": "large", "is_expandable": False, "blocks": blocks}
        return {"segments": [held], "device_traces": [self.events],
                "allocator_settings": {"expandable_segments": False, "ratio": 0.8},
                "external_annotations": []}

    def dump(self, path, protocol=4, **more):
        with open(path, "wb") as file:
            pickle.dump(self.snapshot(**more), file, protocol)
        return path


FRAGMENTED_PEAK = 1200 * MIB


def fragmented():
    """Returns a history in which fragmentation makes the caching allocator take a second segment.

    A small block is cut from a large free one, whose remainder is too small for the next request.
    By default the allocator takes another large segment; with expandable segments it extends the
    first.
    """
    history = History()
    history.alloc(0x7f0000000000, 1000 * MIB)
    history.free(0x7f0000000000)
    history.alloc(0x7f0000000000, 200 * MIB)
    history.alloc(0x7f8000000000, 1000 * MIB)
    return history


def steady(blocks=16, size=40 * MIB):
    """Returns a history that holds the same blocks all the time."""
    history = History()
    for i in range(blocks):
        history.alloc(0x7f0000000000 + i * size, size)
    return history


def rmm_log(path, rows):
    """Writes an RMM log. `rows` are (action, pointer, size)."""
    with open(path, "w", encoding="ascii") as file:
        file.write("Thread,Time,Action,Pointer,Size,Stream\n")
        for i, (action, pointer, size) in enumerate(rows):
            file.write(f"1,10:00:{i // 1000:02}.{i % 1000:03}000,{action},{pointer:#x},{size},0x0\n")
    return path
