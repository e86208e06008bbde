# SPDX-License-Identifier: Apache-2.0
# Two clients of one card: alone, beside each other, with stream priorities, under each policy, and
# for several windows; then what a submission costs there; then one PyTorch client alone, scheduled
# and not; then whether the driver is to a client what it is natively. Ends with 1 where a program
# fails; the figures are compared with their goals in docs/measured.md.
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
# With kernels far shorter than any window, so that it is the window that counts.
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
# The driver's behaviour as one client sees it; left out is what docs/limits.md says, and large memory.
part "the contract suite as one client" env VMM_CLIENT=all CUVMM_TEST_SCALE=0.1 \
  build/bin/cuvmm run --mode vmm --schedule fifo -- build/bin/cuvmm_contract_tests --gtest_brief=1 \
  "--gtest_filter=-*CombOf*:Headline.*:GraphLaunches.AGraphWhoseMemoryIsStillHeldCannotBeLaunchedAgain:Launches.AFunctionOfAnotherContextIsRefusedOnThisStream:StreamOrder.AWaitForAnEventNeverRecordedDoesNothing:StreamValues.AddressesMustBeAligned"
"$python" -B tools/schedule_figures.py <"$log" >"$CUVMM_PART_DETAILS" || status=1
exit "$status"
