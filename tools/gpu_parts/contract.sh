# SPDX-License-Identifier: Apache-2.0
# The contract suite, as it runs on the simulated driver, on the card. The counts go into the
# result; which tests failed, and why, is in the text.
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
status=0
# Without the folder that it was built in.
build/bin/cuvmm_contract_tests --gtest_brief=1 --gtest_output="json:$counts" |
  sed -E 's#^/[^ ]*/(tests/)#\1#' || status=$?
{ sed '/^  "name"/,$d' "$counts"; printf '  "suite": "contract"\n}\n'; } >"$CUVMM_PART_DETAILS"
exit "$status"
