# SPDX-License-Identifier: Apache-2.0
# Spilling and pausing on the card: training under less memory than it needs, and a program of 8 GiB
# that leaves the card and comes back.
status=0
async=PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync

train() {  # LABEL WORKLOAD OPTION…
  local label=$1 workload=$2
  shift 2
  env "$async" build/bin/cuvmm run --mode vmm "$@" -- \
    python3 bench/workloads/frag_train.py "$label" "$workload" 2>&1 |
    grep -E "^$workload|out of memory|Error" | tail -n 3 || { echo "$workload $label failed"; status=1; }
}
for workload in train_ckpt_lora train_var; do
  peak=16175
  [[ $workload == train_var ]] && peak=26748
  train unlimited "$workload"
  train spill-not-needed "$workload" --spill host:32G
  train 0.95 "$workload" --spill host:32G --limit $((peak * 95 / 100))M
  train 0.80 "$workload" --spill host:32G --limit $((peak * 80 / 100))M
  [[ $(nvidia-smi -L | wc -l) -gt 1 ]] &&
    train 0.80-neighbour "$workload" --spill peer:32G --limit $((peak * 80 / 100))M
done

# Shares of the card, in percent, that come to 8 GiB.
share=$((8 * 1024 * 100 / $(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1) + 1))
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
build/bin/cuvmm run --control -- build/bin/take_turns --memory "$share" --steps 400 --rest 20 &
runner=$!
for _ in {1..600}; do compgen -G "$XDG_RUNTIME_DIR/cuvmm/control-*" >/dev/null && break || sleep 0.05; done
sleep 4
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader | head -n 1; }
echo "-- used before: $(used)"
for round in 1 2 3; do
  build/bin/cuvmm pause --all || status=1
  echo "-- used while paused: $(used)"
  build/bin/cuvmm resume --all || status=1
done
wait "$runner" || status=1
rm -rf "$XDG_RUNTIME_DIR"
exit "$status"
