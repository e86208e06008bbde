#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quick.sh BUILD OUTPUT: shows in seconds what cuvmm changes for a program. Runs two example tests
# with the driver's own memory and under cuvmm, with times and graphs of both, and a producer and a
# consumer of shared memory. Uses the card if there is one. Fails if one of them fails.
set -euo pipefail
build=$(readlink -f "$1")
mkdir -p "$2"
output=$(readlink -f "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
heading() { printf '\n== %s\n' "$*"; }

simulated=() small=() fill=() largest=()
if nvidia-smi -L >/dev/null 2>&1; then
  fill=(--fill 8G)   # filling a whole large card would take half a minute
  echo "on $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | sed 's/, /, driver /')"
else
  echo "no card here: on the simulated driver"
  simulated=(--sim) small=(--sim=memory=64M) largest=(--largest 512M)
fi

# The result and time of every run, for the summary.
declare -A result seconds
trial() {  # NAME HOW MODE EXPECTED-STATUS PROGRAM...
  local name=$1 how=$2 mode=$3 expected=$4 sim=("${simulated[@]}") began ended ended_with=0
  shift 4
  [[ $name != frag_test || ${#small[@]} == 0 ]] || sim=("${small[@]}")
  heading "$name, $how"
  began=$(date +%s%N)
  # Keep the log of intended refusals out of the program's own output.
  rm -f "$output/$name.$mode.trace" "$output/$name.$mode.log"
  "$build/bin/cuvmm" run --quiet "${sim[@]}" --mode "$mode" --trace "$output/$name.$mode.trace" \
    --log-file "$output/$name.$mode.log" -- "$@" >"$work/said" 2>&1 || ended_with=$?
  ended=$(date +%s%N)
  sed 's/^/  /' "$work/said"
  seconds[$name.$mode]=$(printf '%d.%02d' $(((ended - began) / 1000000000)) $(((ended - began) / 10000000 % 100)))
  case $name in
    frag_test) result[$name.$mode]=$(sed -nE 's/^ +answer +(.*[^ ]) +\(.*/\1/p' "$work/said") ;;
    resize_test) result[$name.$mode]=$(sed -nE 's/^asked to copy .*, (copied .*)/\1/p' "$work/said") ;;
  esac
  [[ $ended_with == "$expected" ]] || { echo "  ended with $ended_with instead of $expected"; result[$name.$mode]+=" (unexpected)"; status=1; }
}

native="with the driver's own memory"
served="served by cuvmm"
trial frag_test "$native" monitor 1 "$build/bin/frag_test" "${fill[@]}"
trial frag_test "$served" vmm 0 "$build/bin/frag_test" "${fill[@]}"
trial resize_test "$native" monitor 0 "$build/bin/resize_test" "${largest[@]}"
trial resize_test "$served" vmm 0 "$build/bin/resize_test" "${largest[@]}"

heading "producer and consumer, two processes with the same memory"
export XDG_RUNTIME_DIR=$work
"$build/bin/cuvmm" run --quiet "${simulated[@]}" -- "$build/bin/producer" >"$work/producer" 2>&1 &
producer=$!
for _ in {1..600}; do [[ -S $work/cuvmm/share ]] && break || sleep 0.05; done
shared="verified"
"$build/bin/cuvmm" run --quiet "${simulated[@]}" -- "$build/bin/consumer" >"$work/consumer" 2>&1 || shared="the consumer failed"
wait "$producer" || shared="the producer failed"
sed 's/^/  /' "$work/producer"
sed 's/^/      /' "$work/consumer"
if [[ $shared == verified ]]; then
  shared=$(sed -nE 's/^Data verification PASSED \((.*)\)/\1/p' "$work/consumer")
else
  status=1
fi

# Only graphs need Python packages, so nothing fails without them.
draw() {  # NAME
  "$build/bin/cuvmm" plot --quiet -o "$output/graph_$1.png" -- "$output/$1.monitor.trace" "$output/$1.vmm.trace"
}
graphs=()
rm -f "$output"/graph_{frag,resize}_test.png
draw frag_test 2>"$work/plot" &
draw resize_test 2>/dev/null || true
wait $! || true
for name in frag_test resize_test; do
  [[ ! -s $output/graph_$name.png ]] || graphs+=("$output/graph_$name.png")
done

heading "summary"
row() { printf '  %-22s %-32s %s\n' "$@"; }
row '' "$native" "$served"
for name in frag_test resize_test; do
  row "$name" "${result[$name.monitor]}, ${seconds[$name.monitor]} s" "${result[$name.vmm]}, ${seconds[$name.vmm]} s"
done
row 'producer and consumer' '' "$shared"
for graph in "${graphs[@]}"; do row 'graph' "$graph" ''; done
[[ ${#graphs[@]} == 2 ]] || sed 's/^/  /' "$work/plot"
exit "$status"
