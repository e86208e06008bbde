#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_fresh_root.sh ROOT: ./dev fresh-root goes through its steps in order, stops a distribution at
# the first that fails, and says so in its report and exit status. The roots here are empty, and the
# steps are done by a stand-in for unshare.
set -euo pipefail
root=$1
[[ $(id -u) == 0 ]] || { echo "skipped: fresh_root: only root makes roots"; exit 0; }
git -C "$root" rev-parse 2>/dev/null || { echo "skipped: fresh_root: this is no checkout"; exit 0; }
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
fail() { echo "fresh_root: $*" >&2; cat "$trial/said" >&2; exit 1; }

mkdir -p "$trial/bin" "$trial/empty/etc/apt" "$trial/empty/usr/share/keyrings" "$trial/empty/proc"
echo 'deb [signed-by=/here/alone.gpg] mirror noble main' >"$trial/empty/etc/apt/sources.list"
tar -C "$trial/empty" -cf "$trial/root.tar" .
touch "$trial/keys.gpg"
# Called as: unshare … enter FOLDER env … bash -euo pipefail /exchange/SCRIPT
cat >"$trial/bin/unshare" <<'STANDIN'
#!/usr/bin/env bash
script=${!#}
script=${script##*/}
while [[ $1 != enter ]]; do shift; done
folder=$2
echo "${folder##*-} $script $(grep -o 'signed-by=[^]]*' "$folder/etc/apt/sources.list")" >>"$STEPS"
[[ -e $folder/exchange/$script ]] || exit 9
case $script in
  demo.sh) [[ -e $folder/cuvmm/dev ]] || exit 8 ;;
  wheel.sh) touch "$folder/exchange/cuvmm-1.whl" ;;
  packages.sh) touch "$folder/exchange/cuvmm_1.deb" ;;
  use_*) [[ -e $folder/exchange/cuvmm-1.whl && -e $folder/exchange/cuvmm_1.deb && ! -e $folder/cuvmm ]] || exit 7 ;;
  versions.sh) echo "some system" ;;
  test.sh) echo "100% tests passed, 0 tests failed out of 3" ;;
esac
[[ $script != "$FAILS" ]] || { echo "reason of $script"; exit 1; }
STANDIN
cat >"$trial/bin/mmdebstrap" <<'STANDIN'
#!/usr/bin/env bash
cat >"$SOURCES"
[[ -z ${NO_MIRROR:-} ]] || { echo "no such mirror"; exit 1; }
cp "$EMPTY" "${@: -2:1}"
STANDIN
chmod +x "$trial"/bin/*

fresh_root() {  # EXPECTED-STATUS WORD…
  local status=0 expected=$1
  : >"$trial/steps"
  PATH=$trial/bin:$PATH STEPS=$trial/steps SOURCES=$trial/sources EMPTY=$trial/root.tar FAILS=${FAILS:-} \
    "$root/dev" fresh-root --out "$trial/report" "${@:2}" >"$trial/said" 2>&1 || status=$?
  [[ $status == "$expected" ]] || fail "exit status $status instead of $expected: ${*:2}"
}
steps() { cut -d ' ' -f 1,2 "$trial/steps" | tr '\n' ','; }
all='builds demo.sh,builds versions.sh,builds wheel.sh,builds packages.sh,uses use_packages.sh,uses use_wheel.sh,'

fresh_root 1 ubuntu-24.04 --from "$trial/root.tar" --keyring "$trial/none.gpg"
grep -q "there is no keyring $trial/none.gpg" "$trial/said" || fail "a keyring that does not exist is not named"

fresh_root 0 ubuntu-24.04 --from "$trial/root.tar" --keyring "$trial/keys.gpg"
[[ $(steps) == "$all" ]] || fail "steps: $(steps)"
[[ $(grep -c ' passed ' "$trial/report") == 5 ]] || fail "report: $(cat "$trial/report")"
grep -q 'some system' "$trial/report" || fail "the report does not say which system"
! grep -q here/alone "$trial/steps" || fail "apt in the root looks for keys where this machine has them"

fresh_root 0 debian-12 --from "$trial/root.tar" --test
[[ $(steps) == "${all}builds test.sh," ]] || fail "steps with tests: $(steps)"
grep -q '100% tests passed' "$trial/report" || fail "the report does not say what the tests said"

# Each step fails in turn: nothing follows it, and the next distribution still has its turn.
for script in demo.sh wheel.sh packages.sh use_packages.sh use_wheel.sh test.sh; do
  FAILS=$script fresh_root 1 debian-12 ubuntu-22.04 --from "$trial/root.tar" --test
  grep -q "failed: debian-12 ubuntu-22.04" "$trial/said" || fail "$script failed for both, and it does not say so"
  [[ $(grep -c " $script" "$trial/steps") == 2 ]] || fail "$script ran $(grep -c " $script" "$trial/steps") times"
  [[ $(tail -n 1 "$trial/steps") == *" $script "* ]] || fail "it went on after $script: $(steps)"
  [[ $(grep -c ' failed ' "$trial/report") == 2 ]] || fail "report: $(cat "$trial/report")"
  grep -q "reason of $script" "$trial/said" || fail "the reason of $script is not shown"
done

# A root is made of the mirror that is named, and a second call goes on with the first one's.
fresh_root 0 ubuntu-22.04 --mirror http://mirror --keyring "$trial/keys.gpg" --work "$trial/work"
grep -q "^deb \[signed-by=$trial/keys.gpg\] http://mirror jammy main universe$" "$trial/sources" || fail "sources: $(cat "$trial/sources")"
grep -q 'from nothing' "$trial/report" || fail "report: $(cat "$trial/report")"
fresh_root 0 ubuntu-22.04 --mirror http://mirror --work "$trial/work"
grep -q 'on what an earlier call built' "$trial/report" || fail "report: $(cat "$trial/report")"
NO_MIRROR=yes fresh_root 1 ubuntu-24.04 --mirror http://mirror
grep -q 'mmdebstrap could not make ubuntu-24.04' "$trial/said" || fail "a mirror that does not answer is not reported"
fresh_root 1 ubuntu-24.04
grep -q 'name its mirror with --mirror' "$trial/said" || fail "it does not ask for a mirror"
echo "fresh_root: all as it should be"
