#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_quick.sh BUILD: what ./dev quick shows, and that it fails if a program that it shows does.
set -euo pipefail
build=$(readlink -f "$1")
root=$(dirname "$(readlink -f "$0")")/../..
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
fail() { echo "quick: $*" >&2; cat "$trial/said" >&2; exit 1; }
shows() { grep -qE -- "$1" "$trial/said" || fail "does not show '$1'"; }

"$root/tools/quick.sh" "$build" "$trial/output" >"$trial/said" 2>&1 || fail "failed"
time='[0-9]+\.[0-9]{2} s'
shows "^  frag_test +out of memory, $time +success, $time$"
shows "^  resize_test +copied [0-9.]+ .iB, $time +copied [0-9.]+ .iB, $time$"
shows '^  producer and consumer +262144 integers verified$'
for trace in {frag,resize}_test.{monitor,vmm}.trace; do
  [[ -s $trial/output/$trace ]] || fail "no $trace"
done
if grep -q matplotlib "$trial/said"; then
  echo "no graphs here"
else
  for graph in frag resize; do [[ -s $trial/output/graph_${graph}_test.png ]] || fail "no graph of $graph"; done
fi

# A program that wrongly succeeds natively, or fails under cuvmm. No graphs: only a Python that does
# not exist turns them off.
export CUVMM_PYTHON=/nonexistent/python
broken() {  # PROGRAM STATUS
  rm -rf "$trial/broken"
  mkdir -p "$trial/broken/bin"
  ln -s "$build"/bin/{cuvmm,frag_test,resize_test,producer,consumer} "$trial/broken/bin"
  rm "$trial/broken/bin/$1"
  printf '#!/bin/sh\nexit %s\n' "$2" >"$trial/broken/bin/$1"
  chmod +x "$trial/broken/bin/$1"
  ! "$root/tools/quick.sh" "$trial/broken" "$trial/output" >"$trial/said" 2>&1 || fail "succeeds although $1 ends with $2"
}
broken frag_test 0
shows 'ended with 0 instead of 1'
broken resize_test 1
shows 'ended with 1 instead of 0'
echo "quick: all as it should be"
