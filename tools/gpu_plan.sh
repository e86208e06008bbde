# SPDX-License-Identifier: Apache-2.0
# ./dev gpu-plan PLAN… [--seconds N] [--out DIR]: runs parts of ./dev gpu-test side by side on the
# cards of one machine. Each line of a plan is a lane, whose parts run one after another:
#
#   NAME CARDS PROCESSORS PART[:SECONDS[:VARIABLE=VALUE,…]] …
#
# for example `first 0 0-15 contract order:240 spill:300:CUVMM_SPILL_ROUNDS=3`. A part that takes
# longer than its SECONDS is stopped, and so is everything once --seconds are over. A lane's results
# go to DIR/NAME. Lanes with the same name run one after another.
plans=() seconds=0 out=bench/results/gpu
while (($# > 0)); do
  case $1 in
    --out)
      (($# > 1)) || { say "--out needs a folder"; exit 2; }
      out=$(cd "$called_from" && realpath -m "$2")
      shift ;;
    --seconds)
      [[ ${2-} =~ ^[0-9]+$ ]] || { say "--seconds needs a number"; exit 2; }
      seconds=$2
      shift ;;
    *)
      plan=$(cd "$called_from" && realpath -m "$1")
      [[ -r $plan ]] || { say "there is no plan '$1'; the plans are in bench/plans"; exit 2; }
      plans+=("$plan") ;;
  esac
  shift
done
((${#plans[@]} > 0)) || { say "gpu-plan needs a plan; the plans are in bench/plans"; exit 2; }

lanes=$(sed -E 's/#.*//; s/^[[:space:]]+//; /^$/d' "${plans[@]}")
while read -r name cards processors parts; do
  [[ -n $parts ]] || die "this lane has no parts: $name $cards $processors"
  for part in $parts; do
    [[ -e tools/gpu_parts/${part%%:*}.sh ]] || die "there is no part '${part%%:*}'"
  done
done <<<"$lanes"

a_day=86400
left() { printf '%d' $((seconds == 0 ? a_day : seconds - SECONDS)); }

# A part that is stopped may leave processes behind, also in process groups of their own. All of them
# have the lane's TMPDIR.
end_all_of() {  # FOLDER
  local tries environment pids
  for ((tries = 0; tries < 50; tries++)); do
    pids=()
    for environment in /proc/[0-9]*/environ; do
      if grep -qzxF "TMPDIR=$1/tmp" "$environment" 2>/dev/null; then pids+=("$(basename "${environment%/*}")"); fi
    done
    ((${#pids[@]} > 0)) || return 0
    kill -KILL "${pids[@]}" 2>/dev/null || true
    sleep 0.2
  done
}

# Lanes share the machine: their services, sockets and scratch files must not meet.
run_lane() {  # NAME CARDS PROCESSORS PART…
  local name=$1 cards=$2 processors=$3 own one part limit variables settings status began
  own=$(mktemp -d)
  chmod 700 "$own"
  mkdir -p "$own/tmp" "$out/$name"
  for one in "${@:4}"; do
    IFS=: read -r part limit variables <<<"$one"
    IFS=, read -ra settings <<<"$variables"
    limit=${limit:-$a_day}
    (($(left) >= limit)) || limit=$(left)
    rm -f "$out/$name/$part".{json,txt,log}  # of an earlier call
    if ((limit <= 0)); then
      echo "== $name: $part: not begun, the time is over"
      failed=1
      continue
    fi
    status=0 began=$SECONDS
    env CUDA_VISIBLE_DEVICES="$cards" XDG_RUNTIME_DIR="$own" TMPDIR="$own/tmp" "${settings[@]}" \
      timeout --kill-after=5 "$limit" taskset --cpu-list "$processors" \
      ./dev gpu-test "$part" --out "$out/$name" >"$out/$name/$part.log" 2>&1 </dev/null &
    running=$!
    wait "$running" || status=$?
    running=
    case $status in
      0) how=passed ;;
      4) how="not finished, nothing was wrong," ;;
      124 | 137) how=stopped ;;
      *) how=failed ;;
    esac
    echo "== $name: $part: $how after $((SECONDS - began)) s"
    if ((status == 0)); then rm -f "$out/$name/$part.log"; else failed=1; fi
    end_all_of "$own"
  done
  rm -rf "$own"
}

run_lanes_named() {  # NAME
  local lane cards processors parts
  # Stops the part, of which `timeout` tells its process group.
  trap 'kill $running 2>/dev/null; exit 1' TERM
  while read -r lane cards processors parts; do
    # shellcheck disable=SC2086
    if [[ $lane == "$1" ]]; then run_lane "$lane" "$cards" "$processors" $parts; fi
  done <<<"$lanes"
  exit "$failed"
}

SECONDS=0 failed=0 running='' all=()
trap 'kill "${all[@]}" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
while read -r name; do
  run_lanes_named "$name" &
  all+=($!)
done < <(awk '!known[$1]++ { print $1 }' <<<"$lanes")
for lane in "${all[@]}"; do wait "$lane" || failed=1; done
trap - EXIT
echo "results in $out"
((failed == 0)) || die "not all parts passed"
