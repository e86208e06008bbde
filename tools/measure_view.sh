#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# measure_view.sh BUILD: measures the command line's time and memory for a trace of ten million
# events. bench/results keeps its output as view.txt.
set -euo pipefail
build=$(readlink -f "$1")
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
"$build/bin/cuvmm_make_trace" 10000000 "$trial/long.trace"
measure() {  # WHAT COMMAND…
  local said
  said=$( { /usr/bin/time -f '%e s, %U + %S s of processors, %M KiB' "${@:2}" >/dev/null 2>"$trial/errors"; } 2>&1; tail -n 1 "$trial/errors")
  printf '%-44s %s\n' "$1" "$said"
}
printf '%s, %s processors, load %s\n' "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
printf 'a trace of 10,000,000 events, %s\n' "$(du -h "$trial/long.trace" | cut -f1)"
for round in 1 2 3; do
  measure "stats, round $round" "$build/bin/cuvmm" stats "$trial/long.trace"
  measure "thinned for a picture, round $round" "$build/bin/cuvmm" plot "$trial/long.trace" -o "$trial/long.json"
done
measure "drawn as PNG" "$build/bin/cuvmm" plot "$trial/long.trace" -o "$trial/long.png"
measure "export csv" "$build/bin/cuvmm" export --format csv "$trial/long.trace" -o /dev/null
measure "export chrome" "$build/bin/cuvmm" export --format chrome "$trial/long.trace" -o /dev/null
measure "export memory_viz" "$build/bin/cuvmm" export --format memory_viz "$trial/long.trace" -o /dev/null
measure "demo to its first picture and the others" "$build/bin/cuvmm" demo --sim -o "$trial/demo"
python3 "$(dirname "$0")/measure_top.py" "$build"
