# SPDX-License-Identifier: Apache-2.0
# Measures stream-ordered memory beside busy streams, natively and under cuvmm in both modes, in
# turns; each round begins with another mode. Ratios are between the medians of the rounds.
python3 -B tools/compare_calls.py --cuvmm build/bin/cuvmm --program build/bin/cuvmm_bench_streams \
  --rounds "${CUVMM_CALLS_ROUNDS:-5}" --json "$CUVMM_PART_DETAILS"
