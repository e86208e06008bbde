#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_podman.sh BUILD: podman and runc start containers with a share of a simulated card, from a
# root made on the spot. Runs in its own mount and PID namespaces, so that nothing on this machine
# changes and nothing keeps running.
set -euo pipefail
build=$(readlink -f "$1")
skip() { echo "skipped: podman: $*"; exit 0; }
if [[ ${2:-} != inside ]]; then
  for command in podman runc conmon; do
    command -v "$command" >/dev/null || skip "no $command here (CUVMM_CLUSTERS=1 ./dev test installs it)"
  done
  [[ $(id -u) == 0 ]] || skip "it needs root for namespaces"
  spaces=(--mount --pid --fork --kill-child --mount-proc --propagation private)
  unshare "${spaces[@]}" true 2>/dev/null || skip "this machine allows no namespaces"
  exec timeout 400 unshare "${spaces[@]}" "$0" "$build" inside
fi

trial=$(mktemp -d)
card=podman
clean() {
  exec 8>&- 9>&-
  local place
  while read -r place; do umount -l "$place" || true; done < <(awk -v under="$trial/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r)
  rm -rf "$trial"
}
trap clean EXIT
fail() { echo "podman: $*" >&2; sed 's/^/  /' "$trial"/log/* >&2; exit 1; }
eventually() {  # WHAT COMMAND…
  for _ in {1..1200}; do "${@:2}" >/dev/null 2>&1 && return; sleep 0.05; done
  fail "not in 60 s: $1"
}
mount -t tmpfs none /run
mount -t tmpfs none /dev/shm
mkdir -p -m 700 /tmp/cuvmm-0 && mount -t tmpfs -o mode=700 none /tmp/cuvmm-0  # else programs outside appear in top
mkdir -p /run/cdi /run/cuvmm "$trial/log"
unset XDG_RUNTIME_DIR
cuvmm=$build/bin/cuvmm
sim=card=$card,memory=8G

start_service() {
  "$build/bin/cuvmmd" "--sim=$sim" >>"$trial/log/cuvmmd" 2>&1 &
  service=$!
  eventually "cuvmmd listens" test -S /run/cuvmm/cuvmmd.sock
}
start_service
"$cuvmm" cdi generate "--sim=$sim" --shares 4G,50%,8G -o /run/cdi/cuvmm.json || fail "no specification"

root=$trial/root
mkdir -p "$root"/{etc,proc,sys,dev,tmp,run,opt}
for program in /bin/sh /bin/cat /bin/grep "$build/bin/frag_test" "$build/tests/bin/cuvmm_holds"; do
  install -D "$program" "$root/bin/${program##*/}"
  while read -r library; do install -D "$library" "$root$library"; done < <(ldd "$program" | grep -oE '/[^ ]+')
done
# Explicit limits, since podman's defaults may be above this machine's.
contained() {  # ARGUMENT… COMMAND…
  podman --root "$trial/store" --runroot "$trial/runroot" --storage-driver vfs --runtime runc \
    --cgroup-manager cgroupfs --events-backend file run --rm --network none --log-driver none \
    --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"
}
share=(--device cuvmm.dev/share=gpu0-4g)
from=(--rootfs "$root")
said=$(contained "${from[@]}" /bin/sh -c 'echo ok' 2>&1) || skip "it starts no container here: ${said//$'\n'/ }"

echo "== a program in a container with a share"
contained "${share[@]}" "${from[@]}" /bin/frag_test --fill 512M >"$trial/log/frag_test" 2>&1 || fail "frag_test fails"
grep -q 'memory  *4.00 GiB free of 4.00 GiB' "$trial/log/frag_test" || fail "it does not see 4 GiB"
grep -q '^SUCCEEDED' "$trial/log/frag_test" || fail "it is not served"
contained --device cuvmm.dev/share=gpu0-50pct "${from[@]}" /bin/cuvmm_holds 100 </dev/null >"$trial/log/part" 2>&1 || fail "half of a card"
grep -q 'sees 4096 MiB' "$trial/log/part" || fail "half of the card is not 4 GiB"
status=0
contained "${share[@]}" "${from[@]}" /bin/cuvmm_holds 5000 </dev/null >"$trial/log/beyond" 2>&1 || status=$?
[[ $status == 2 ]] || fail "5000 MiB of 4 GiB: status $status, where out of memory is 2"
contained --device cuvmm.dev/share=gpu0-3g "${from[@]}" /bin/sh -c : 2>/dev/null && fail "a share that is not described is given"

echo "== a program that uses no CUDA"
contained "${share[@]}" "${from[@]}" /bin/cat /proc/self/maps >"$trial/maps" || fail "cat fails"
grep -q libcuvmm_stub "$trial/maps" || fail "the stub is not preloaded"
! grep -q libcuvmm_preload "$trial/maps" || fail "the engine is loaded into cat"
contained "${from[@]}" /bin/cat /proc/self/maps >"$trial/maps"
! grep -q libcuvmm "$trial/maps" || fail "a container without a share has something of ours"

echo "== what the host sees of it"
mkfifo "$trial/first" "$trial/second"
exec 8<>"$trial/first" 9<>"$trial/second"
contained -i "${share[@]}" -e VMM_NAME=first --name first "${from[@]}" /bin/cuvmm_holds 3000 \
  <"$trial/first" 8>&- 9>&- >"$trial/log/first" 2>&1 &
first=$!
contained -i --device cuvmm.dev/share=gpu0-8g -e VMM_NAME=second "${from[@]}" /bin/cuvmm_holds 4000 \
  <"$trial/second" 8>&- 9>&- >"$trial/log/second" 2>&1 &
eventually "both hold their memory" grep -q holds "$trial/log/first"
eventually "both hold their memory" grep -q holds "$trial/log/second"
grep -q '^process 1 sees 4096 MiB' "$trial/log/first" || fail "it has no PID namespace of its own"
cat >"$trial/client.py" <<'PYTHON'
"""client.py CUVMM NAME MIB: the client of that name leases at least so much, and its number is that
of a process here which runs our program. -1: there is no such client."""
import json, subprocess, sys
node = json.loads(subprocess.run([sys.argv[1], "top", "-1", "--json"], capture_output=True).stdout)["node"]
clients = [c for c in node["clients"] if c["name"] == sys.argv[2]]
if sys.argv[3] == "-1":
    sys.exit(1 if clients else 0)
assert len(clients) == 1, node
with open(f"/proc/{clients[0]['process']}/cmdline", "rb") as file:
    assert b"cuvmm_holds" in file.read()
leased = sum(lease["leased_bytes"] for lease in clients[0]["leases"])
assert leased >= int(sys.argv[3]) << 20, clients
PYTHON
seen() { python3 "$trial/client.py" "$cuvmm" "$@"; }
"$cuvmm" top -1 --json >"$trial/log/top" 2>&1 || true
eventually "the first is in cuvmm top" seen first 3000
eventually "the second is in cuvmm top" seen second 4000

cat >"$trial/containers.py" <<'PYTHON'
"""containers.py CUVMM: `top --all` lists both programs by the service's numbers, each with its container."""
import json, subprocess, sys
def top(*words):
    return json.loads(subprocess.run([sys.argv[1], "top", "--json", *words], capture_output=True).stdout)
here = top("--all")
holders = {one["process"]: one for one in here["processes"] if "cuvmm_holds" in one["command"]}
assert set(holders) == {client["process"] for client in here["node"]["clients"]}, here
containers = [one["container"]["id"] for one in holders.values()]
assert len(set(containers)) == 2, containers
assert all(one["answers"] and one["live_bytes"] >= 3000 << 20 for one in holders.values()), holders
for process, container in zip(holders, containers):
    assert [one["process"] for one in top("--container", container[:12])["processes"]] == [process], container
PYTHON
shown() { python3 "$trial/containers.py" "$cuvmm" 2>"$trial/log/containers"; }
eventually "top --all shows the containers" shown

echo "== the service starts anew"
kill -9 "$service"
wait "$service" 2>/dev/null || true
start_service
eventually "the first is back" seen first 3000
eventually "the second is back" seen second 4000

echo "== containers end"
echo >&9 && exec 9>&-
eventually "the first holds on" seen first 3000
podman --root "$trial/store" --runroot "$trial/runroot" --storage-driver vfs --runtime runc kill first >/dev/null ||
  fail "podman kill"
wait "$first" && fail "a killed container succeeds"
eventually "what the first had is free" seen first -1

# Without a share: what a container needs besides the libraries is the socket, and the simulated card.
echo "== nothing of the service but its socket"
mkfifo "$trial/third"
exec 8<>"$trial/third"
contained -i -v /run/cuvmm/cuvmmd.sock:/node.sock -v /dev/shm:/dev/shm \
  -v "$build/lib/libcuvmm_preload.so:/opt/libcuvmm_preload.so:ro" -v "$build/lib/cuvmm/sim:/opt/sim:ro" \
  -e LD_PRELOAD=/opt/libcuvmm_preload.so -e LD_LIBRARY_PATH=/opt/sim -e "VMM_SIM_CARD=$card" -e VMM_SIM_MEMORY=8G \
  -e VMM_NODE=require -e VMM_NODE_SOCKET=/node.sock -e VMM_NAME=third --name third "${from[@]}" /bin/cuvmm_holds 1000 \
  <"$trial/third" 8>&- >"$trial/log/third" 2>&1 &
third=$!
eventually "the third holds its memory" grep -q holds "$trial/log/third"
eventually "the third is in cuvmm top" seen third 1000
podman --root "$trial/store" --runroot "$trial/runroot" --storage-driver vfs --runtime runc kill third >/dev/null ||
  fail "podman kill"
wait "$third" && fail "a killed container succeeds"
eventually "what the third had is free" seen third -1

echo "== LD_PRELOAD in place of the file"
"$cuvmm" cdi generate "--sim=$sim" --shares 2G --preload environment -o /run/cdi/cuvmm.json || fail "no specification"
contained --device cuvmm.dev/share=gpu0-2g "${from[@]}" /bin/cuvmm_holds 100 </dev/null >"$trial/log/environment" 2>&1 ||
  fail "it does not run"
grep -q 'sees 2048 MiB' "$trial/log/environment" || fail "it does not see 2 GiB"

# A container as HAMi and KAI make it: with their variables, and a library of the node in the
# preload list. No CDI specification of cuvmm's is involved.
if grep -q CUDA_DEVICE_MEMORY_LIMIT "$build/lib/libcuvmm_preload.so"; then
  echo "== variables and mounts of HAMi and KAI"
  vgpu=/usr/local/vgpu
  echo "$vgpu/libcuvmm_stub.so" >"$trial/list"
  by_scheduler() {  # VARIABLE=VALUE LOG
    contained -v "$build/lib/libcuvmm_stub.so:$vgpu/libcuvmm_stub.so:ro" \
      -v "$build/lib/libcuvmm_preload.so:$vgpu/libcuvmm_preload.so:ro" -v "$trial/list:/etc/ld.so.preload:ro" \
      -v "$build/lib/cuvmm/sim:/opt/sim:ro" -e LD_LIBRARY_PATH=/opt/sim -e VMM_SIM_MEMORY=8G -e "$1" \
      "${from[@]}" /bin/cuvmm_holds "$2" </dev/null >"$trial/log/scheduler" 2>&1
  }
  by_scheduler CUDA_DEVICE_MEMORY_LIMIT_0=2048m 100 || fail "HAMi's container"
  grep -q 'sees 2048 MiB' "$trial/log/scheduler" || fail "HAMi's container does not see 2 GiB"
  by_scheduler CUDA_DEVICE_MEMORY_LIMIT=1g 100 || fail "KAI's container"
  grep -q 'sees 1024 MiB' "$trial/log/scheduler" || fail "KAI's container does not see 1 GiB"
  status=0
  by_scheduler CUDA_DEVICE_MEMORY_LIMIT=1g 2000 || status=$?
  [[ $status == 2 ]] || fail "2000 of 1024 MiB: status $status, where out of memory is 2"
else
  echo "== variables of HAMi and KAI: this engine does not read them"
fi

# For information only: what a share adds to a container's start, the medians of
# CUVMM_CONTAINER_STARTS starts that alternate.
started_in() {
  local began=$EPOCHREALTIME
  contained "$@" "${from[@]}" /bin/sh -c :
  local ended=$EPOCHREALTIME
  echo $(((${ended/./} - ${began/./}) / 1000))
}
starts=${CUVMM_CONTAINER_STARTS:-5}
for ((i = 0; i < starts; i++)); do
  started_in >>"$trial/bare"
  started_in --device cuvmm.dev/share=gpu0-2g >>"$trial/shared"
done
middle() { sort -n "$1" | sed -n "$(((starts + 1) / 2))p"; }
echo "a container's start takes $(middle "$trial/bare") ms, with a share $(middle "$trial/shared") ms"
