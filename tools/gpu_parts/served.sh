# SPDX-License-Identifier: Apache-2.0
# Runs the contract suite as a program under cuvmm: first with cuvmm only monitoring the card, then
# with memory served by it. The result contains the counts; the text names the skipped tests and why
# they were skipped.
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
  "${before[@]}" build/bin/cuvmm_contract_tests --gtest_brief=1 --gtest_output="json:$counts" ||
    result=failed status=1
  tell "contract suite" "$mode" "$result" tests "$(count_of tests)" failures "$(count_of failures)" \
    skipped "$(grep -c '"result": "SKIPPED"' "$counts")"
done
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
