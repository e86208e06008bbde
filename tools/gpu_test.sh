# SPDX-License-Identifier: Apache-2.0
# ./dev gpu-test [PART…] [--out DIR]: tests build/ on the real card. Downloads and builds nothing,
# so that a build can be copied to a machine that has a card but no network.
#
# A part is a script in tools/gpu_parts. Its output becomes NAME.txt. NAME.json names the card, the
# commit and the sources, says whether the part passed, and contains the details that the part wrote to
# $CUVMM_PART_DETAILS.
all_parts=()
for script in tools/gpu_parts/*.sh; do all_parts+=("$(basename "$script" .sh)"); done

parts=() out=bench/results/gpu
while (($# > 0)); do
  case $1 in
    --out)
      (($# > 1)) || { say "--out needs a folder"; exit 2; }
      out=$(cd "$called_from" && realpath -m "$2")
      shift ;;
    *)
      [[ -e tools/gpu_parts/$1.sh ]] || { say "there is no part '$1': ${all_parts[*]}"; exit 2; }
      parts+=("$1") ;;
  esac
  shift
done
((${#parts[@]} > 0)) || parts=("${all_parts[@]}")

cards() { of_visible_cards name 2>/dev/null | sort | uniq -c | sed -E 's/^ +([0-9]+) /\1 x /'; }
card=$(cards) || true
[[ -n $card ]] || die "no card here: nvidia-smi names none"
everywhere=$(CUDA_VISIBLE_DEVICES="" cards)
[[ $card == "$everywhere" ]] || card+=", one of $everywhere"
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sed -n 1p)
commit=$(commit_built)
mkdir -p "$out"

run_part() {  # NAME
  local result=passed status=0 started=$SECONDS details
  details=$(mktemp)
  echo "== $1"
  {
    echo "# $card, driver $driver, commit $commit"
    CUVMM_TEST_DRIVER=${CUVMM_TEST_DRIVER:-libcuda.so.1} CUVMM_PART_DETAILS=$details \
      bash -euo pipefail "tools/gpu_parts/$1.sh" 2>&1 |
      sed -uE 's#^/[^ ]*/(tests/)#\1#'  # the folder in which it was built
  } | tee "$out/$1.txt" || status=$?
  ((status == 0)) || result="failed with exit status $status"
  {
    printf '{\n  "part": %s,\n  "card": %s,\n  "driver": %s,\n  "commit": %s,\n' \
      "$(json_text "$1")" "$(json_text "$card")" "$(json_text "$driver")" "$(json_text "$commit")"
    printf '  "sources": %s,\n' "$(json_text "$(sources_built)")"
    printf '  "result": %s,\n  "seconds": %d,\n  "details": %s\n}\n' \
      "$(json_text "$result")" $((SECONDS - started)) "$(grep . "$details" || echo null)"
  } >"$out/$1.json"
  rm -f "$details"
  echo "== $1: $result"
  return "$status"
}

failed=() status=0
for part in "${parts[@]}"; do
  part_status=0
  run_part "$part" || part_status=$?
  ((part_status != 0)) || continue
  failed+=("$part")
  # 4: the part goes on in its next call, and so far nothing was wrong.
  if ((part_status == 4 && status != 1)); then status=4; else status=1; fi
done
echo "results in $out"
((status == 0)) || { say "failed or not finished: ${failed[*]}"; exit "$status"; }
