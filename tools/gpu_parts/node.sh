# SPDX-License-Identifier: Apache-2.0
# Tests the node service: two programs of 8 GiB that take turns on 12 GiB, compared with two bare
# processes that copy as much out and in at once; three programs of 60% of 24 GiB; four servers with
# 8 GiB of weights each on 12 GiB; then trainings in turns, guarantees and leases, two minutes at most
# (tools/node_figures.py).
status=0
log=$(mktemp)
place=$(mktemp -d)
service=
tidy_up() {
  [[ -z $service ]] || kill "$service" 2>/dev/null || true
  rm -rf "$log" "$place"
}
trap tidy_up EXIT
export VMM_NODE_SOCKET=$place/cuvmmd.sock
source tools/common.sh
card=$(of_visible_cards index | head -n 1)  # cuvmmd manages all cards of the host, and we use one

if python3 -c 'import torch' 2>/dev/null; then
  cat >"$place/copies.py" <<'COPIES'
import sys
import time
import torch
size = 8 << 30
there = torch.empty(size, dtype=torch.uint8, device="cuda")
here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
goes_out = sys.argv[1] == "out"
here.copy_(there)
torch.cuda.synchronize()
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
for round in range(3):
    began = time.perf_counter()
    (here if goes_out else there).copy_(there if goes_out else here, non_blocking=True)
    torch.cuda.synchronize()
    print(f"bare copy of 8 GiB {sys.argv[1]}: {(time.perf_counter() - began) * 1000:.1f} ms")
COPIES
  at=$(($(date +%s) + 40))
  python3 -B "$place/copies.py" out "$at" >"$place/out.txt" &
  python3 -B "$place/copies.py" in "$at" >"$place/in.txt" || status=1
  wait $! || status=1
  cat "$place/out.txt" "$place/in.txt" | tee -a "$log"
fi

build/bin/cuvmmd --socket "$VMM_NODE_SOCKET" --capacity "$card=12G" 2>"$place/service.log" &
service=$!
for _ in {1..600}; do [[ -S $VMM_NODE_SOCKET ]] && break || sleep 0.05; done
programs=()
for name in A B; do
  build/bin/cuvmm run --quiet --name "$name" --node require --node-wait 300s -- \
    build/bin/take_turns --mib 8192 --steps 400 --rest 5 &
  programs+=($!)
done
for program in "${programs[@]}"; do wait "$program" || { echo "failed: two of 8 GiB"; status=1; }; done
sed -n 's/^.* \([AB] gave .*\)$/\1/p' "$place/service.log" | tee -a "$log"
kill "$service" && wait "$service" || true
service=

tools/demo_node.sh build --card "$card" 2>&1 | tee -a "$log" || status=1
python3 -B tools/demo_servers.py build --card --memory 12G --mib 8192 --servers 4 --rest 2 \
  --json "$place/servers.json" || status=1
"${CUVMM_PYTHON:-python3}" -B tools/node_figures.py build --details "$place/figures.json" || status=1
python3 -B - "$log" "$place/servers.json" "$place/figures.json" >"$CUVMM_PART_DETAILS" <<'FIGURES' || status=1
import json
import re
import statistics
import sys
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
def milliseconds(pattern):
    return [float(found.group(1)) for line in lines if (found := re.search(pattern, line))]
moved = milliseconds(r"^[AB] gave 8.*GiB.* in ([0-9.]+) ms \(pause\)")
bare = milliseconds(r"^bare copy .*: ([0-9.]+) ms")
print(json.dumps({"pauses_of_8_gib_ms": moved,
                  "pause_median_ms": statistics.median(moved) if moved else None,
                  "bare_copies_ms": bare, "servers": json.load(open(sys.argv[2], encoding="utf-8")),
                  **json.load(open(sys.argv[3], encoding="utf-8"))}))
FIGURES
exit "$status"
