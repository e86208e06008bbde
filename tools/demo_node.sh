#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs three programs that each need 60% of a card. Natively, two of them run out of memory; with
# the node service, all three finish. Runs on a simulated card that they share; exit status 1 if
# the outcome differs. Usage: demo_node.sh [BUILD [--card INDEX]]. With --card, it runs on that real
# card, where the programs get 24 GiB, and skips the native part, since nothing limits that.
set -euo pipefail
build=${1:-build}
on_card=${2:-}
place=$(mktemp -d)
card=demo-$$
service=
tidy_up() {
  [[ -z $service ]] || kill "$service" 2>/dev/null || true
  rm -rf "$place" "/dev/shm/cuvmm-sim-card-$(id -u)-$card"
}
trap tidy_up EXIT
export VMM_NODE_SOCKET=$place/cuvmmd.sock
if [[ -n $on_card ]]; then
  sim=() capacity=(--capacity "${3:-0}=24G") mib=14745
else
  sim=(--sim="card=$card,memory=512M") capacity=() mib=307
fi

# Prints how many of three programs always read back what they wrote.
run_three() {  # OPTION…
  local name right=0 processes=()
  for name in A B C; do
    "$build/bin/cuvmm" run --quiet "${sim[@]}" --name "$name" "$@" -- \
      "$build/bin/take_turns" --mib "$mib" --steps 25 --rest 5 >"$place/$name.log" 2>&1 &
    processes+=($!)
  done
  for name in "${processes[@]}"; do wait "$name" || true; done
  for name in A B C; do
    if grep -q 'read back what they wrote' "$place/$name.log"; then
      right=$((right + 1))
      echo "    $name: finished, every number right" >&2
    else
      echo "    $name: $(grep -m 1 answers "$place/$name.log" || echo 'did not finish')" >&2
    fi
  done
  echo "$right"
}

natively=0
if [[ -z $on_card ]]; then
  echo "    without the service:" >&2
  natively=$(run_three --mode off)
fi
"$build/bin/cuvmmd" --socket "$VMM_NODE_SOCKET" "${sim[@]}" "${capacity[@]}" 2>"$place/service.log" &
service=$!
for _ in {1..600}; do [[ -S $VMM_NODE_SOCKET ]] && break || sleep 0.05; done
echo "    with it:" >&2
served=$(run_three --node require --node-wait 300s)
echo "    how memory moved (wall time):" >&2
sed -n 's/^.* \([ABC] gave .*\)$/      \1/p' "$place/service.log" >&2
if [[ -n $on_card ]]; then
  echo "    $served of 3 finish with cuvmmd" >&2
else
  echo "    $natively of 3 finish natively, $served of 3 with cuvmmd" >&2
fi
[[ $natively -lt 3 && $served == 3 ]]
