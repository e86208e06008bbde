# SPDX-License-Identifier: Apache-2.0
# The contract suite as a program under cuvmm: what the card answers when we only watch, and when its
# memory is served by us. The counts go into the result; what was skipped, and why, is in the text.
source tools/tell.sh
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
status=0

count_of() {  # WHAT
  local count
  count=$(sed -n "s/^  \"$1\": \([0-9]*\),\$/\1/p" "$counts")
  printf '%s' "${count:-null}"
}

for mode in monitor vmm; do
  echo "-- $mode"
  result=passed
  : >"$counts"
  run_in "$mode"
  # Without the folder that it was built in.
  "${before[@]}" build/bin/cuvmm_contract_tests --gtest_brief=1 --gtest_output="json:$counts" |
    sed -E 's#^/[^ ]*/(tests/)#\1#' || result=failed status=1
  tell "contract suite" "$mode" "$result" tests "$(count_of tests)" failures "$(count_of failures)" \
    skipped "$(grep -c '"result": "SKIPPED"' "$counts")"
done
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
