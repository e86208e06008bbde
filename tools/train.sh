# SPDX-License-Identifier: Apache-2.0
# For parts that train on the card (sourced): runs one workload with several allocators, and prints
# a table.
#
# A setting is the name of an allocator, optionally with a limit: `native`, `expandable`, `offload`
# (expandable segments, and activations on the host from forward to backward), `async`
# (cudaMallocAsync), `cuvmm` (behind cudaMallocAsync), `cuvmm-native` (behind PyTorch's own cache),
# `cuvmm-no-cache`, `cuvmm-spill` and `cuvmm-peer` (like `cuvmm`, but memory that does not fit goes
# to the host, or to another card). `async@1.02` may use 1.02 times the peak of live bytes. cuvmm
# enforces this with --limit; for the others, a ballast takes the rest of the card except for 256
# MiB.
status=0
train_lines=$(mktemp)
trap 'rm -f "$train_lines"' EXIT
train_began=$SECONDS train_longest=0
train_budget=$((${CUVMM_MINUTES:-8} * 60))

# Sets peak_bytes and peak_mib to the peak of live bytes in earlier runs, as PyTorch's own allocator
# counts it.
known_peak() {  # WORKLOAD
  peak_mib=16175
  [[ $1 == train_var ]] && peak_mib=26748
  peak_bytes=$((peak_mib << 20))
}

# Sets peak_bytes and peak_mib to the peak of live bytes without a limit, measured with a trace. It
# includes PyTorch's own count and the 128 MiB that its libraries request from the driver.
measure_peak() {  # WORKLOAD
  local trace
  trace=$(mktemp -d)
  env PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync build/bin/cuvmm run --quiet --mode vmm \
    --trace "$trace/trace" -- python3 bench/workloads/frag_train.py traced "$1" 2>&1 | grep "^$1"
  peak_bytes=$(build/bin/cuvmm stats --json "$trace/trace" | sed -n 's/^ *"live_peak_bytes": \([0-9]*\),$/\1/p')
  rm -r "$trace"
  peak_mib=$((peak_bytes >> 20))
  echo "$1: a peak of $peak_bytes live bytes"
}

command_of() {  # SETTING
  local allocator=${1%@*} share='' words=(env)
  [[ $1 == *@* ]] && share=${1#*@}
  case $allocator in
    async | cuvmm | cuvmm-spill | cuvmm-peer) words+=(PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync) ;;
    expandable) words+=(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) ;;
    offload) words+=(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True OFFLOAD=1) ;;
    cuvmm-no-cache) words+=(PYTORCH_NO_CUDA_MEMORY_CACHING=1) ;;
  esac
  if [[ $allocator == cuvmm* ]]; then
    words+=(build/bin/cuvmm run --quiet --mode vmm)
    [[ $allocator != cuvmm-spill ]] || words+=(--spill host:32G)
    [[ $allocator != cuvmm-peer ]] || words+=(--spill peer:32G)
    [[ -z $share ]] || words+=(--limit "$(awk "BEGIN {printf \"%d\", $peak_bytes * $share}")")
    words+=(--)
  elif [[ -n $share ]]; then
    words+=("CAP_MIB=$(awk "BEGIN {printf \"%d\", $peak_mib * $share}")")
  fi
  printf '%s\n' "${words[@]}"
}

train() {  # SETTING WORKLOAD
  local started=$SECONDS words
  mapfile -t words < <(command_of "$1")
  timeout 300 "${words[@]}" python3 bench/workloads/frag_train.py "$1" "$2" 2>&1 |
    grep -E "^$2|out of memory|Error" | tail -n 3 | tee -a "$train_lines" || true
  ((SECONDS - started > train_longest)) && train_longest=$((SECONDS - started))
  return 0
}

# Runs as many rounds as time allows. The settings alternate, so that other load on the machine
# affects all alike and runs of one round are comparable. CUVMM_SETTINGS overrides the part's
# settings, CUVMM_ROUNDS the number of rounds.
train_in_turns() {  # WORKLOAD ROUNDS SETTING…
  local workload=$1 rounds=${CUVMM_ROUNDS:-$2} round setting
  shift 2
  [[ -z ${CUVMM_SETTINGS:-} ]] || set -- $CUVMM_SETTINGS
  for ((round = 1; round <= rounds; ++round)); do
    echo "-- round $round" | tee -a "$train_lines"
    for setting in "$@"; do
      if ((SECONDS - train_began + train_longest > train_budget)); then
        echo "-- no time left in round $round"
        return
      fi
      train "$setting" "$workload"
    done
  done
}

# Prints the table and writes its figures for the part's JSON. Fails if cuvmm behind cudaMallocAsync
# failed.
train_table() {  # WORKLOAD
  python3 -B tools/train_table.py "$train_lines" "$1" "$peak_mib" "$CUVMM_PART_DETAILS" || status=1
}
