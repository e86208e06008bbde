# SPDX-License-Identifier: Apache-2.0
# Two clients of one card: alone, beside each other, with stream priorities, under each policy; then
# what a submission costs there; then one client alone against none, by PyTorch where it is there.
# Ends with 1 where a program fails; the figures are to be read.
status=0
for round in 1 2 3; do
  echo "-- two clients, round $round"
  build/bin/cuvmm run -- build/bin/two_clients || status=1
done
for window in 25us 50us 100us 200us; do
  echo "-- two clients with VMM_SCHEDULE_WINDOW=$window"
  VMM_SCHEDULE_WINDOW=$window build/bin/cuvmm run -- build/bin/two_clients || status=1
done
if [[ -x build/bin/cuvmm_bench_calls ]]; then
  echo "-- calls natively, under cuvmm, and as one client"
  build/bin/cuvmm_bench_calls || status=1
  build/bin/cuvmm run -- build/bin/cuvmm_bench_calls || status=1
  VMM_CLIENT=alone build/bin/cuvmm run --schedule fifo -- build/bin/cuvmm_bench_calls || status=1
fi
if python3 -c 'import torch' 2>/dev/null; then
  train() {  # LABEL COMMAND…
    local label=$1
    shift
    "$@" python3 bench/workloads/frag_train.py "$label" train_var 2>&1 | grep -E "^train_var|Error" |
      tail -n 1 || { echo "$label failed"; status=1; }
  }
  for round in 1 2 3; do
    echo "-- PyTorch without scheduling and as one client, round $round"
    train unscheduled build/bin/cuvmm run --
    for policy in fifo fair priority; do
      train "$policy" env VMM_CLIENT=alone build/bin/cuvmm run --schedule $policy --
    done
  done
fi
exit "$status"
