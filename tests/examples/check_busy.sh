#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_busy.sh BUILD: the example prints everything that it promises, natively and under cuvmm,
# with kernels and graphs, under constant and occasional load; and the tool that measures sharing on
# a card runs through on a simulated one.
set -uo pipefail
build=$1
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
status=0
wrong() { echo "wrong: $*"; status=1; }

figures='"kernels": [1-9][0-9]*, "kernel_us": [0-9.]+, "seconds": [0-9.]+, "device_seconds": [0-9.]+, "p50_us": [0-9.]+, "p99_us": [0-9.]+, "by_second": \[\]'
check() {  # ARGUMENTS of busy
  local said
  said=$("${before[@]}" timeout 200 "${run[@]}" "$build/bin/busy" --seconds 0.2 --json "$@" 2>&1) ||
    wrong "busy $* ends with $?: $said"
  grep -qE "^\{$figures\}$" <<<"$said" || wrong "busy $*: $said"
}
for under in natively cuvmm; do
  before=(env) run=("$build/bin/cuvmm" run --sim --)
  [[ $under == cuvmm ]] || before=(env "LD_LIBRARY_PATH=$build/lib/cuvmm/sim") run=()
  check --kernel 50us
  check --kernel 1ms --graph
  check --kernel 20us --every 10ms --burst 3
done
said=$(timeout 200 "$build/bin/cuvmm" run --sim -- "$build/bin/busy" --kernel 1ms --seconds 1.5 --json 2>&1)
# On a busy machine it may run for longer.
grep -qE '"by_second": \[[01]\.[0-9]+(, [01]\.[0-9]+)*\]' <<<"$said" || wrong "one whole second: $said"
timeout 200 "$build/bin/cuvmm" run --sim -- "$build/bin/busy" --kernel soon >/dev/null 2>&1 &&
  wrong 'a kernel may be as long as "soon"'

said=$(timeout 600 python3 -B "$here/../../tools/time_figures.py" "$build" --sim --seconds 0.4 2>&1) ||
  wrong "time_figures.py ends with $?: $said"
(($(grep -c '±\|+-\|>=\|<=' <<<"$said") == 11)) || wrong "time_figures.py says: $said"
exit "$status"
