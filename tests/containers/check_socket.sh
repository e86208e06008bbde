#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_socket.sh BUILD: a service outside, and a program in user, mount and PID namespaces of its
# own that can reach nothing of the service but its socket. Needs no container runtime and no root.
set -euo pipefail
build=$(readlink -f "$1")
cuvmm=$build/bin/cuvmm
skip() { echo "skipped: socket: $*"; exit 0; }

# In the namespaces: hides the service's folder, and keeps the socket at another place.
if [[ ${2:-} == inside ]]; then
  trial=$3
  mount --bind "$trial/service/cuvmmd.sock" "$trial/mounted.sock"
  mount -t tmpfs none "$trial/service"
  mount -t tmpfs none /run
  [[ ! -e $trial/service/cuvmmd.sock ]] || { echo "the folder is not hidden"; exit 99; }
  become=()  # the user who began, since a simulated card belongs to one user
  [[ $5 == 0 ]] || become=(unshare --user "--map-user=$5" "--map-group=$6")
  export VMM_NODE_SOCKET=$trial/mounted.sock XDG_RUNTIME_DIR=$trial/runtime
  exec "${become[@]}" "$cuvmm" run --quiet "--sim=$4" --node require --name inside -- "$build/tests/bin/cuvmm_holds" 300
fi

command -v unshare >/dev/null || skip "no unshare here"
spaces=(--user --map-root-user --mount --pid --fork --kill-child --mount-proc --propagation private)
unshare "${spaces[@]}" mount -t tmpfs none /run 2>/dev/null || skip "this machine allows no namespaces"
[[ $(id -u) == 0 ]] || unshare "${spaces[@]}" unshare --user "--map-user=$(id -u)" "--map-group=$(id -g)" true 2>/dev/null ||
  skip "this machine allows no namespaces within namespaces"

trial=$(mktemp -d)
card=socket-$$
sim=card=$card,memory=1G
service=
clean() {
  exec 8>&-
  [[ -z $service ]] || kill "$service" 2>/dev/null || true
  rm -rf "$trial" "/dev/shm/cuvmm-sim-card-$(id -u)-$card"
}
trap clean EXIT
fail() { echo "socket: $*" >&2; sed 's/^/  /' "$trial"/log/* >&2; exit 1; }
eventually() {  # WHAT COMMAND…
  for _ in {1..1200}; do "${@:2}" >/dev/null 2>&1 && return; sleep 0.05; done
  fail "not in 60 s: $1"
}
mkdir -p "$trial"/{service,log}
mkdir -m 700 "$trial/runtime"
touch "$trial/mounted.sock"
"$build/bin/cuvmmd" --socket "$trial/service/cuvmmd.sock" "--sim=$sim" >"$trial/log/cuvmmd" 2>&1 &
service=$!
eventually "cuvmmd listens" test -S "$trial/service/cuvmmd.sock"

cat >"$trial/client.py" <<'PYTHON'
"""client.py CUVMM there: prints the process number, as this namespace has it, of the only client,
which holds 300 MiB. client.py CUVMM gone: there is no client, and nothing is leased."""
import json, os, subprocess, sys
node = json.loads(subprocess.run([sys.argv[1], "top", "-1", "--json"], capture_output=True).stdout)["node"]
if sys.argv[2] == "gone":
    assert not node["clients"] and all(place["leased_bytes"] == 0 for place in node["places"]), node
    sys.exit()
[client] = node["clients"]
assert client["name"] == "inside" and client["user"] == os.getuid(), client
assert sum(lease["leased_bytes"] for lease in client["leases"]) >= 300 << 20, client
with open(f"/proc/{client['process']}/cmdline", "rb") as file:
    assert b"cuvmm_holds" in file.read()
print(client["process"])
PYTHON
client() { VMM_NODE_SOCKET=$trial/service/cuvmmd.sock python3 -B "$trial/client.py" "$cuvmm" "$1"; }

mkfifo "$trial/input"
exec 8<>"$trial/input"
unshare "${spaces[@]}" "$0" "$build" inside "$trial" "$sim" "$(id -u)" "$(id -g)" \
  <"$trial/input" 8>&- >"$trial/log/inside" 2>&1 &
inside=$!
eventually "the program holds its memory" grep -q holds "$trial/log/inside"
eventually "the program is in cuvmm top" client there
process=$(client there)
grep -q "^process $process sees" "$trial/log/inside" && fail "it has no PID namespace of its own"
kill -9 "$process"
wait "$inside" && fail "a killed program succeeds"
eventually "its lease returns" client gone
echo "a program with nothing but the service's socket had its lease, was seen, and was killed"
