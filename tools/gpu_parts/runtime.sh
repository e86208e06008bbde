# SPDX-License-Identifier: Apache-2.0
# One program by the CUDA runtime, linked statically (with both kinds of default stream) and
# dynamically: it says the same natively and under cuvmm in both modes, and the trace has every one
# of its allocations.
shopt -s nullglob
programs=(build/bin/cuvmm_test_runtime_*)
((${#programs[@]} > 0)) || { echo "the runtime was not there when this was built"; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0 separator='' details=''
wrong() { echo "  $*"; verdict=failed status=1; }

for program in "${programs[@]}"; do
  name=${program##*/cuvmm_test_runtime_}
  "$program" >"$folder/native" || { echo "$name: fails natively"; cat "$folder/native"; status=1; continue; }
  granted=$(sed -n 's/^granted //p' "$folder/native")
  for mode in monitor vmm; do
    verdict=passed
    echo "$name under $mode: $granted allocations"
    trace=$folder/$name.$mode.trace
    build/bin/cuvmm run --mode "$mode" --trace "$trace" -- "$program" >"$folder/under" ||
      wrong "exit status $?"
    diff "$folder/native" "$folder/under" || wrong "it says something else than natively"
    counted=$(build/bin/cuvmm stats --json "$trace" | sed -n 's/^ *"allocations": \([0-9]*\),*$/\1/p') || counted=
    [[ $counted == "$granted" ]] || wrong "the trace has ${counted:-none}"
    details+="$separator"$(printf '{"program": "%s", "mode": "%s", "allocations": %d, "in_trace": %d, "result": "%s"}' \
      "$name" "$mode" "$granted" "${counted:-0}" "$verdict")
    separator=', '
  done
done
printf '[%s]\n' "$details" >"$CUVMM_PART_DETAILS"
exit "$status"
