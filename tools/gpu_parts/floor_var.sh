# SPDX-License-Identifier: Apache-2.0
# How little memory is enough: the same training by each allocator with little more than its peak of
# live bytes, and by cuvmm behind PyTorch's own cache and behind none. One run each.
source tools/train.sh
measure_peak train_var
train_in_turns train_var 1 native@1.02 native@1.25 expandable@1.02 async@1.02 async@1.10 cuvmm-native cuvmm-native@1.02 cuvmm-no-cache cuvmm-no-cache@1.02 cuvmm-no-cache@1.005
train_table train_var
exit "$status"
