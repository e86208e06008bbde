#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_sharing.sh BUILD: producer and consumer find each other, print exactly these lines, and end
# with one line that names the remedy if they cannot.
set -uo pipefail
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_RUNTIME_DIR=$folder   # the default place, private to this test
run() { timeout 60 "$build/bin/cuvmm" run --sim --mode "$mode" -- "$build/bin/$1" "${@:2}"; }
status=0
wrong() { echo "wrong: $*"; status=1; }

said_in_order() {   # FILE PATTERN...: exactly these lines
  local file=$1 lines line; shift
  mapfile -t lines <"$file"
  ((${#lines[@]} == $#)) || wrong "$(basename "$file") has ${#lines[@]} lines, not $#"
  for line in "${lines[@]}"; do
    [[ $line =~ ^${1:-nothing more}$ ]] || wrong "said '$line' instead of '${1:-nothing more}'"
    (($#)) && shift
  done
}
await_line() {   # FILE TEXT
  for _ in {1..600}; do
    grep -q "$2" "$1" 2>/dev/null && return 0
    sleep 0.05
  done
  wrong "'$2' was not said"
}
start_producer() {
  : >"$folder/producer"
  run producer "$@" >"$folder/producer" 2>"$folder/producer.errors" &
  producer=$!
  await_line "$folder/producer" 'Waiting for consumer'
}
kill_all_of() {   # PID: its children first; adds them all to `killed`
  local child
  for child in $(pgrep -P "$1"); do kill_all_of "$child"; done
  kill -KILL "$1" 2>/dev/null
  killed+=("$1")
}
await_end() {   # PID...: zombies have ended, and may stay if nobody reaps orphans
  for _ in {1..600}; do
    ps -L -o stat= -p "$*" | grep '^[^Z]' >/dev/null || return 0
    sleep 0.05
  done
  wrong "of processes $*, some still run"
}
ends_with() {   # EXPECTED STATUS ERRORS PATTERN
  [[ $2 == "$1" ]] || wrong "ended with $2 instead of $1"
  local lines; mapfile -t lines <"$3"
  [[ ${#lines[@]} == 1 && ${lines[0]} =~ $4 ]] || wrong "said '$(cat "$3")' instead of '$4'"
}

hex='0x[0-9a-f]+'
both_say_what_they_do() {
  start_producer
  run consumer >"$folder/consumer" 2>&1 || wrong 'the consumer failed'
  wait "$producer" || wrong 'the producer failed'
  said_in_order "$folder/producer" \
    '=== CUDA VMM Producer ===' 'Using CUDA device 0: .+' 'VMM support: yes' \
    'Memory granularity: [0-9]+ bytes' 'Buffer size: 1048576 bytes, aligned size: [0-9]+ bytes' \
    'Created physical memory allocation' "Reserved virtual address space at $hex" \
    'Mapped physical memory to virtual address' 'Set read/write access permissions' \
    'Generated 262144 test integers' 'Copied test data to GPU' 'Exported allocation as FD: [0-9]+' \
    'Waiting for consumer connection\.\.\.' 'Consumer connected' \
    'Sent FD and size metadata to consumer' 'Consumer verified data successfully!' \
    'Cleanup complete'
  said_in_order "$folder/consumer" \
    '=== CUDA VMM Consumer ===' 'Using CUDA device 0: .+' 'Connecting to producer\.\.\.' \
    'Connected to producer' 'Received FD: [0-9]+, size: [0-9]+ bytes' \
    'Imported allocation handle from FD' "Reserved virtual address space at $hex" \
    'Mapped imported memory to virtual address' 'Set read/write access permissions' \
    'Copied 1048576 bytes from GPU to host' \
    'Data verification PASSED \(262144 integers verified\)' 'Sent acknowledgment to producer' \
    'Cleanup complete'
}

for mode in vmm off; do both_say_what_they_do; done
mode=vmm

run consumer >/dev/null 2>"$folder/errors"
ends_with 1 $? "$folder/errors" '^consumer: no producer is running; start'

start_producer
run producer >/dev/null 2>"$folder/errors"
ends_with 1 $? "$folder/errors" '^producer: another producer is running; end it'
# A killed producer leaves its socket behind, which hinders nobody.
killed=()
kill_all_of "$producer"
wait "$producer" 2>/dev/null
await_end "${killed[@]}"
both_say_what_they_do

# Of two consumers one gets the buffer, and the other learns why it does not.
start_producer
for one in first second; do
  run consumer >"$folder/$one" 2>"$folder/$one.errors" &
  eval "$one=$!"
done
wait "$first"; first=$?
wait "$second"; second=$?
wait "$producer" || wrong 'the producer of two consumers failed'
if ((first == 0)); then loser=second lost=$second; else loser=first lost=$first; fi
((first == 0 || second == 0)) || wrong 'neither consumer got the buffer'
ends_with 1 "$lost" "$folder/$loser.errors" \
  '^consumer: (the producer serves one consumer and has served another|no producer is running); start'

start_producer --corrupt
run consumer >/dev/null 2>"$folder/errors"
ends_with 1 $? "$folder/errors" '^consumer: the data is corrupted from integer 131072 on; run both'
wait "$producer"
ends_with 1 $? "$folder/producer.errors" '^producer: the consumer received wrong data'

run producer --timeout 1 >/dev/null 2>"$folder/errors"
ends_with 1 $? "$folder/errors" '^producer: no consumer connected within 1 s; start'

# Without a driver, or with one whose device lacks the feature.
natively() { LD_LIBRARY_PATH=$1 CUVMM_DRIVER_LACKS=$2 "$build/bin/$3" >/dev/null 2>"$folder/errors"; }
sim=$build/lib/cuvmm/sim
for program in producer consumer; do
  VMM_SIM_FAULT=cuInit:1=CUDA_ERROR_NO_DEVICE natively "$sim" '' $program
  ends_with 1 $? "$folder/errors" "^$program: cuInit returned CUDA_ERROR_NO_DEVICE \\(no CUDA-capable device is detected\\)"
  natively "$build/tests/programs/lacking" vmm $program
  ends_with 1 $? "$folder/errors" "^$program: this device has no virtual memory management; use one"
  natively "$build/tests/programs/lacking" fd $program
  ends_with 1 $? "$folder/errors" "^$program: this device cannot share memory by file descriptor; run both"
  if ! ldconfig -p | grep -q libcuda.so.1; then
    natively "$folder" '' $program
    ends_with 1 $? "$folder/errors" "^$program: no CUDA driver here; "
  fi
done
# If the driver is too old for the library, no message claims what its device could do.
VMM_SIM_DRIVER=10.2 LD_LIBRARY_PATH=$sim "$build/bin/producer" --timeout 1 >"$folder/producer" 2>"$folder/errors" &&
  wrong 'a driver of CUDA 10.2 sufficed'
! grep -q 'VMM support: yes' "$folder/producer" || wrong 'a driver of CUDA 10.2 is said to do'
exit "$status"
