# SPDX-License-Identifier: Apache-2.0
# The combination matrix: programs of PyTorch, transformers, CuPy, JAX and Triton, natively and under
# cuvmm, with uses, memory managers and settings of cuvmm so combined that each feasible pair occurs.
# Results must be bitwise identical (tools/matrix/matrix.py). CUVMM_MATRIX_SECONDS bounds one call; the
# next one goes on with the rows that are left, of which CUVMM_MATRIX_STATE keeps a list. Exit status 4
# if rows are left. CUVMM_MATRIX_SEED chooses another sample, CUVMM_PYTHON the Python.
"${CUVMM_PYTHON:-python3}" -B tools/matrix/matrix.py --cuvmm build/bin/cuvmm \
  --state "${CUVMM_MATRIX_STATE:-build/matrix.rows.json}" --json "$CUVMM_PART_DETAILS" \
  --seconds "${CUVMM_MATRIX_SECONDS:-540}" --jobs "${CUVMM_MATRIX_JOBS:-3}" \
  ${CUVMM_MATRIX_SEED:+--seed "$CUVMM_MATRIX_SEED"}
