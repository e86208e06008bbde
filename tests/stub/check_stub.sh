#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_stub.sh BUILD: libcuvmm_stub.so in /etc/ld.so.preload of a separate mount namespace, as in a
# container. Programs that use CUDA are served from their first call on; all others behave as
# without it. Without the rights for a namespace, LD_PRELOAD stands in.
set -euo pipefail
build=$(readlink -f "$1")
here=$(dirname "$(readlink -f "$0")")
stub=$build/lib/libcuvmm_stub.so
sim=$build/lib/cuvmm/sim
if [[ ${2:-} != inside ]]; then
  if unshare --mount true 2>/dev/null; then
    exec timeout 200 unshare --mount --propagation private "$0" "$build" inside
  fi
  echo "not root: LD_PRELOAD stands in for /etc/ld.so.preload, and no setuid program is tried"
fi
trial=$(mktemp -d)
clean() { umount -l "$trial/etc" "$trial/root" 2>/dev/null || true; rm -rf "$trial"; }
trap clean EXIT
failed=0
fail() { echo "stub: $*" >&2; failed=1; }

echo "== what it needs of a program, and shows it"
needed=$(readelf -dW "$stub" | grep -E 'NEEDED|INIT|FINI' || true)
[[ -z $needed ]] || fail "needs a library, or runs code at the start: $needed"
versions=$(readelf -VW "$stub" | grep -A1000 'version needs' | grep -oE 'GLIBC_[0-9.]+' | sort -u || true)
newest=$(printf '%s\n' GLIBC_2.17 $versions | sort -V | tail -n 1)
[[ $newest == GLIBC_2.17 ]] || fail "needs symbols of $newest"
strong=$(readelf --dyn-syms -W "$stub" | awk '$7 == "UND" && $5 != "WEAK" && $8 != ""')
[[ -z $strong ]] || fail "does not load where one of these is missing: $strong"
shown() { readelf --dyn-syms -W "$1" | awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $8 { sub(/@.*/, "", $8); print $8 }' | grep -E "$2" | sort -u; }
functions='^cu[A-Z]|^cuvmm_engine|^nvml'
diff <(shown "$build/lib/libcuvmm_preload.so" "$functions") <(shown "$stub" "$functions") ||
  fail "its functions are not those of the preload library"
strays=$(shown "$stub" . | grep -vE '^(cu[A-Z].*|nvmlDeviceGet.*|cuvmm_engine_v1|dlsym|__asan_default_options|GLIBC_.*|CUVMM_1)$' || true)
[[ -z $strays ]] || fail "shows $strays"
readelf -lW "$stub" | grep -q 'GNU_STACK.*RW ' || fail "asks for a stack that can be executed"

# Preloads the stub into the programs below: by the file, or by the variable.
if [[ ${2:-} == inside ]]; then
  mkdir "$trial/etc" "$trial/root"
  mount -t tmpfs none "$trial/etc"
  cp -a /etc/. "$trial/etc/"
  echo "$stub" >"$trial/etc/ld.so.preload"
  mount --bind "$trial/etc" /etc
  grep -q libcuvmm_stub <(cat /proc/self/maps) || grep -q libcuvmm_stub <(sh -c 'cat /proc/self/maps') ||
    { echo "skipped: stub: /etc/ld.so.preload has no effect here"; exit 0; }
  front=(env)
else
  front=(env "LD_PRELOAD=$stub")
fi

echo "== programs that use the driver"
with() { "${front[@]}" LD_LIBRARY_PATH="$sim" VMM_SIM_MEMORY=256M VMM_LOG_LEVEL=warning "$@"; }
limited=(VMM_LIMIT=64M EXPECT_TOTAL=$((64 << 20)) EXPECT_ENGINE=1)
native=(VMM_LIMIT=64M EXPECT_TOTAL=$((256 << 20)) EXPECT_ENGINE=0)
programs=("cuvmm_stub_linked" "cuvmm_stub_opens handle" "cuvmm_stub_opens scope" "cuvmm_stub_opens threads"
  "cuvmm_stub_opens child" "cuvmm_stub_opens library $build/tests/lib/libcuvmm_stub_direct.so")
for program in "${programs[@]}"; do
  read -ra words <<<"$program"
  with "${limited[@]}" "$build/tests/bin/${words[0]}" "${words[@]:1}" || fail "not served: $program"
  for off in off OFF; do
    with "${native[@]}" VMM_MODE=$off "$build/tests/bin/${words[0]}" "${words[@]:1}" || fail "not native with $off: $program"
  done
done
# NVML tells the memory that the program may have, too.
for limit in 64M 128M; do
  said=$(with VMM_LIMIT=$limit "$build/tests/programs/cuvmm_program_nvml") || fail "NVML refuses: $said"
  [[ $(grep -c " ${limit%M} " <<<"$said") == 3 && $(wc -l <<<"$said") == 3 ]] || fail "NVML under a limit of $limit: $said"
done
said=$(with VMM_LIMIT=64M VMM_MODE=off "$build/tests/programs/cuvmm_program_nvml") || fail "NVML refuses natively: $said"
[[ $(grep -c " 256 " <<<"$said") == 3 ]] || fail "NVML natively: $said"
# The engine learns of a newer driver's function that a program without any other lookup finds.
for scope in default next; do
  said=$(with LD_LIBRARY_PATH="$build/tests/programs/newer" "$build/tests/programs/cuvmm_program_newer" $scope) || fail "a newer driver: $said"
  [[ $said == "0 bytes changed" ]] || fail "a function found in the scope $scope: $said"
done
if "${front[@]}" python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null; then
  echo "this machine has a driver: programs without one are not tried"
else
  "${front[@]}" "$build/tests/bin/cuvmm_stub_opens" absent || fail "a driver is seen where there is none"
fi
# libcuvmm finds the engine through the stub.
cat >"$trial/library.py" <<'PYTHON'
import ctypes, os
library = ctypes.CDLL(os.environ["CUVMM_LIBRARY"])
info = (ctypes.c_int32 * 16)()
assert library.cuvmm_get_engine_info(info, None) == 0
assert info[0] == int(os.environ["EXPECT_ENGINE"]), list(info)  # CUVMM_ENGINE_PRELOADED, or its own
PYTHON
with "${limited[@]}" CUVMM_LIBRARY="$build/lib/libcuvmm.so" python3 "$trial/library.py" || fail "libcuvmm finds no engine"
with "${native[@]}" VMM_MODE=off CUVMM_LIBRARY="$build/lib/libcuvmm.so" python3 "$trial/library.py" || fail "libcuvmm has no engine of its own"
# Already preloaded: there must be one engine, not two.
with VMM_LIMIT=64M LD_PRELOAD="$build/lib/libcuvmm_preload.so" python3 - "$((64 << 20))" <<'PYTHON' || fail "beside the engine itself"
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
total = ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
assert total.value == int(sys.argv[1]), total.value
engines = {line.split()[0] for line in open("/proc/self/maps") if "libcuvmm_preload" in line and "r-xp" in line}
assert len(engines) == 1, engines
PYTHON

echo "== without the engine beside it"
mkdir "$trial/alone"
cp "$stub" "$trial/alone/"
alone=("${front[@]}")
if [[ ${front[*]} == env ]]; then
  echo "$trial/alone/libcuvmm_stub.so" >/etc/ld.so.preload
else
  alone=(env "LD_PRELOAD=$trial/alone/libcuvmm_stub.so")
fi
said=$("${alone[@]}" LD_LIBRARY_PATH="$sim" VMM_SIM_MEMORY=256M "${native[@]}" "$build/tests/bin/cuvmm_stub_linked" 2>&1) ||
  fail "the program does not run natively: $said"
[[ $(grep -c "not limited: .*libcuvmm_preload.so" <<<"$said") == 1 ]] || fail "said of a missing engine: $said"
[[ ${front[*]} != env ]] || echo "$stub" >/etc/ld.so.preload

echo "== programs that do not"
same() {  # NAME COMMAND…: the same answer and output as without
  local name=$1 bare status_bare=0 status=0 answer
  shift
  command -v "$1" >/dev/null || { echo "stub: no $1 here"; return 0; }
  bare=$(without "$@" 2>&1) || status_bare=$?
  answer=$("${front[@]}" "$@" 2>&1) || status=$?
  [[ $status == "$status_bare" && $answer == "$bare" ]] ||
    fail "$name: $status_bare without, $status with it: $(diff <(echo "$bare") <(echo "$answer") | head -5)"
}
without() {
  if [[ ${front[*]} == env ]]; then
    mv /etc/ld.so.preload /etc/ld.so.kept
    local status=0
    "$@" || status=$?
    mv /etc/ld.so.kept /etc/ld.so.preload
    return "$status"
  fi
  "$@"
}
same shell sh -c 'echo $((6 * 7)); (exit 3)'
same bash bash -c 'set -o pipefail; printf "%s\n" a b | sort -r | cat'
same apt apt-cache policy
same apt-config apt-config dump
same dpkg dpkg --version
same ssh ssh -V
same ssh-keygen ssh-keygen -l -f /dev/null
same python python3 -c 'import ssl, ctypes, sqlite3, threading, json; print(ctypes.CDLL(None).getpid() > 0)'
same perl perl -e 'print join(",", sort keys %{{a=>1,b=>2}})'
same git git --version
same busybox busybox sh -c 'echo ok'
same tar sh -c 'tar -cf - -C /usr/share/doc bash | tar -tf - | sort | head -3'
same getent getent passwd root
same find find /usr/share/doc/bash -type f
if [[ -u $(command -v su || true) && ${front[*]} == env ]]; then
  same su su nobody -s /bin/sh -c id   # setuid
fi
if [[ ${front[*]} == env && $(id -u) == 0 ]]; then
  # A setuid program loads no engine and ignores its caller's variables.
  install -m 4755 "$build/tests/bin/cuvmm_stub_opens" "$trial/setuid"
  chmod 755 "$trial"
  out=$(setpriv --reuid=65534 --regid=65534 --clear-groups env LD_LIBRARY_PATH="$sim" "$trial/setuid" absent 2>&1) ||
    fail "a setuid program: $out"
fi

compiled() { printf '%s\n' "$2" >"$trial/$1.c" && gcc -o "$trial/$1" "$trial/$1.c" "${@:3}" 2>"$trial/gcc.log"; }
own='#include <stdio.h>
int main(void) { puts("ok"); return 0; }'
if compiled static "$own" -static; then same static "$trial/static"; else echo "stub: no static C library here"; fi
for kind in address undefined thread leak; do
  compiled "$kind" "$own" "-fsanitize=$kind" || { echo "stub: no $kind sanitizer here"; continue; }
  same "sanitized ($kind)" "$trial/$kind"
done
if command -v musl-gcc >/dev/null && musl-gcc -o "$trial/musl" "$trial/static.c" 2>/dev/null; then
  [[ $("$trial/musl") == ok ]] || fail "a program of musl"
  # musl ignores /etc/ld.so.preload but honours LD_PRELOAD.
  cat >"$trial/dl.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(void) { puts(dlsym(RTLD_DEFAULT, "puts") && !dlsym(RTLD_DEFAULT, "no_such") ? "ok" : "no"); return 0; }
C
  musl-gcc -o "$trial/dl" "$trial/dl.c" 2>/dev/null
  [[ $(LD_PRELOAD=$stub "$trial/dl") == ok ]] || fail "a program of musl with the stub"
else
  echo "stub: no musl here"
fi

if [[ ${front[*]} == env ]]; then
  echo "== early boot, and another root"
  # No /proc, no /sys, no environment, no descriptors.
  unshare --mount sh -c 'umount -l /sys && umount -l /proc && exec env -i /bin/sh -c "echo ok" 0<&- 2>&-' >"$trial/early" ||
    fail "without /proc"
  [[ $(cat "$trial/early") == ok ]] || fail "without /proc: $(cat "$trial/early")"
  # A root with only a C library, naming a stub that does not exist, and one that does.
  root=$trial/chroot
  mkdir -p "$root"/{etc,bin,opt}
  while read -r library; do install -D "$library" "$root$library"; done < <(ldd /bin/sh | grep -oE '/[^ ]+')
  cp -L /bin/sh "$root/bin/sh"
  for place in /nowhere/libcuvmm_stub.so /opt/libcuvmm_stub.so; do
    echo "$place" >"$root/etc/ld.so.preload"
    cp "$stub" "$root/opt/"
    [[ $(chroot "$root" /bin/sh -c 'echo ok' 2>/dev/null) == ok ]] || fail "in another root, with $place"
  done
fi

echo "== memory"
cat >"$trial/memory.py" <<'PYTHON'
import re
stub, private, end = False, 0, None
for line in open("/proc/self/smaps"):
    if mapping := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
        # Its zero-initialized data is an unnamed mapping right behind it.
        stub = "libcuvmm_stub" in line or (stub and len(line.split()) == 5 and mapping[1] == end)
        end = mapping[2]
    elif stub and line.startswith("Private_Dirty:"):
        private += int(line.split()[1])
print(private)
PYTHON
# In some processes another unnamed mapping lies right behind that one, by chance.
least=$(for i in 1 2 3 4; do "${front[@]}" python3 "$trial/memory.py"; done | sort -n | head -1)
echo "stub: $least KiB of private memory"
((0 < least && least <= 64)) || fail "takes too much"
exit "$failed"
