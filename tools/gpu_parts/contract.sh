# SPDX-License-Identifier: Apache-2.0
# The contract suite, as it runs on the simulated driver, on the card.
build/bin/cuvmm_contract_tests --gtest_brief=1 --gtest_output="json:$CUVMM_PART_DETAILS"
