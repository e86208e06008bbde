# SPDX-License-Identifier: Apache-2.0
# For the parts that try programs natively and under cuvmm (sourced): what each came to in each mode.
# The page docs/measured.md has it in one table (tools/same_results.py).
source tools/common.sh
told=''

# RESULT is `passed`, `failed`, `skipped`, or `different`: it passed and said something else than
# natively. What of the rest is not as natively makes it different too.
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

# The words to put before a command, into `before`.
run_in() {  # MODE
  before=(env)
  [[ $1 == native ]] || before=(build/bin/cuvmm run --mode "$1" --)
}
