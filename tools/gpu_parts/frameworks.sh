# SPDX-License-Identifier: Apache-2.0
# Runs PyTorch, Triton, transformers, CuPy and JAX natively and under cuvmm in both modes, in turns of
# a few steps. The results must be bitwise identical; frameworks that are not installed are skipped.
# CUVMM_PYTHON names the Python that has them.
"${CUVMM_PYTHON:-python3}" -B tests/gpu/run_frameworks.py \
  --cuvmm build/bin/cuvmm --json "$CUVMM_PART_DETAILS" --budget "${CUVMM_FRAMEWORKS_BUDGET:-300}"
