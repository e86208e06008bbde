# SPDX-License-Identifier: Apache-2.0
# Runs random work in eight threads under memory pressure, repeatable by its seed: memory is
# allocated, grown, freed, and shared with another process. There must be no wrong word and no
# unexpected answer, and the host's memory must not grow. Alternates between optional features; six
# minutes in total.
program=build/bin/cuvmm_test_endurance
seconds=${CUVMM_ENDURANCE_SECONDS:-70}
allowed_growth=64  # MiB that a longer run may add to the allocator's own lists
status=0 separator='' details=''

endure() {  # NAME OPTION…
  local name=$1 out before after ended=0 result=passed seed=${CUVMM_SEED:-$RANDOM}
  shift
  out=$(mktemp)
  echo "-- $name: $* (seed $seed)"
  "$@" "$program" --seconds "$seconds" --threads 8 --largest $((256 << 20)) --share 64 --seed "$seed" \
    >"$out" 2> >(tail -n 20 >&2) || ended=$?
  if ((ended != 0)); then
    echo "ended with status $ended"
    result=failed status=1
  fi
  cat "$out"
  before=$(sed -n 's/^host_mib_before //p' "$out")
  after=$(sed -n 's/^host_mib_after //p' "$out")
  if ((${after:-0} > ${before:-0} + allowed_growth)); then
    echo "the host's memory grew from $before to $after MiB"
    result=failed status=1
  fi
  details+="$separator{\"what\": $(json_text "$name"), \"result\": \"$result\", \"seed\": $seed$(
    sed -nE 's/^([a-z_]+) ([0-9]+)$/, "\1": \2/p' "$out" | tr -d '\n')}"
  separator=', '
  rm -f "$out"
}
source tools/common.sh
endure native env
endure "limit of 16 GiB" build/bin/cuvmm run --limit 16G --
endure "limit of 16 GiB, tight, relaxed" env VMM_GROW=tight VMM_FREE=relaxed build/bin/cuvmm run --limit 16G --
endure "limit of 16 GiB, scheduled" env VMM_CLIENT=endurance build/bin/cuvmm run --limit 16G --schedule fair --
endure "limit of 12 GiB, 8 GiB spilled" build/bin/cuvmm run --limit 12G --spill host:8G --
printf '[%s]\n' "$details" >"$CUVMM_PART_DETAILS"
exit "$status"
