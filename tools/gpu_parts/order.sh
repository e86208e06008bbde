# SPDX-License-Identifier: Apache-2.0
# Random programs beside the model of stream order: natively, which tests the model, and under cuvmm.
# Streams and threads end only with nothing to do, since on a card their end may wait.
source tools/tell.sh
programs=${CUVMM_ORDER_PROGRAMS:-5000}
status=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
count_of() { sed -n "s/^$1 \([0-9]*\)\$/\1/p" "$out" | grep . || echo null; }

for mode in native vmm; do
  echo "-- $mode"
  result=passed
  run_in "$mode"
  "${before[@]}" build/bin/cuvmm_order_tests --programs "$programs" --end-idle-only >"$out" ||
    result=failed status=1
  tail -n 60 "$out"
  tell "order" "$mode" "$result" programs "$programs" reused_while_blocked \
    "$(count_of reused_while_blocked)" compared_words "$(count_of compared_words)"
done
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
