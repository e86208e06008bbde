# SPDX-License-Identifier: Apache-2.0
# Tests the pools on the card: their tests, a program's view through the library, the examples, and
# the cost of activating a model compared with the driver's own calls.
library=$PWD/build/lib/libcuvmm.so
say_part() { echo "== $*"; }

say_part "tests of the pools"
CUVMM_TEST_SCALE=0.02 build/bin/cuvmm_pool_tests --gtest_brief=1
say_part "a program of the library, alone and under the preload library"
CUVMM_TEST_ENGINE=own build/bin/cuvmm_library_tests --gtest_brief=1
CUVMM_TEST_ENGINE=preloaded build/bin/cuvmm run -- build/bin/cuvmm_library_tests --gtest_brief=1
if command -v python3 >/dev/null; then
  say_part "the Python package"
  CUVMM_LIBRARY=$library python3 -B tests/python/check_pools.py
  CUVMM_LIBRARY=$library python3 -B examples/elastic_pool.py
fi
say_part "examples"
build/bin/elastic_pool
build/bin/two_models
say_part "what it costs"
build/bin/cuvmm_bench_pool --benchmark_out="$CUVMM_PART_DETAILS" --benchmark_out_format=json
