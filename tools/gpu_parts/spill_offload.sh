# SPDX-License-Identifier: Apache-2.0
# Trains with 80% of the memory that it needs at its peak: with cuvmm, which moves what does not fit
# to the host, and natively with activations kept on the host. Alternates with runs without a limit.
. tools/train.sh
known_peak train_var
train_in_rounds train_var 4 cuvmm cuvmm-spill@0.80 expandable offload offload@0.80
python3 -B tools/spill_figures.py train_var <"$train_lines" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
