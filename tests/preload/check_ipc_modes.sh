#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_ipc_modes.sh BUILD: IPC handles between processes that run natively, recorded and served, in
# every combination. Served memory can be opened only by a process whose memory is served; a
# recorded process says why it cannot. All other memory is the driver's, and can be opened
# everywhere.
set -uo pipefail
build=$1
program=$build/tests/programs/cuvmm_program_ipc
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_RUNTIME_DIR=$folder
in_mode() {   # MODE COMMAND...
  if [[ $1 == native ]]; then
    LD_LIBRARY_PATH=$build/lib/cuvmm/sim timeout 60 "${@:2}"
  else
    timeout 60 "$build/bin/cuvmm" run --sim --mode "$1" -- "${@:2}"
  fi
}
status=0
wrong() { echo "wrong: $*"; status=1; }

for giver in native monitor vmm; do
  coproc given { in_mode "$giver" "$program" give; }
  read -r handle <&"${given[0]}" || wrong "$giver gives no handle"
  for taker in native monitor vmm; do
    expected='opened 7'
    [[ $giver == vmm && $taker != vmm ]] && expected='refused 1'
    said=$(in_mode "$taker" "$program" take "$handle" 2>"$folder/errors")
    [[ $said == "$expected" ]] || wrong "from $giver to $taker: '$said' instead of '$expected'"
    warnings=$(grep -c 'VMM_MODE=VMM' "$folder/errors")
    expected=0
    [[ $giver == vmm && $taker == monitor ]] && expected=1
    [[ $warnings == "$expected" ]] || wrong "from $giver to $taker: $(cat "$folder/errors")"
  done
  echo >&"${given[1]}"
  # shellcheck disable=SC2154
  wait "$given_PID" || wrong "$giver failed"
done
exit "$status"
