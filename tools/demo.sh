# SPDX-License-Identifier: Apache-2.0
# ./dev demo: the contract suite's headline scenario, on the card where there is one.
if nvidia-smi -L >/dev/null 2>&1; then
  export CUVMM_TEST_DRIVER=libcuda.so.1
  say "on $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | sed 's/, /, driver /')"
else
  say "no card here: on the simulated driver"
fi
headline='Headline.*:*/Headline.*'
build/bin/cuvmm_contract_tests --gtest_filter="$headline" --gtest_list_tests | grep -q Headline ||
  die "the contract suite has no headline scenario"
build/bin/cuvmm_contract_tests --gtest_filter="$headline"
