# SPDX-License-Identifier: Apache-2.0
# In the root that builds: all tests, or those that match TESTS. wheel.sh left them out of build/.
cd /cuvmm
cmake -B build -DCUVMM_TESTS=ON -DCUVMM_BENCH=ON
if [[ $TESTS == . ]]; then
  ./dev test
else
  ./dev build
  ctest --preset release -R "$TESTS"
fi
