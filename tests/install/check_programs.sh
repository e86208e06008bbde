#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_programs.sh BUILD: built programs run from wherever they are copied to, find the simulated
# driver only when told to, and are not linked to a driver.
set -euo pipefail
build=$1
largest_mib=64
status=0
wrong() { echo "$*"; status=1; }

while IFS= read -r -d '' binary; do
  dynamic=$(readelf -dW "$binary" 2>/dev/null) || continue   # a script
  # These link against libcuda.so.1, as any CUDA program does.
  [[ ${binary##*/} =~ ^cuvmm_(order_tests|test_aimdo|test_paged_cache)$ ]] ||
    ! grep -q 'NEEDED.*libcuda\.' <<<"$dynamic" || wrong "$binary is linked to libcuda"
  searched=$(sed -nE 's/.*(RUNPATH|RPATH).*\[(.*)\]/\2/p' <<<"$dynamic")
  # Examples are installed in a folder that is not beside lib.
  [[ -z $searched || $searched == '$ORIGIN/../lib' || $searched == '$ORIGIN/../lib:$ORIGIN/../../lib' ]] || wrong "$binary searches libraries in $searched"
done < <(find "$build/bin" "$build/lib" -type f -print0)

for library in libcuda.so.1 libnvidia-ml.so.1; do
  [[ -e $build/lib/cuvmm/sim/$library ]] || wrong "no simulated $library in $build/lib/cuvmm/sim"
done
strays=$(find "$build/bin" "$build/lib" \( -name 'libcuda.so*' -o -name 'libnvidia-ml.so*' \) ! -path "$build/lib/cuvmm/sim/*")
[[ -z $strays ]] || wrong "a driver lies where programs may find it by accident: $strays"

mib=$(du -sm --total "$build/bin" "$build/lib" | tail -n 1 | cut -f1)
((mib <= largest_mib)) || wrong "bin and lib take $mib MiB, more than the $largest_mib that can be carried"
echo "bin and lib: $mib MiB"
exit "$status"
