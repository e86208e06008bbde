#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_statics.sh BUILD: no library that programs load has a guarded static variable. A child that
# is forked while another thread initializes one waits for that thread forever (base/made_once.hpp).
set -euo pipefail
status=0
for library in libcuvmm_preload.so libcuvmm.so libcuvmm_stub.so cuvmm/sim/libcuda.so.1 cuvmm/sim/libnvidia-ml.so.1; do
  [[ $library == libcuvmm_stub.so && ! -e $1/lib/$library ]] && continue  # sanitized builds have none
  symbols=$(readelf -sW "$1/lib/$library" | awk '$1 ~ /^[0-9]+:$/ && $8 {print $8}')
  grep -q cuvmm <<<"$symbols" || { echo "$library: has no symbols"; status=1; }
  guards=$(grep -E '^_ZGV.*5cuvmm' <<<"$symbols" | sort -u | c++filt || true)
  [[ -z $guards ]] || { echo "$library:"; echo "$guards"; status=1; }
done
exit "$status"
