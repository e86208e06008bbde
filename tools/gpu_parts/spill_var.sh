# SPDX-License-Identifier: Apache-2.0
# Like spill.sh, with batches of variable length.
. tools/train.sh
known_peak train_var
train_in_turns train_var 4 cuvmm cuvmm-spill
train_in_rounds train_var 4 cuvmm cuvmm-spill@0.95 cuvmm-spill@0.80
python3 -B tools/spill_figures.py train_var <"$train_lines" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
