# SPDX-License-Identifier: Apache-2.0
# In the root that builds: ./dev installs all that it needs by itself, then demonstrates.
cd /cuvmm
# wheel.sh of an earlier call left the tests out, and the demo runs some of them.
[[ ! -e build/CMakeCache.txt ]] || cmake -B build -DCUVMM_TESTS=ON -DCUVMM_BENCH=ON
./dev demo
