# SPDX-License-Identifier: Apache-2.0
# Runs recompute and adapters with spilling allowed and not needed; then with less memory than their
# peak, and the rest on the host. Alternates with runs without a limit.
. tools/train.sh
known_peak train_ckpt_lora
train_in_turns train_ckpt_lora 3 cuvmm cuvmm-spill
train_in_rounds train_ckpt_lora 3 cuvmm cuvmm-spill@0.95 cuvmm-spill@0.80
python3 -B tools/spill_figures.py train_ckpt_lora <"$train_lines" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
