# SPDX-License-Identifier: Apache-2.0
# In the root that builds: `pip wheel .` in a clean environment. Unless PLAIN is set, it takes the
# compiled parts from build/, which is completed here without tests and benchmarks.
cd /cuvmm
cmake -B build -DCUVMM_TESTS=OFF -DCUVMM_BENCH=OFF
cmake --build build -j "$CUVMM_JOBS"
python3 -m venv /tmp/wheel
if [[ -z ${PLAIN:-} ]]; then export CUVMM_BUILD_DIR=build; fi
/tmp/wheel/bin/pip wheel --no-deps -w /exchange .
ls /exchange/cuvmm-*.whl
