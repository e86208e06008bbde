# SPDX-License-Identifier: Apache-2.0
# Finds how little memory is enough: runs the same training with each allocator and little more than
# its peak of live bytes, and with cuvmm behind PyTorch's own cache and without a cache. One run
# each.
source tools/train.sh
measure_peak train_var
train_in_rounds train_var 1 native@1.02 native@1.25 expandable@1.02 async@1.02 async@1.10 cuvmm-native cuvmm-native@1.02 cuvmm-no-cache cuvmm-no-cache@1.02 cuvmm-no-cache@1.005
train_table train_var
exit "$status"
