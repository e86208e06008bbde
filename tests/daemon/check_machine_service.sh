#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_machine_service.sh BUILD: root's service is reachable for all users, whatever its umask was.
set -uo pipefail
build=$1
inside() {  # with a /run of its own
  local folder=$1 mode service
  mount -t tmpfs tmpfs /run || { echo "skipped: no mount of its own"; exit 0; }
  for mask in 022 077; do
    rm -rf /run/cuvmm
    (umask "$mask" && exec "$build/bin/cuvmmd" "--sim=card=machine-$$,memory=64M" 2>"$folder/log") &
    service=$!
    for _ in {1..400}; do [[ -S /run/cuvmm/cuvmmd.sock ]] && break || sleep 0.05; done
    mode=$(stat -c %a /run/cuvmm)
    [[ $mode == 755 ]] || { echo "wrong: umask $mask makes the folder $mode"; status=1; }
    grep -q "closed to other users" "$folder/log" && { echo "wrong: warns"; status=1; }
    kill "$service" && wait "$service"
  done
  # Whoever closed an existing folder may have had a reason.
  chmod 750 /run/cuvmm
  "$build/bin/cuvmmd" "--sim=card=machine-$$,memory=64M" 2>"$folder/log" &
  service=$!
  for _ in {1..400}; do grep -q "serves all users" "$folder/log" && break || sleep 0.05; done
  grep -q "/run/cuvmm is closed to other users" "$folder/log" || { echo "wrong: does not warn"; status=1; }
  [[ $(stat -c %a /run/cuvmm) == 750 ]] || { echo "wrong: opened a closed folder"; status=1; }
  kill "$service" && wait "$service"
  rm -f "/dev/shm/cuvmm-sim-card-"*"-machine-$$"
  exit "$status"
}
status=0
if [[ ${2-} == inside ]]; then inside "$3"; fi
[[ $(id -u) == 0 ]] || { echo "skipped: only root has such a service"; exit 0; }
unshare --mount true 2>/dev/null || { echo "skipped: no mounts of its own here"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unshare --mount "$0" "$build" inside "$folder"
