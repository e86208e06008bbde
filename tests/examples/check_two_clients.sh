#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_two_clients.sh BUILD: the example succeeds, natively and under cuvmm, with a figure in each
# line; it prints everything that tools/schedule_figures.py reads; and its trace has each client's
# figures and a track for each. A profiler sees the scheduler's ranges.
set -uo pipefail
build=$1
trace=$(mktemp -d)
trap 'rm -rf "$trace"' EXIT
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
status=0
wrong() { echo "wrong: $*"; status=1; }

said=$(timeout 60 "$build/bin/cuvmm" run --sim --trace "$trace/run.trace" -- "$build/bin/two_clients" 8 2>&1) || wrong "it ends with $?: $said"
for name in 'the first alone' 'the other alone' together 'stream priorities' 'policy fifo' \
    'policy round_robin' 'policy priority' 'policy fair, 3:1'; do
  grep -qE "^$name +([0-9]+ us|-) +.*" <<<"$said" || wrong "there is no line '$name'"
done
(($(grep -cE '^(together|policy fair, 3:1) +[0-9.]+% +[0-9.]+%$' <<<"$said") == 2)) ||
  wrong 'the shares of two that always have work are not there'
natively=$(LD_LIBRARY_PATH=$build/lib/cuvmm/sim timeout 60 "$build/bin/two_clients" 4 2>&1) ||
  wrong "natively it ends with $?: $natively"
grep -q 'the policies need' <<<"$natively" || wrong 'natively it does not say what the policies need'

figures=$(printf -- '-- two clients, round 1\n%s\n' "$said" |
  python3 -B "$here/../../tools/schedule_figures.py") || wrong 'the figures cannot be read'
for name in alone_p99_us priority_p99_us priority_beyond_alone_us priority_kept fair_share_error; do
  grep -q "\"$name\"" <<<"$figures" || wrong "the figures have no $name"
done
stats=$("$build/bin/cuvmm" stats --json "$trace/run.trace") || wrong 'the trace has no statistics'
python3 - "$stats" <<'CHECK' || wrong 'a client has no figures'
import json, sys
clients = json.loads(sys.argv[1])["clients"]
by_name = {one["name"]: one for one in clients}
assert {"answers", "work", "heavy", "light"} <= set(by_name), by_name
assert by_name["answers"]["priority"] == 10 and by_name["light"]["weight"] == 1
for one in clients:
    assert one["operations"] > 0 and one["device_us"] > 0, one
CHECK
"$build/bin/cuvmm" export --format chrome "$trace/run.trace" -o "$trace/run.json" ||
  wrong 'the trace cannot be exported'
python3 - "$trace/run.json" <<'CHECK' || wrong 'the timeline has no track for each client'
import json, sys
events = json.load(open(sys.argv[1], encoding="utf-8"))
events = events["traceEvents"] if isinstance(events, dict) else events
tracks = {one["tid"]: one["args"]["name"] for one in events if one["ph"] == "M" and one["name"] == "thread_name"}
used = {tracks[one["tid"]] for one in events if one.get("cat") == "client"}
for name in ("answers", "work"):
    assert any(f"client {name} (" in track for track in used), (name, used)
assert len({tid for tid, name in tracks.items() if name.startswith("client ")}) >= 8, tracks
CHECK
# A profiler sees ranges; without a profiler there are none.
profiler=$build/tests/programs/libcuvmm_nvtx_injection.so
if [[ -e $profiler ]]; then
  ranges=$(NVTX_INJECTION64_PATH=$profiler "$build/bin/cuvmm" run --sim -- "$build/bin/two_clients" 4 2>&1 | grep '^range ' | sort)
  [[ $ranges == $'range Client:submit_kernel\nrange Client:wait_scheduler\nrange Policy:decide' ]] ||
    wrong "a profiler sees the ranges '$ranges'"
else
  echo 'skipped: NVTX ranges: no nvtx3 headers'
fi
((status == 0)) || printf '%s\n%s\n' "$said" "$figures"
exit "$status"
