# SPDX-License-Identifier: Apache-2.0
# ./dev demo: what the driver allows, then what a program gets of it; on the card where there is one.
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

# The same program twice. Natively it has to fail, or there would be nothing to show.
simulated=()
[[ -n ${CUVMM_TEST_DRIVER:-} ]] || simulated=(--sim)
say "a program that fills the card, frees every second block and asks for one large one; natively:"
! build/bin/cuvmm run "${simulated[@]}" --mode off -- build/bin/frag_test ||
  die "frag_test succeeded natively"
say "the same program, served by cuvmm:"
build/bin/cuvmm run "${simulated[@]}" --mode vmm -- build/bin/frag_test
