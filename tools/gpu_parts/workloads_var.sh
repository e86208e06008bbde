# SPDX-License-Identifier: Apache-2.0
# Runs PyTorch training on the card with several allocators: its own, its expandable segments, the
# driver's pool, and cuvmm behind the same calls; then expandable segments and cuvmm limited to
# slightly more than the peak of live bytes. Ratios compare runs of one round.
source tools/train.sh
measure_peak train_var
train_in_turns train_var 4 native expandable async cuvmm
train_in_turns train_var 3 cuvmm cuvmm@1.02 cuvmm@1.005
# The ballast of expandable@1.02 takes the rest of the card.
train_in_rounds train_var 3 expandable@1.02 cuvmm@1.02
train_table train_var
exit "$status"
