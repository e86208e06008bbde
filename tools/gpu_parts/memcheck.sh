# SPDX-License-Identifier: Apache-2.0
# Runs compute-sanitizer's memcheck on test programs, natively and under cuvmm in both modes. cuvmm
# must not cause errors that the native run does not have.
checker=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || checker=
[[ -n $checker ]] || { echo "skipped: compute-sanitizer is not here"; exit 0; }
source tools/tell.sh
shopt -s nullglob
status=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

look() {  # NAME MODE COMMAND…
  local result=passed errors
  if ! timeout 100 "${@:3}" >"$out" 2>&1; then
    result=failed status=1
    tail -n 15 "$out"
  fi
  errors=$(sed -n 's/^========= ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$out" | tail -n 1)
  echo "$1 $2: $result, errors: ${errors:-none said}"
  tell "$1" "$2" "$result" errors "${errors:-null}"
}

for program in build/bin/cuvmm_test_runtime_* build/bin/cuvmm_test_endurance; do
  name=${program##*/cuvmm_test_}
  options=()
  [[ $name != endurance ]] || options=(--operations 100 --largest $((8 << 20)))
  check=("$checker" --tool memcheck --report-api-errors no --error-exitcode 9 --target-processes all)
  look "$name" native "${check[@]}" "$program" "${options[@]}"
  for mode in monitor vmm; do
    look "$name" "$mode" "${check[@]}" build/bin/cuvmm run --mode "$mode" -- "$program" "${options[@]}"
  done
done
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
