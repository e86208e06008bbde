# SPDX-License-Identifier: Apache-2.0
# Runs both workloads with four fifths of their peak, and the rest on another card.
. tools/train.sh
if (($(of_visible_cards index | wc -l) < 2)); then
  echo "skipped: one card only"
  exit 0
fi
for workload in train_ckpt_lora train_var; do
  known_peak "$workload"
  train_in_rounds "$workload" 3 cuvmm cuvmm-peer@0.80
done
python3 -B tools/spill_figures.py train_ckpt_lora train_var <"$train_lines" >"$CUVMM_PART_DETAILS" ||
  status=1
exit "$status"
