# SPDX-License-Identifier: Apache-2.0
# Runs combs of blocks on the card, natively and under cuvmm, with the driver's calls and the
# runtime's. Natively, small blocks must fail, or the comb would show nothing; if memory is served,
# all must succeed. MONITOR must not change the driver's answers.
source tools/tell.sh
programs=(build/bin/frag_test)
[[ -x build/bin/frag_test_runtime ]] && programs+=(build/bin/frag_test_runtime)
status=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

comb() {  # PROGRAM BLOCK MODE
  local name answer ended=0 result=passed wanted="out of memory"
  [[ $3 != vmm ]] || wanted=success
  name="$(basename "$1") --block $2 --fill 8G"
  echo "-- $name, $3"
  run_in "$3"
  "${before[@]}" "$1" --block "$2" --fill 8G | tee "$out" || ended=$?
  answer=$(sed -n 's/^  answer  *\(.*[^ ]\)  *([0-9.]* s)$/\1/p' "$out")
  # Exit status 1 means either that memory was refused or that contents are wrong.
  if ((ended > 1)) || ! grep -Eq '^  blocks with right contents +([0-9]+) of \1( |$)' "$out"; then
    echo "it did not finish, or contents are wrong"
    result=failed status=1
  elif [[ $answer != "$wanted" ]]; then
    echo "the answer is '$answer', not '$wanted'"
    status=1
  fi
  tell "$name" "$3" "$result" answer "$(json_text "$answer")"
}

for program in "${programs[@]}"; do
  for block in 64K 256K 512K 1M; do
    for mode in native monitor vmm; do comb "$program" "$block" "$mode"; done
  done
done
all_told >"$CUVMM_PART_DETAILS"
exit "$status"
