#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_slurm.sh BUILD: slurmctld, slurmd, srun and sbatch on this machine, with this build's plugin
# and a simulated card. Runs in its own mount and PID namespaces, so that nothing on this machine
# changes and nothing keeps running.
set -euo pipefail
build=$(readlink -f "$1")
skip() { echo "skipped: slurm: $*"; exit 0; }
if [[ ${2:-} != inside ]]; then
  for command in slurmctld slurmd srun; do
    command -v "$command" >/dev/null || skip "no $command here (CUVMM_CLUSTERS=1 ./dev test installs it)"
  done
  [[ -e $build/lib/cuvmm/slurm/spank_cuvmm.so ]] || skip "libslurm-dev was not here when this was built"
  [[ $(id -u) == 0 ]] || skip "slurmd needs root"
  spaces=(--mount --pid --fork --kill-child --mount-proc --propagation private)
  unshare "${spaces[@]}" true 2>/dev/null || skip "this machine allows no namespaces"
  exec timeout 500 unshare "${spaces[@]}" "$0" "$build" inside
fi

trial=$(mktemp -d)
card=slurm
own_namespace=$(stat -Lc %i /proc/self/ns/pid)
trap 'rm -rf "$trial"' EXIT
fail() { echo "slurm: $*" >&2; tail -n 30 "$trial"/log/* >&2; exit 1; }
eventually() {  # WHAT COMMAND…
  for _ in {1..1200}; do "${@:2}" >/dev/null 2>&1 && return; sleep 0.05; done
  fail "not in 60 s: $1"
}
mount -t tmpfs none /run
mount -t tmpfs none /dev/shm
mkdir -p -m 700 /tmp/cuvmm-0 && mount -t tmpfs -o mode=700 none /tmp/cuvmm-0  # else programs outside appear in top
mkdir -p /run/cuvmm "$trial"/{log,state,spool}
unset XDG_RUNTIME_DIR
cuvmm=$build/bin/cuvmm
holds=$build/tests/bin/cuvmm_holds
host=$(hostname -s)
read -r first_port second_port < <(python3 - <<'PYTHON'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in sockets))
PYTHON
)
export SLURM_CONF=$trial/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=cuvmm
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$first_port
SlurmdPort=$second_port
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
GresTypes=gpumem
PlugStackConfig=$trial/plugstack.conf
StateSaveLocation=$trial/state
SlurmdSpoolDir=$trial/spool
SlurmctldPidFile=$trial/slurmctld.pid
SlurmdPidFile=$trial/slurmd.pid
MailProg=/bin/true
KillWait=1
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 Gres=gpumem:gpu0:8192
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
echo "Name=gpumem Type=gpu0 Count=8192" >"$trial/gres.conf"
echo "required $build/lib/cuvmm/slurm/spank_cuvmm.so gres=gpumem unit=1M" >"$trial/plugstack.conf"

sim=card=$card,memory=8G
start_service() {
  "$build/bin/cuvmmd" "--sim=$sim" >>"$trial/log/cuvmmd" 2>&1 &
  service=$!
  eventually "cuvmmd listens" test -S /run/cuvmm/cuvmmd.sock
}
start_service
slurmctld -D >"$trial/log/slurmctld" 2>&1 &
slurmd -D >"$trial/log/slurmd" 2>&1 &
is_idle() { [[ $(sinfo -h -o %T) == idle ]]; }
for _ in {1..1200}; do is_idle && break; sleep 0.05; done
is_idle || skip "slurmd does not come up here: $(grep -h error "$trial"/log/slurm* | tail -n 2 | tr '\n' ' ')"

# The environment of a job's programs: the simulated card.
export LD_LIBRARY_PATH=$build/lib/cuvmm/sim VMM_SIM_CARD=$card VMM_SIM_MEMORY=8G VMM_LOG_LEVEL=error
step() { timeout 120 srun --quiet "$@"; }
says() {  # TEXT FILE
  grep -q -- "$1" "$2" || fail "not said: $1, but: $(cat "$2")"
}

echo "== options"
srun --help >"$trial/help" 2>&1
says '--cuvmm-guarantee=SIZE' "$trial/help"
says '--cuvmm-weight=N' "$trial/help"
says '--cuvmm-priority=N' "$trial/help"
for wrong in --cuvmm-guarantee=much --cuvmm-weight=0 --cuvmm-priority=101 --cuvmm-weight=; do
  ! step "$wrong" true >"$trial/refused" 2>&1 || fail "srun takes $wrong"
  says 'allowed: ' "$trial/refused"
  ! sbatch "$wrong" --wrap true >"$trial/refused" 2>&1 || fail "sbatch takes $wrong"
done
[[ -z $(squeue -h) ]] || fail "what was refused is in the queue"

echo "== a job that asks for nothing stays as it is"
step env >"$trial/bare"
! grep -qE '^(LD_PRELOAD|VMM_LIMIT|VMM_NAME)=' "$trial/bare" || fail "it has $(grep -E '^(LD_PRELOAD|VMM_)' "$trial/bare")"

echo "== what is granted is the limit"
step --gres=gpumem:2048 "$holds" 100 </dev/null >"$trial/log/one" 2>&1 || fail "a step with 2048 MiB"
says 'sees 2048 MiB' "$trial/log/one"
step --gres=gpumem:2048 -n2 "$holds" 100 </dev/null >"$trial/log/tasks" 2>&1 || fail "a step of two tasks"
[[ $(grep -c 'sees 1024 MiB' "$trial/log/tasks") == 2 ]] || fail "two tasks do not share what their step has"
status=0
step --gres=gpumem:1K "$holds" 2000 </dev/null >"$trial/log/much" 2>&1 || status=$?
[[ $status == 2 ]] || fail "2000 of 1024 MiB: status $status, where out of memory is 2"
! step --gres=gpumem:9000 true >"$trial/refused" 2>&1 || fail "more is granted than the card has"
says 'configuration is not available' "$trial/refused"
step --gres=gpumem:2048 --cuvmm-guarantee=1G --cuvmm-weight=3 --cuvmm-priority=-2 env >"$trial/env"
for line in VMM_LIMIT=$((2048 << 20)) VMM_GUARANTEE=1G VMM_WEIGHT=3 VMM_PRIORITY=-2 'VMM_NAME=slurm-[0-9]*\.0' 'VMM_GROUP=slurm-[0-9]*\.0'; do
  says "^$line\$" "$trial/env"
done
step --gres=gpumem:gpu0:256 env >"$trial/env"
says "^VMM_LIMIT=$((256 << 20))\$" "$trial/env"
says '^CUDA_VISIBLE_DEVICES=0$' "$trial/env"
! step --gres=gpumem:gpu1:256 true >/dev/null 2>&1 || fail "a card is granted that the node does not have"
LD_PRELOAD=libc.so.6 step --gres=gpumem:1 env >"$trial/env"
says '^LD_PRELOAD=libc.so.6:/.*libcuvmm_stub.so$' "$trial/env"

echo "== steps and arrays"
cat >"$trial/job.sh" <<SCRIPT
#!/bin/sh
$holds 10 </dev/null
srun --gres=gpumem:512 $holds 10 </dev/null
srun $holds 10 </dev/null
SCRIPT
timeout 120 sbatch --quiet --wait --array=1-2 --gres=gpumem:1024 --cuvmm-weight=2 -o "$trial/log/array-%a" "$trial/job.sh" >/dev/null 2>&1 || fail "a job array"
for index in 1 2; do
  [[ $(grep -o 'sees .*' "$trial/log/array-$index" | tr '\n' ' ') == "sees 1024 MiB sees 512 MiB sees 1024 MiB " ]] ||
    fail "the array's job $index: $(cat "$trial/log/array-$index")"
done

echo "== two jobs share the card"
submit() {  # NAME GRANTED HELD
  mkfifo "$trial/$1"
  sbatch --parsable -o "$trial/log/$1" --gres="gpumem:$2" --wrap "VMM_CONTROL=on exec $holds $3 <>$trial/$1"
}
left=$(submit left 3072 3000)
right=$(submit right 4096 4000)
eventually "the left job holds its memory" grep -q holds "$trial/log/left"
eventually "the right job holds its memory" grep -q holds "$trial/log/right"
cat >"$trial/client.py" <<'PYTHON'
"""client.py CUVMM NAME MIB: the client of that name leases at least so much. -1: there is none."""
import json, subprocess, sys
node = json.loads(subprocess.run([sys.argv[1], "top", "-1", "--json"], capture_output=True).stdout)["node"]
clients = [c for c in node["clients"] if c["name"] == sys.argv[2]]
if sys.argv[3] == "-1":
    sys.exit(1 if clients else 0)
assert len(clients) == 1, node
assert sum(lease["leased_bytes"] for lease in clients[0]["leases"]) >= int(sys.argv[3]) << 20, clients
PYTHON
seen() { python3 "$trial/client.py" "$cuvmm" "$@"; }
eventually "the left job is in cuvmm top" seen "slurm-$left" 3000
eventually "the right job is in cuvmm top" seen "slurm-$right" 4000
! step --immediate=1 --gres=gpumem:2048 true >/dev/null 2>&1 || fail "memory is granted that others have"

echo "== the node service restarts"
kill -9 "$service"
wait "$service" 2>/dev/null || true
start_service
eventually "the left job is back" seen "slurm-$left" 3000
eventually "the right job is back" seen "slurm-$right" 4000

echo "== a job is cancelled"
pgrep -f "$holds 4000" >/dev/null || fail "the right job does not run"
scancel --signal=KILL --full "$right"
scancel "$right"
has_ended() { [[ -z $(squeue -h -j "$1" 2>/dev/null) ]]; }
eventually "the right job has ended" has_ended "$right"
eventually "what it had is free" seen "slurm-$right" -1
step --gres=gpumem:4096 "$holds" 4000 </dev/null >"$trial/log/next" 2>&1 || fail "another cannot have what it had"
seen "slurm-$left" 3000 || fail "the left job lost its memory"
scancel --signal=KILL --full "$left"
eventually "the left job has ended" has_ended "$left"
left_over() { find /tmp "/dev/shm" -maxdepth 2 -path "*/cuvmm-0/*" -name "*-$own_namespace" 2>/dev/null; }
nothing_is_left() { [[ -z $(left_over) ]]; }
eventually "nothing is left of either: $(left_over)" nothing_is_left
none_runs() { ! pgrep -x cuvmm_holds; }
eventually "no process of theirs is left" none_runs

# For information only: what the plugin adds to a step.
measure() {
  local began=$EPOCHREALTIME
  for _ in 1 2 3 4 5 6; do step --gres=gpumem:100 true; done
  local ended=$EPOCHREALTIME
  echo $(((${ended/./} - ${began/./}) / 6000))
}
with=$(measure)
mv "$trial/plugstack.conf" "$trial/plugstack.kept"
echo >"$trial/plugstack.conf"
echo "a step takes $(measure) ms, with the plugin $with ms"

echo "== plugstack.conf that is wrong"
echo "required $build/lib/cuvmm/slurm/spank_cuvmm.so gress=gpumem" >"$trial/plugstack.conf"
! step true >"$trial/refused" 2>&1 || fail "a wrong word in plugstack.conf is taken"
says "gress=gpumem" "$trial/refused"
echo "required $build/lib/cuvmm/slurm/spank_cuvmm.so preload=/nowhere.so" >"$trial/plugstack.conf"
step --gres=gpumem:100 echo it runs >"$trial/refused" 2>&1 || true   # 22.05 answers 0 for such a step
says '/nowhere.so cannot be read' "$trial/refused"
! grep -q 'it runs' "$trial/refused" || fail "a task runs without its limit: $(cat "$trial/refused")"
step true || fail "a job that asks for nothing needs the library"
