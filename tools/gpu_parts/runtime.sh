# SPDX-License-Identifier: Apache-2.0
# Runs a program that uses the CUDA runtime, linked statically (with both kinds of default stream)
# and dynamically. Its output must be the same natively and under cuvmm in both modes, and the trace
# must contain all of its allocations.
source tools/tell.sh
shopt -s nullglob
programs=(build/bin/cuvmm_test_runtime_*)
((${#programs[@]} > 0)) || { echo "the runtime was not there when this was built"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
wrong() {  # RESULT WHAT…
  echo "  ${*:2}"
  [[ $result == failed ]] || result=$1
  status=1
}

for program in "${programs[@]}"; do
  name=${program##*/cuvmm_test_runtime_}
  if ! "$program" >"$folder/native"; then
    echo "$name: fails natively"
    cat "$folder/native"
    tell "$name" native failed
    status=1
    continue
  fi
  granted=$(sed -n 's/^granted //p' "$folder/native")
  for mode in monitor vmm; do
    result=passed
    echo "$name under $mode: $granted allocations"
    trace=$folder/$name.$mode.trace
    build/bin/cuvmm run --mode "$mode" --trace "$trace" -- "$program" >"$folder/under" ||
      wrong failed "exit status $?"
    diff "$folder/native" "$folder/under" || wrong different "it says something else than natively"
    counted=$(build/bin/cuvmm stats --json "$trace" | sed -n 's/^ *"allocations": \([0-9]*\),*$/\1/p') || counted=
    [[ $counted == "$granted" ]] || wrong different "the trace has ${counted:-none}"
    tell "$name" "$mode" "$result" allocations "${granted:-0}" in_trace "${counted:-0}"
  done
done
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
