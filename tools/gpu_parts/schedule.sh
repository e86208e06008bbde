# SPDX-License-Identifier: Apache-2.0
# Runs two clients of one card: alone, side by side, with stream priorities, under each policy, and
# for several windows. Then measures the cost of a submission there, then one PyTorch client alone,
# scheduled and unscheduled, then checks that the driver behaves for a client as it does natively.
# Exit status 1 if a program fails; bench/results/figures.md compares the figures with their goals.
status=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
part() {  # WHAT COMMAND…
  echo "-- $1" | tee -a "$log"
  "${@:2}" 2>&1 | tee -a "$log" || { echo "failed: $1" | tee -a "$log"; status=1; }
}
for round in 1 2 3; do
  part "two clients, round $round" build/bin/cuvmm run -- build/bin/two_clients
done
# The kernels are far shorter than any window, so that only the window matters.
for window in 10us 25us 50us 100us 200us; do
  part "two clients with VMM_SCHEDULE_WINDOW=$window" \
    env VMM_SCHEDULE_WINDOW=$window build/bin/cuvmm run -- build/bin/two_clients 80 10
done
if [[ -x build/bin/cuvmm_bench_calls ]]; then
  launches=(build/bin/cuvmm_bench_calls --benchmark_filter=Launch)
  part "calls natively" "${launches[@]}"
  part "calls under cuvmm" build/bin/cuvmm run -- "${launches[@]}"
  part "calls as one client" env VMM_CLIENT=alone build/bin/cuvmm run --schedule fifo -- "${launches[@]}"
fi
python=${CUVMM_PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
  part "PyTorch as one client" env VMM_CLIENT=alone \
    build/bin/cuvmm run --schedule fifo -- "$python" -B tests/gpu/schedule_torch.py
else
  echo "skipped: PyTorch as one client: no PyTorch"
fi
# The driver's behaviour for one client, except for the limits in docs/limits.md and large memory.
part "the contract suite as one client" env VMM_CLIENT=all CUVMM_TEST_SCALE=0.1 \
  build/bin/cuvmm run --mode vmm --schedule fifo -- build/bin/cuvmm_contract_tests --gtest_brief=1 \
  "--gtest_filter=-*CombOf*:Headline.*:GraphLaunches.AGraphWhoseMemoryIsStillHeldCannotBeLaunchedAgain:Launches.AFunctionOfAnotherContextIsRefusedOnThisStream:StreamOrder.AWaitForAnEventNeverRecordedDoesNothing:StreamValues.AddressesMustBeAligned"
"$python" -B tools/schedule_figures.py <"$log" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
