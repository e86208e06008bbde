# SPDX-License-Identifier: Apache-2.0
# Pauses and resumes programs: 8 GiB with and without ready host memory, 64 GiB with it. The link's
# bandwidth is that of one copy of pinned memory.
source tools/common.sh
status=0
log=$(mktemp)
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$log" "$XDG_RUNTIME_DIR"' EXIT
say() { echo "$*" | tee -a "$log"; }

# The program sleeps most of the time, so that a pause seldom hits it inside a step.
pauses() {  # WHAT MIB ROUNDS SECONDS_BEFORE STEPS WORD=VALUE…
  local runner round
  say "-- $1"
  env "${@:6}" build/bin/cuvmm run --quiet --control -- \
    build/bin/take_turns --mib "$2" --steps "$5" --rest 100 &
  runner=$!
  for _ in {1..600}; do
    compgen -G "$XDG_RUNTIME_DIR/cuvmm/control-*" >/dev/null && break || sleep 0.05
  done
  sleep "$4"
  say "used before: $(used)"
  for ((round = 1; round <= $3; ++round)); do
    build/bin/cuvmm pause --all 2>&1 | tee -a "$log" || status=1
    say "used while paused: $(used)"
    build/bin/cuvmm resume --all 2>&1 | tee -a "$log" || status=1
    sleep 0.5
  done
  wait "$runner" || { say "failed: $1"; status=1; }
}
used() { of_visible_cards memory.used | head -n 1; }

if python3 -c 'import torch' 2>/dev/null; then
  python3 -B - <<'LINK' | tee -a "$log" || status=1
import time
import torch
there = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
here = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
for way, to, source in (("out", here, there), ("back", there, here)):
    best = 0
    for _ in range(8):
        torch.cuda.synchronize()
        began = time.perf_counter()
        to.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        best = max(best, (1 << 30) / (time.perf_counter() - began) / 1e9)
    print(f"link {way}: {best:.2f} GB/s")
LINK
fi
pauses "8 GiB ready" 8192 3 4 60 VMM_PAUSE_AHEAD=100%
room=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
if ((room > 80)); then
  pauses "64 GiB ready" 65536 3 20 240 VMM_PAUSE_AHEAD=100%
else
  say "skipped: 64 GiB: the host has $room GiB"
fi
# Last, since the host of a virtual machine must first provide memory that the machine has never
# touched, which takes five times as long. How long the system takes to hand out that much memory
# bounds a cold pause, as the link does.
touch() {
  python3 -B - <<'TOUCH' | tee -a "$log" || status=1
import ctypes
import mmap
import os
import threading
import time
size = 8 << 30
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
count = len(os.sched_getaffinity(0))
share = (size // count) & -(2 << 20)
madvise = ctypes.CDLL(None).madvise
madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
POPULATE_WRITE = 23
def touch(begin, end):
    if madvise(base + begin, end - begin, POPULATE_WRITE) != 0:
        for page in range(begin, end, 4096):
            memory[page] = 1
ends = [share * i for i in range(count)] + [size]
threads = [threading.Thread(target=touch, args=pair) for pair in zip(ends, ends[1:])]
began = time.perf_counter()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"touched 8 GiB by {count} threads: {(time.perf_counter() - began) * 1000:.1f} ms")
TOUCH
}
for round in 1 2 3; do
  pauses "8 GiB cold" 8192 1 2 60
  touch
done
python3 -B tools/pause_figures.py <"$log" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
