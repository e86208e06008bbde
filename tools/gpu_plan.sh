# SPDX-License-Identifier: Apache-2.0
# ./dev gpu-plan PLAN… [--seconds N] [--out DIR]: runs parts of ./dev gpu-test side by side on the
# cards of one machine. Each line of a plan is a lane, whose parts run one after another:
#
#   NAME CARDS PROCESSORS PART[:SECONDS[:VARIABLE=VALUE,…]] …
#
# for example `first 0 0-15 contract order:240 spill:300:CUVMM_SPILL_ROUNDS=3`. A part that takes
# longer than its SECONDS is stopped, and so is everything once --seconds are over. The results of a
# lane come to DIR/NAME. A name that several lanes have is one lane after another.
plans=() seconds=0 out=bench/results/gpu
while (($# > 0)); do
  case $1 in
    --out | --seconds)
      (($# > 1)) || { say "$1 needs a value"; exit 2; }
      if [[ $1 == --out ]]; then out=$(cd "$called_from" && realpath -m "$2"); else seconds=$2; fi
      shift ;;
    *)
      plan=$(cd "$called_from" && realpath -m "$1")
      [[ -r $plan ]] || { say "there is no plan '$1'; the plans are in bench/plans"; exit 2; }
      plans+=("$plan") ;;
  esac
  shift
done
((${#plans[@]} > 0)) || { say "gpu-plan needs a plan; the plans are in bench/plans"; exit 2; }

lanes=$(sed -E 's/#.*//; /^[[:space:]]*$/d' "${plans[@]}")
while read -r name cards processors parts; do
  [[ -n $parts ]] || die "this lane has no parts: $name $cards $processors"
  for part in $parts; do
    [[ -e tools/gpu_parts/${part%%:*}.sh ]] || die "there is no part '${part%%:*}'"
  done
done <<<"$lanes"

left() { if ((seconds == 0)); then printf 86400; else printf '%d' $((seconds - SECONDS)); fi; }

# Lanes share the machine: their services, sockets and scratch files must not meet.
run_lane() {  # NAME CARDS PROCESSORS PART…
  local name=$1 cards=$2 processors=$3 one part limit variables own status
  own=$(mktemp -d)
  chmod 700 "$own"
  mkdir -p "$own/tmp" "$out/$name"
  for one in "${@:4}"; do
    IFS=: read -r part limit variables <<<"$one"
    limit=${limit:-86400}
    (($(left) >= limit)) || limit=$(left)
    if ((limit <= 0)); then
      echo "== $name: $part: not begun, the time is over"
      failed=1
      continue
    fi
    status=0
    local began=$SECONDS settings=()
    IFS=, read -ra settings <<<"$variables"
    env CUDA_VISIBLE_DEVICES="$cards" XDG_RUNTIME_DIR="$own" TMPDIR="$own/tmp" "${settings[@]}" \
      timeout --kill-after=5 "$limit" taskset --cpu-list "$processors" \
      ./dev gpu-test "$part" --out "$out/$name" >"$out/$name/$part.log" 2>&1 </dev/null || status=$?
    case $status in
      0) echo "== $name: $part: passed in $((SECONDS - began)) s" ;;
      124 | 137) echo "== $name: $part: stopped after $((SECONDS - began)) s" ;;
      *) echo "== $name: $part: failed after $((SECONDS - began)) s" ;;
    esac
    if ((status == 0)); then rm -f "$out/$name/$part.log"; else failed=1; fi
  done
  rm -rf "$own"
  return "$failed"
}

SECONDS=0 failed=0 running=()
for name in $(cut -d' ' -f1 <<<"$lanes" | awk '!known[$0]++'); do
  (
    while read -r lane cards processors parts; do
      # shellcheck disable=SC2086
      [[ $lane != "$name" ]] || run_lane "$lane" "$cards" "$processors" $parts || failed=1
    done <<<"$lanes"
    exit "$failed"
  ) &
  running+=($!)
done
for lane in "${running[@]}"; do wait "$lane" || failed=1; done
echo "results in $out"
((failed == 0)) || die "not all parts passed"
