# SPDX-License-Identifier: Apache-2.0
# For parts that run programs natively and under cuvmm (sourced): records each program's result in
# each mode. bench/results/figures.md shows them in one table (tools/same_results.py).
source tools/common.sh
told=''

# RESULT is `passed`, `failed`, `skipped`, or `different`, which means that the program passed but
# its output differs from the native one. A difference in any further NAME also counts as different.
tell() {  # PROGRAM MODE RESULT [NAME JSON]…
  local line
  line="{\"program\": $(json_text "$1"), \"mode\": $(json_text "$2"), \"result\": $(json_text "$3")"
  shift 3
  while (($# > 1)); do
    line+=", \"$1\": $2"
    shift 2
  done
  told+="${told:+, }$line}"
}

all_told() { printf '[%s]\n' "$told"; }

# Sets `before` to the command prefix for a mode.
run_in() {  # MODE
  before=(env)
  [[ $1 == native ]] || before=(build/bin/cuvmm run --mode "$1" --)
}

# Runs COMMAND in each mode: a function, or `in_mode PROGRAM…`. It must print the same as natively; a
# line `skipped: WHY` skips it. Sets `status` to 1 if it fails or differs. Needs `folder`, a place
# for outputs.
in_all_modes() {  # NAME COMMAND…
  local name=$1 mode result
  for mode in native monitor vmm; do
    echo "-- $name, $mode"
    result=passed
    run_in "$mode"
    if ! "${@:2}" >"$folder/$mode"; then
      result=failed status=1
    elif grep -q '^skipped: ' "$folder/$mode"; then
      result=skipped
    elif ! cmp -s "$folder/native" "$folder/$mode"; then
      result=different status=1
    fi
    if [[ $result == different ]]; then
      diff "$folder/native" "$folder/$mode" | head -n 20 || true
    else
      cut -c1-160 "$folder/$mode"
    fi
    [[ $result == passed ]] || echo "$result: $name, $mode"
    tell "$name" "$mode" "$result"
    [[ $mode != native || $result == passed ]] || return 0
  done
}

in_mode() { "${before[@]}" "$@"; }
