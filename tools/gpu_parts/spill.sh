# SPDX-License-Identifier: Apache-2.0
# Recompute and adapters under less memory than their peak, what is missing on the host: in turns
# with no limit at all, and with spilling allowed where it is not needed.
. tools/train.sh
known_peak train_ckpt_lora
train_in_turns train_ckpt_lora 4 cuvmm cuvmm-spill cuvmm-spill@0.95 cuvmm-spill@0.80
python3 -B tools/spill_figures.py train_ckpt_lora <"$train_lines" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
