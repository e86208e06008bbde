# SPDX-License-Identifier: Apache-2.0
# What else programs of PyTorch do: graphs, streams of several threads, the libraries with their
# workspaces, worker processes, compiled models, generation; by each of its allocators. Natively and
# under cuvmm in both modes, the results bitwise the same.
"${CUVMM_PYTHON:-python3}" -B tests/gpu/run_frameworks.py --rounds 1 --budget 450 \
  --only torch_more torch_more_async torch_compile torch_expandable torch_no_cache \
  --cuvmm build/bin/cuvmm --json "$CUVMM_PART_DETAILS"
