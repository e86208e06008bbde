# SPDX-License-Identifier: Apache-2.0
# A step of transformers and kernels of Triton. Single rounds differ by a fifth, so this runs more
# rounds.
"${CUVMM_PYTHON:-python3}" -B tests/gpu/run_frameworks.py --rounds 5 --budget 400 \
  --only torch --workloads triton_kernels transformers_step \
  --cuvmm build/bin/cuvmm --json "$CUVMM_PART_DETAILS"
