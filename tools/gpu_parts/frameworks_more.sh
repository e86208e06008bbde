# SPDX-License-Identifier: Apache-2.0
# Runs further PyTorch programs with each of its allocators: graphs, streams of several threads,
# libraries with workspaces, worker processes, compiled models, generation. Natively and under cuvmm
# in both modes; the results must be bitwise identical.
"${CUVMM_PYTHON:-python3}" -B tests/gpu/run_frameworks.py --budget "${CUVMM_FRAMEWORKS_BUDGET:-350}" \
  --only torch_no_cache torch_expandable torch_long_async torch_long torch_compile torch_more_async \
  torch_more \
  --cuvmm build/bin/cuvmm --json "$CUVMM_PART_DETAILS"
