#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges the generator of tests/order: breaks one rule of docs/stream_order.md at a time in a copy of
the tree, builds the preload library, and runs the random programs until one of them finds it.

usage: tools/order_mutants.py [--programs N] [--only NAME] [--out FILE]
Works in build-mutants, a copy of the sources and of the release build."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build-mutants"
MARKS, CLOCK = "src/stream/stream_marks.cpp", "src/stream/stream_clock.cpp"
EVENTS, TABLE = "src/stream/event_places.cpp", "src/stream/stream_table.cpp"
STATE, DOOR = "src/stream/stream_state.hpp", "src/hook/door.hpp"
LAYOUT, SITE = "src/alloc/arena/layout.cpp", "src/alloc/arena/site.cpp"
POOL, FREE = "src/alloc/pool_order.hpp", "src/alloc/memory_free.cpp"

# (name, axiom, file, what stands there, what stands there instead)
MUTANTS = [
    ("range takes the earlier ticket", 1, LAYOUT, "return a.tick >= b.tick ? a : b;", "return a.tick <= b.tick ? a : b;"),
    ("joined range forgets a stream's ticket", 1, LAYOUT, "if (a.is_for_anyone()) return b;\n  if (b", "if (a.is_for_anyone()) return a;\n  if (b"),
    ("pending ranges settle at once", 1, LAYOUT, "if (order.is_free_for_anyone(range.ticket)) done", "done"),
    ("any stream may use any free range", 1, SITE, "if (since.is_for_anyone() || since.stream == stream) return true;", "return true;"),
    ("free does not stand behind the legacy rule", 2, MARKS, "answer_ = stand_as_barrier();", "answer_ = CUDA_SUCCESS;"),
    ("query does not ask barriers", 2, MARKS, "poll(*state, Zeal::Full);\n  return !state->has_barrier.load(std::memory_order_acquire);", "return true;"),
    ("synchronization does not wait for barriers", 2, MARKS, "answer = driver_.cuEventSynchronize(last);", "answer = CUDA_SUCCESS;"),
    ("allocation behind others has no barrier", 2, MARKS, "if (!is_ahead_of_barrier_) return CUDA_SUCCESS;\n  before_", "return CUDA_SUCCESS;\n  before_"),
    ("allocation counts as a barrier for later frees", 2, MARKS, "if (kind == Kind::Allocation) return;", "if (kind == Kind::Allocation) { stream_.barrier_epoch.store(epoch_); return; }"),
    ("idle stream is proof despite marks", 2, MARKS, "if (!state.marks.empty()) return;\n  }\n  // The legacy", "}\n  // The legacy"),
    ("wait for one stream proves all of its context", 2, CLOCK, "if (state->kind == StreamKind::Legacy) {\n    table_.for_each_of(state->context, [&](StreamState& other) {\n      if (waits_for(*state, other)) horizon.add(other);", "{\n    table_.for_each_of(state->context, [&](StreamState& other) {\n      horizon.add(other);"),
    ("wait for the legacy stream proves non-blocking ones", 2, CLOCK, "if (waits_for(*state, other)) horizon.add(other);", "horizon.add(other);"),
    ("marks are taken for complete", 2, MARKS, "return driver_.cuEventQuery(event) == CUDA_SUCCESS;\n    });\n    if (!happened) break;", "return driver_.cuEventQuery(event) != CUDA_ERROR_INVALID_VALUE;\n    });\n    if (!happened) break;"),
    ("mark covers the next free too", 2, MARKS, ".tick = is_exact ? ticket.tick : before_,", ".tick = ticket.tick + 1,"),
    ("late marks are followed", 3, MARKS, "{.tick = tick, .events = {event}, .is_exact = false}", "{.tick = tick, .events = {event}, .is_exact = true}"),
    ("merged ranges are followed", 3, SITE, "!range.is_merged && ", ""),
    ("look records on the legacy stream", 3, CLOCK, "  poll(*state, Zeal::Sparing);", "  poll(*state, Zeal::Sparing);\n  Mark late{.tick = state->tick.load(), .events = {}};\n  if (record_on(*state, CU_STREAM_LEGACY, late)) add_mark(*state, std::move(late));"),
    ("record does not end what was known", 4, EVENTS, "change(group, [&](Group& known) { known.places.erase(event_); });", ""),
    ("answers count although the event was recorded again", 4, EVENTS, "return !recorded.place.empty() && look_up(event).serial == recorded.serial;", "return !recorded.place.empty();"),
    ("two records at once count", 4, EVENTS, "if (!was_alone || known", "if (known"),
    ("records by graphs are not seen as such", 4, EVENTS, "group.recorded_unseen.insert(event);\n    group.places.erase(event);", ""),
    ("event waits order nothing", 4, CLOCK, "learn(*state, recorded.place);", "static_cast<void>(state);"),
    ("event wait orders everything on the event's streams", 4, CLOCK, "learn(*state, recorded.place);", "{ Place all = recorded.place; for (FreeTicket& t : all) t.tick += 1000; learn(*state, all); }"),
    ("the legacy rule orders before any operation", 7, CLOCK, "if (to == nullptr || !to->knows_others", "if (to != nullptr && waits_for(*to, *from)) return true;\n  if (to == nullptr || !to->knows_others"),
    ("non-blocking streams obey the legacy rule", 7, STATE, "bool is_blocking() const { return kind == StreamKind::Blocking || kind == StreamKind::PerThread; }", "bool is_blocking() const { return kind != StreamKind::Legacy && kind != StreamKind::Everything; }"),
    ("per-thread streams do not obey the legacy rule", 7, STATE, "bool is_blocking() const { return kind == StreamKind::Blocking || kind == StreamKind::PerThread; }", "bool is_blocking() const { return kind == StreamKind::Blocking; }"),
    ("legacy work is not noted", 7, DOOR, "is_legacy ? barrier.legacy_submitted() : barrier.blocking_submitted();", "if (!is_legacy) barrier.blocking_submitted();"),
    ("blocking work is not noted", 7, DOOR, "is_legacy ? barrier.legacy_submitted() : barrier.blocking_submitted();", "if (is_legacy) barrier.legacy_submitted();"),
    ("operations on the legacy stream are not noted", 7, MARKS, "clock_.program_.legacy.legacy_submitted();\n  } else", "} else"),
    ("operations on blocking streams are not noted", 7, MARKS, "} else if (stream_.is_blocking()) {\n    clock_.program_.legacy.blocking_submitted();", "} else if (stream_.is_blocking()) {"),
    ("blocking free of pool memory discharges its points", 8, MARKS, "if (!state->has_unfinished() && known_of(*state).empty()) return {};\n  return state->ticket();", "return {};"),
    ("blocking free of pool memory waits for the context", 8, FREE, "  // The driver waits for nothing here: the program is done with the memory.", "  around_.driver.cuCtxSynchronize_v2000();"),
    ("opportunistic reuse cannot be forbidden", 9, POOL, "return looks_by_chance_.load(std::memory_order_relaxed) ? order_.is_done(freed)\n                                                            : order_.was_waited_for(freed);", "return order_.is_done(freed);"),
    ("following events cannot be forbidden", 9, POOL, "if (follows_events_.load(std::memory_order_relaxed)) return order_.is_before(freed, asker);\n    return is_free_for_anyone(freed);", "return order_.is_before(freed, asker);"),
    ("ended threads' work is taken for done", 11, TABLE, "    end(*place->second);\n    place = by_key_.erase(place);\n    note_change();\n  }\n}\n\nvoid StreamTable::context_ends", "    place->second->advance(last_tick);\n    end(*place->second);\n    place = by_key_.erase(place);\n    note_change();\n  }\n}\n\nvoid StreamTable::context_ends"),
    ("ended streams' work is taken for done", 11, MARKS, "if (in_context.ok() && record_on(*state, handle, last)) {\n      add_mark(*state, std::move(last));\n    } else", "state->advance(last_tick);\n    if (false) {\n    } else"),
    ("all allocations stand behind the legacy rule", 12, "src/alloc/memory.cpp", "if (PoolMemory::is_behind_others(**made)) {", "{"),
    ("frees on the legacy stream wait on the host", 12, MARKS, "CUresult Operation::stand_as_barrier() {", "CUresult Operation::stand_as_barrier() {\n  clock_.driver_.cuStreamSynchronize(stream_.handle);"),
    ("synchronous copies prove their context", 13, DOOR, "    return answer;\n  }\n\n  // Which side", "    if constexpr (copies_or_sets) {\n      if (Serving* const all = engine_.serving(); all != nullptr && answer == CUDA_SUCCESS) {\n        for (StreamState* one : all->clock.table().everything_of_all()) {\n          all->clock.horizon_of(one->context).reached();\n        }\n      }\n    }\n    return answer;\n  }\n\n  // Which side"),
]

SETTINGS = [
    ("eager", {"VMM_SIM_ORDER": "eager"}, []),
    ("lazy", {"VMM_SIM_ORDER": "lazy"}, []),
    ("races", {"VMM_SIM_DELAY": "cuEventQuery=50us,cuStreamWaitEvent=50us,cuEventRecord=20us"}, []),
    ("limit", {"VMM_WAIT": "1ms"}, ["--limit", "24M"]),
]


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def copy_tree():
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir()
    files = run(["git", "ls-files"], cwd=ROOT).stdout.split()
    for name in files:
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)
    run(["cmake", "--preset", "release", "-DCUVMM_BENCH=OFF"], cwd=COPY)


def build():
    made = run(["ninja", "-C", str(COPY / "build"), "cuvmm_cli", "cuvmm_preload", "cuvmm_order_tests"])
    return None if made.returncode == 0 else re.findall(r"error: .*", made.stdout + made.stderr)[:1] or ["?"]


def judge(programs):
    """The kind of violation, in which setting, and the program that found it; None if none did."""
    for setting, variables, flags in SETTINGS:
        command = ["build/bin/cuvmm", "run", "--quiet", "--mode", "vmm", "--sim", *flags, "--",
                   "build/bin/cuvmm_order_tests", "--programs", str(programs), "--seed", "1"]
        try:
            done = run(command, cwd=COPY, env={**os.environ, **variables}, timeout=900)
        except subprocess.TimeoutExpired:
            return "no end within 15 min", setting, "-"
        if done.returncode == 0:
            continue
        said = re.search(r"VIOLATION: ([^:\n]*)", done.stdout + done.stderr)
        seed = re.search(r"^seed (\d+)", done.stdout + done.stderr, re.M)
        return said.group(1) if said else f"status {done.returncode}", setting, seed.group(1) if seed else "-"
    return None


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--programs", type=int, default=2500, help="in each of the four settings")
    options.add_argument("--only", help="mutants whose name contains this")
    options.add_argument("--out", help="append the table here")
    asked = options.parse_args()
    copy_tree()
    failed = build()
    if failed:
        sys.exit(f"the tree as it is does not build: {failed[0]}")
    out = open(asked.out, "a", encoding="utf-8") if asked.out else sys.stdout
    missed = 0
    for name, axiom, file, old, new in MUTANTS:
        if asked.only and asked.only not in name:
            continue
        path = COPY / file
        text = path.read_text(encoding="utf-8")
        if text.count(old) < 1:
            sys.exit(f"mutant '{name}': {file} no longer says what it replaces")
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        started = time.monotonic()
        failed = build()
        found = ("does not build: " + failed[0], "-", "-") if failed else judge(asked.programs)
        path.write_text(text, encoding="utf-8")
        missed += found is None or bool(failed)
        what = f"{found[0]}, {found[1]}, program {found[2]}" if found else "NOT FOUND"
        print(f"axiom {axiom:2d}  {name}: {what} ({time.monotonic() - started:.0f} s)", file=out, flush=True)
    print(f"{missed} not found", file=out, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
