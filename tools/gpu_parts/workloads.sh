# SPDX-License-Identifier: Apache-2.0
# PyTorch training on the card by several allocators: its own, its expandable segments, the driver's
# pool, and cuvmm behind the same calls, without and with a limit a little above the peak of live
# bytes (26,748 and 16,175 MiB, measured with PyTorch's own). In turns, so that what else goes on on
# the machine hits all alike; then one table of medians.
#
# CUVMM_ROUNDS   3 unless set
# CUVMM_MINUTES  8 unless set: nothing is begun that would not be over by then
# CUVMM_WORKLOADS, CUVMM_SETTINGS  which ones
status=0
rounds=${CUVMM_ROUNDS:-3}
budget=$((${CUVMM_MINUTES:-8} * 60))
workloads=${CUVMM_WORKLOADS:-train_ckpt_lora train_var}
settings=${CUVMM_SETTINGS:-native expandable async cuvmm cuvmm-1.02 cuvmm-1.005}
began=$SECONDS longest=0
lines=$(mktemp)

command_of() {  # SETTING PEAK_MIB
  local async=PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
  local served="env $async build/bin/cuvmm run --mode vmm"
  case $1 in
    native) echo env ;;
    expandable) echo env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True ;;
    async) echo env "$async" ;;
    cuvmm) echo "$served --" ;;
    cuvmm-1.02) echo "$served --limit $(($2 * 102 / 100))M --" ;;
    cuvmm-1.005) echo "$served --limit $(($2 * 1005 / 1000))M --" ;;
  esac
}

train() {  # SETTING WORKLOAD
  local peak=16175 started=$SECONDS
  [[ $2 == train_var ]] && peak=26748
  # shellcheck disable=SC2046
  $(command_of "$1" "$peak") python3 bench/workloads/frag_train.py "$1" "$2" 2>&1 |
    grep -E "^$2|out of memory|Error" | tail -n 3 | tee -a "$lines" ||
    { echo "$2 $1 failed"; status=1; }
  ((SECONDS - started > longest)) && longest=$((SECONDS - started))
  return 0
}

for ((round = 1; round <= rounds; ++round)); do
  echo "-- round $round"
  for workload in $workloads; do
    for setting in $settings; do
      if ((SECONDS - began + longest > budget)); then
        echo "-- no time left in round $round"
        break 3
      fi
      train "$setting" "$workload"
    done
  done
done

echo
python3 - "$lines" <<'TABLE'
import re
import statistics
import sys

runs, failed = {}, {}
for line in open(sys.argv[1]):
    words = line.split()
    if len(words) > 2 and " OOM after " in line:
        failed[words[0], words[1]] = failed.get((words[0], words[1]), 0) + 1
    found = re.search(r"peak_reserved +(\d+) MiB.* median ([\d.]+) ms total ([\d.]+) s", line)
    if found:
        runs.setdefault((words[0], words[1]), []).append([float(x) for x in found.groups()])

print("| Workload | Allocator | Runs | Reserved MiB | Median step ms | Total s | Of the best peer |")
print("|---|---|---|---|---|---|---|")
peers = ("native", "expandable", "async")
for workload, setting in dict.fromkeys([*runs, *failed]):
    if (workload, setting) not in runs:
        print(f"| {workload} | {setting} | {failed[workload, setting]} | out of memory | | | |")
        continue
    rows = runs[workload, setting]
    reserved, step, total = (statistics.median(column) for column in zip(*rows))
    best = min(
        (statistics.median(run[2] for run in runs[workload, peer])
         for peer in peers if (workload, peer) in runs),
        default=total,
    )
    lost = failed.get((workload, setting), 0)
    count = f"{len(rows)}, {lost} out of memory" if lost else str(len(rows))
    print(f"| {workload} | {setting} | {count} | {reserved:,.0f} | {step:.1f} | {total:.2f} |"
          f" {total / best:.3f} |")
TABLE
rm -f "$lines"
exit "$status"
