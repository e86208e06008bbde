# SPDX-License-Identifier: Apache-2.0
# Runs random programs against the model of stream order: natively, which tests the model, and under
# cuvmm in settings in which it reuses, moves and defers memory differently. Streams and threads end
# only when idle, since on a card their end may wait. Programs with three contexts run only under
# cuvmm: natively, a card adds waits between contexts that the model does not know.
source tools/tell.sh
natively=${CUVMM_ORDER_PROGRAMS:-10000}
served=$((natively / 5))
status=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
count_of() { sed -n "s/^$1 \([0-9]*\)\$/\1/p" "$out" | grep . || echo null; }

try() {  # SETTING PROGRAMS FIRST_SEED CONTEXTS COMMAND…
  local setting=$1 programs=$2 seed=$3 contexts=$4 result=passed
  shift 4
  echo "-- $setting"
  "$@" build/bin/cuvmm_order_tests --programs "$programs" --seed "$seed" --contexts "$contexts" \
    --end-idle-only ${holder:-} >"$out" || result=failed status=1
  tail -n 60 "$out"
  tell "order" "$setting" "$result" programs "$programs" reused_while_blocked \
    "$(count_of reused_while_blocked)" compared_words "$(count_of compared_words)"
}

run="build/bin/cuvmm run --quiet --mode vmm"
try native "$natively" 1 1 env
try vmm "$served" 1 1 $run --
try "three contexts" "$natively" 1 3 $run --
try "three contexts, limit of 24 MiB" "$served" 1 3 env VMM_WAIT=1ms $run --limit 24M --
try "limit of 24 MiB" "$served" 2001 1 env VMM_WAIT=1ms $run --limit 24M --
try "limit of 24 MiB, tight" "$served" 4001 1 env VMM_WAIT=1ms VMM_GROW=tight $run --limit 24M --
try "resize by promise" "$served" 6001 1 env VMM_RESIZE=elide $run --
try "spilled to the host" "$served" 8001 1 env VMM_WAIT=1ms $run --limit 16M --spill host --
try scheduled "$served" 1 1 env VMM_CLIENT=order $run --schedule fair --
holder=--another-holder
try "beside another holder of the context" $((natively / 50)) 1 1 env VMM_WAIT=1ms $run --limit 24M --
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
