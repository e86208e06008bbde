#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_packages.sh BUILD: makes the Debian packages, installs them into a separate root, tries
# them, upgrades them over a running program, and removes them without a trace.
set -euo pipefail
build=$(readlink -f "$1")
for command in cpack dpkg dpkg-deb; do
  command -v "$command" >/dev/null || { echo "skipped: packages: no $command here"; exit 0; }
done
[[ $(id -u) == 0 ]] || { echo "skipped: packages: dpkg installs as root only"; exit 0; }
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
fail() { echo "packages: $*" >&2; exit 1; }

echo "== make"
(cd "$build" && cpack -G DEB -B "$trial/made" >"$trial/cpack.log" 2>&1) || { cat "$trial/cpack.log"; fail "cpack failed"; }
runs=$(find "$trial/made" -maxdepth 1 -name 'cuvmm_*.deb')
builds=$(find "$trial/made" -maxdepth 1 -name 'libcuvmm-dev_*.deb')
[[ -n $runs && -n $builds ]] || fail "made: $(ls "$trial/made")"
dpkg-deb --field "$runs" Package Version Depends
inside=$(dpkg-deb --contents "$runs")
grep -q './usr/bin/cuvmm$' <<<"$inside" || fail "no cuvmm in it"
grep -q './usr/lib/libcuvmm_stub.so$' <<<"$inside" || fail "no stub in it"
grep -q './usr/lib/cuvmm/container/ld.so.preload$' <<<"$inside" || fail "no list of preloads in it"
for manual in man1/cuvmm.1 man8/cuvmmd.8; do
  grep -q "./usr/share/man/$manual" <<<"$inside" || fail "no $manual in it"
done
grep -q './usr/share/bash-completion/completions/cuvmm' <<<"$inside" || fail "no completions in it"
grep -q './usr/share/doc/cuvmm/docs/metrics.md' <<<"$inside" || fail "no documentation in it"
grep -E 'libcuda|libnvidia-ml' <<<"$inside" | grep -v './usr/lib/cuvmm/sim/' && fail "a driver lies where programs may find it"
grep -q '\.h$' <<<"$inside" && fail "headers in the package that runs"
inside=$(dpkg-deb --contents "$builds")   # read it whole: dpkg-deb fails if its pipe closes early
grep -q './usr/include/cuvmm/cuvmm.h' <<<"$inside" || fail "no headers in libcuvmm-dev"
grep -q './usr/share/doc/libcuvmm-dev/examples/CMakeLists.txt' <<<"$inside" || fail "no examples in libcuvmm-dev"

# As the container recipe does; apt may have no package lists here.
if command -v apt-get >/dev/null && apt-cache show libc6 >/dev/null 2>&1; then
  echo "== what apt would do"
  apt-get install -s --no-install-recommends "$runs" "$builds" >"$trial/apt.log" 2>&1 || { cat "$trial/apt.log"; fail "apt would not install it"; }
  grep '^Inst cuvmm ' "$trial/apt.log" || { cat "$trial/apt.log"; fail "apt would not install it"; }
fi

echo "== install"
root=$trial/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
touch "$root/var/lib/dpkg/status"
before=$(cd "$root" && find . -not -path './var/*' | sort)
# A separate root has no shell for a package's scripts.
in_root() { dpkg --root="$root" --force-depends --force-script-chrootless --no-triggers "$@"; }
install_both() { in_root -i "$runs" "$builds" >"$trial/dpkg.log" 2>&1 || { cat "$trial/dpkg.log"; fail "dpkg failed"; }; }
install_both
cuvmm=$root/usr/bin/cuvmm
[[ $("$cuvmm" --version) == cuvmm\ * ]] || fail "it says: $("$cuvmm" --version)"
"$cuvmm" run --sim=memory=64M -- "$root/usr/libexec/cuvmm/frag_test" >/dev/null 2>&1 || fail "frag_test failed under it"
# A separate root has no Python, so its folders are named explicitly; on a real system they are
# found by default.
here=$(dirname "$(readlink -f "$0")")
import_package() {  # natively, and under its own cuvmm
  local engine under=()
  for engine in own preloaded; do
    [[ $engine == own ]] || under=("$cuvmm" run --sim --quiet --)
    env -u CUVMM_LIBRARY -u PYTHONDONTWRITEBYTECODE LD_LIBRARY_PATH="$root/usr/lib/cuvmm/sim" \
      PYTHONPATH="$root/usr/lib/python3/dist-packages" CUVMM_TEST_ENGINE=$engine \
      "${under[@]}" python3 "$here/use_package.py" "$root/usr" || fail "import cuvmm failed"
  done
}
import_package
"$cuvmm" demo --sim --no-pictures -o "$trial/a demo" >"$trial/demo.log" 2>&1 || { cat "$trial/demo.log"; fail "the demo failed"; }

echo "== upgrade over a running program"
"$cuvmm" run --sim -- sh -c "sleep 3; exec '$root/usr/libexec/cuvmm/frag_test' --help" >/dev/null 2>&1 &
running=$!
# A program that holds memory during the upgrade, and afterwards allocates and frees more.
XDG_RUNTIME_DIR=$trial "$cuvmm" run --sim --quiet -- python3 - "$trial" <<'PYTHON' &
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def must(answer):
    assert answer == 0, answer
def allocate():
    address = ctypes.c_uint64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(32 << 20)))
    return address
must(cuda.cuInit(0))
must(cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0))
held = allocate()
open(os.path.join(sys.argv[1], "holds"), "w").close()
until = time.monotonic() + 60
while not os.path.exists(os.path.join(sys.argv[1], "upgraded")):
    assert time.monotonic() < until
    time.sleep(0.05)
must(cuda.cuMemFree_v2(allocate()))
must(cuda.cuMemFree_v2(held))
PYTHON
holder=$!
for _ in {1..400}; do [[ -e $trial/holds ]] && break || sleep 0.05; done
[[ -e $trial/holds ]] || fail "no program runs"
install_both
XDG_RUNTIME_DIR=$trial "$cuvmm" top -1 | grep -q '32.0 MiB.*python3' || fail "the program is not seen after the upgrade"
touch "$trial/upgraded"
wait "$holder" || fail "a program that ran died of the upgrade"
wait "$running" || true

echo "== remove"
import_package
[[ -n $(find "$root" -name __pycache__) ]] || fail "Python has compiled nothing, so nothing of it is removed"
in_root -P libcuvmm-dev cuvmm >"$trial/dpkg.log" 2>&1 || { cat "$trial/dpkg.log"; fail "dpkg failed to remove"; }
after=$(cd "$root" && find . -not -path './var/*' | sort)
[[ $before == "$after" ]] || fail "left behind: $(diff <(echo "$before") <(echo "$after"))"
echo "nothing is left"
