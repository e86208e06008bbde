# SPDX-License-Identifier: Apache-2.0
# PyTorch training on the card by several allocators: its own, its expandable segments, the driver's
# pool, and cuvmm behind the same calls, without and with a limit a little above the peak of live
# bytes (26,748 and 16,175 MiB, measured with PyTorch's own).
status=0
rounds=${CUVMM_ROUNDS:-1}
async=PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync

train() {  # LABEL WORKLOAD COMMAND…
  local label=$1 workload=$2
  shift 2
  "$@" python3 bench/workloads/frag_train.py "$label" "$workload" 2>&1 | grep -E "^$workload|out of memory|Error" | tail -n 3 ||
    { echo "$workload $label failed"; status=1; }
}
served() { echo env "$async" build/bin/cuvmm run --mode vmm "$@" --; }

for ((round = 1; round <= rounds; ++round)); do
  echo "-- round $round"
  for workload in train_ckpt_lora train_var; do
    peak=16175
    [[ $workload == train_var ]] && peak=26748
    train native $workload env
    train expandable $workload env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    train async $workload env $async
    train cuvmm $workload $(served)
    train cuvmm-1.02 $workload $(served --limit $((peak * 102 / 100))M)
    train cuvmm-1.005 $workload $(served --limit $((peak * 1005 / 1000))M)
  done
done
exit "$status"
