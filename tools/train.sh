# SPDX-License-Identifier: Apache-2.0
# For parts that train on the card (sourced): runs one workload with several allocators, and prints
# a table. The time of all rounds is bounded by CUVMM_MINUTES (8).
#
# A setting is the name of an allocator, optionally with a limit: `native`, `expandable`, `offload`
# (expandable segments, and activations on the host from forward to backward), `async`
# (cudaMallocAsync), `cuvmm` (behind cudaMallocAsync), `cuvmm-native` (behind PyTorch's own cache),
# `cuvmm-no-cache`, `cuvmm-spill` and `cuvmm-peer` (like `cuvmm`, but memory that does not fit goes
# to the host, or to another card). `async@1.02` may use 1.02 times the peak of live bytes. cuvmm
# enforces this with --limit; for the others, a ballast takes the rest of the card except for 256
# MiB.
source tools/common.sh
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

# The words of a whole command, quoted for the shell.
training_of() {  # SETTING WORKLOAD
  local words
  mapfile -t words < <(command_of "$1")
  words+=(python3 bench/workloads/frag_train.py "$1" "$2")
  printf '%s\n' "${words[*]@Q}"
}

# Runs a command that starts PROGRAMS trainings. Prints and keeps the lines that train_runs.py reads.
train() {  # WORKLOAD PROGRAMS COMMAND…
  local started=$SECONDS
  timeout $((300 * $2)) "${@:3}" 2>&1 | grep -E "^$1|out of memory|Error" | tail -n $((3 * $2)) |
    tee -a "$train_lines" || true
  ((SECONDS - started <= train_longest)) || train_longest=$((SECONDS - started))
}

begin_round() { echo "-- round $1" | tee -a "$train_lines"; }

time_is_left() { ((SECONDS - train_began + train_longest <= train_budget)); }

# Runs as many rounds as time allows, with one program at a time. Another setting goes first in each
# round, and runs of one round are comparable.
train_in_rounds() {  # WORKLOAD ROUNDS SETTING…
  local workload=$1 rounds=$2 round setting
  shift 2
  train_longest=0
  for ((round = 1; round <= rounds; ++round)); do
    begin_round "$round"
    for setting in "$@"; do
      time_is_left || { echo "-- no time left in round $round"; return; }
      train "$workload" 1 bash -c "$(training_of "$setting" "$workload")"
    done
    set -- "${@:2}" "$1"
  done
}

# Likewise, but the programs of a round take turns of one step, so that their times differ only by
# what the settings cost. Only for settings that move no memory: what moves during the others' turns
# would seem to take no time. If the card has no room for all of them, they run one at a time.
train_in_turns() {  # WORKLOAD ROUNDS SETTING…
  fit_together $(($# - 2)) || { train_in_rounds "$@"; return; }
  local workload=$1 rounds=$2 round setting commands
  shift 2
  train_longest=0
  for ((round = 1; round <= rounds; ++round)); do
    time_is_left || { echo "-- no time left for round $round"; return; }
    begin_round "$round"
    commands=()
    for setting in "$@"; do commands+=("$(training_of "$setting" "$workload")"); done
    train "$workload" $# python3 -B tools/train_turns.py "${commands[@]}"
    set -- "${@:2}" "$1"
  done
}

fit_together() {  # PROGRAMS
  local most_mib=$((31 << 10)) card_mib  # on average: `native` takes up to 43 GiB, the others 29
  card_mib=$(of_visible_cards memory.total | sed -n '1s/ MiB//p')
  (($1 * most_mib <= card_mib))
}

# Prints the table and writes its figures for the part's JSON. Fails if cuvmm behind cudaMallocAsync
# failed.
train_table() {  # WORKLOAD
  python3 -B tools/train_table.py "$train_lines" "$1" "$peak_mib" "$CUVMM_PART_DETAILS" || status=1
}
