# SPDX-License-Identifier: Apache-2.0
# Runs the contract suite, which also runs on the simulated driver, on the card. The result contains
# the counts; the text names the failed tests and why they failed.
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
status=0
build/bin/cuvmm_contract_tests --gtest_brief=1 --gtest_output="json:$counts" || status=$?
{ sed '/^  "name"/,$d' "$counts"; printf '  "suite": "contract"\n}\n'; } >"$CUVMM_PART_DETAILS"
exit "$status"
