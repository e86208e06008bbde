# SPDX-License-Identifier: Apache-2.0
# Runs PyTorch training on the card with several allocators: its own, its expandable segments, the
# driver's pool, and cuvmm behind the same calls, without a limit and with one slightly above the
# peak of live bytes; expandable segments with such a limit as well. Runs in rounds; ratios compare
# runs of one round.
source tools/train.sh
measure_peak train_ckpt_lora
train_in_turns train_ckpt_lora 3 native expandable async cuvmm expandable@1.02 cuvmm@1.02 cuvmm@1.005
train_table train_ckpt_lora
exit "$status"
