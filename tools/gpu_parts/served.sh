# SPDX-License-Identifier: Apache-2.0
# The contract suite as a program under cuvmm: what the card answers when its memory is served by us.
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
status=0
build/bin/cuvmm run --mode vmm -- build/bin/cuvmm_contract_tests --gtest_brief=1 --gtest_output="json:$counts" |
  sed -E 's#^/[^ ]*/(tests/)#\1#' || status=$?
{ sed '/^  "name"/,$d' "$counts"; printf '  "suite": "contract, served"\n}\n'; } >"$CUVMM_PART_DETAILS"
exit "$status"
