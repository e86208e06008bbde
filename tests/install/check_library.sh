#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_library.sh BUILD SOURCE: what libcuvmm.so exports and needs. It exports exactly the C API of
# the public headers, so that loading it changes no other symbol lookup. The C++ headers cover all
# of that API.
set -euo pipefail
library=$1/lib/libcuvmm.so
headers=$2/include/cuvmm
status=0
wrong() { echo "$*"; status=1; }

needed=$(readelf -dW "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
echo "needs:" $needed
for one in $needed; do
  grep -qxE 'libc.so.6|libdl.so.2|libpthread.so.0|ld-linux-(x86-64.so.2|aarch64.so.1)' <<<"$one" || wrong "needs $one"
done
soname=$(readelf -dW "$library" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')
[[ $soname == libcuvmm.so.[0-9]* ]] || wrong "has the soname '$soname'"

shown=$(readelf --dyn-syms -W "$library" |
  awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $7 != "ABS" && $8 {sub(/@.*/, "", $8); print $8}' | sort -u)
declared=$(grep -hoE '\bcuvmm_[a-z0-9_]+\(' "$headers"/*.h | grep -v '^cuvmm_sim_' | tr -d '(' | sort -u)
echo "shows: $(wc -l <<<"$shown") functions"
differ=$(diff <(echo "$declared") <(echo "$shown")) || wrong "headers (<) and library (>) differ:
$differ"

# C++ covers every call. tests/python/check_library.py compares the Python package.
for call in $declared; do
  grep -qw -- "$call" "$headers"/*.hpp || wrong "no C++ header has $call"
done
exit "$status"
