#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The examples that nvcc builds, on the simulated driver: their output natively and under cuvmm.
#   check_runtime_examples.sh BUILD EXAMPLE
set -euo pipefail
build=$1 example=$2
program=$build/bin/$example
[[ -x $program ]] || { echo "skipped: $example is not built: nvcc is not installed"; exit 0; }

fail() { echo "check_runtime_examples: $*" >&2; exit 1; }
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# MODE STATUS TEXT [OPTION...]: the example ends with this status and prints this text.
expect() {
  local mode=$1 status=$2 text=$3 got=0
  shift 3
  "$build/bin/cuvmm" run "$@" --mode "$mode" -- "$program" "${words[@]}" >"$said" 2>&1 || got=$?
  [[ $got == "$status" ]] || { cat "$said" >&2; fail "$mode: status $got instead of $status"; }
  grep -qF -- "$text" "$said" || { cat "$said" >&2; fail "$mode: it does not say '$text'"; }
}

words=()
case $example in
  vector_add)
    expect off 0 "1000000 sums, 0 of them wrong" --sim
    expect vmm 0 "1000000 sums, 0 of them wrong" --sim ;;
  frag_test_runtime)
    expect off 1 "FAILED: the memory is free, but cannot be allocated in one piece" --sim=memory=64M
    expect vmm 0 "SUCCEEDED: what is free can be allocated in one piece" --sim=memory=64M ;;
  resize_test_runtime)
    words=(--largest 256M)
    expect off 0 "SUCCEEDED: every byte checked is correct" --sim=memory=1G
    expect vmm 0 "SUCCEEDED: every byte checked is correct" --sim=memory=1G ;;
  *) fail "there is no example '$example'" ;;
esac
