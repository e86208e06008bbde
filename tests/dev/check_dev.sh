#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_dev.sh ROOT: how ./dev answers bad input, and what its set-up reports as missing. Builds,
# installs and downloads nothing.
set -euo pipefail
root=$1
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
cd "$trial"
fail() { echo "dev: $*" >&2; exit 1; }
expect() {  # WHAT IS WANTED
  [[ $2 == "$3" ]] || fail "$1: '$2' instead of '$3'"
}

status=0
"$root/dev" conjure >said 2>&1 || status=$?
expect "exit status of an unknown command" "$status" 2
grep -q "no command 'conjure'" said || fail "an unknown command is not named"
grep -q '^usage:' said || fail "an unknown command does not show the usage"

# Building the demo builds everything that the demo runs, so that it works in an otherwise empty
# build.
for shown in demo quick; do
  built=$(sed -n "/^cmd_$shown/,/^}/p" "$root/dev")
  run=$(grep -o 'build/bin/[a-z_]*' "$root/tools/$shown.sh" | sed 's#.*/##; s#^cuvmm$#cuvmm_cli#' | sort -u)
  (($(wc -w <<<"$run") >= 4)) || fail "the programs that $shown runs are not found: $run"
  for program in $run; do
    grep -qwE -- "(cuvmm_example_)?$program" <<<"$built" || fail "./dev $shown runs $program and does not build it"
  done
done

# run_tests.sh and make show something within seconds, and then run the tests.
mkdir tree
cp "$root/run_tests.sh" "$root/Makefile" tree
printf '#!/bin/sh\necho "$@"\n' >tree/dev
chmod +x tree/dev
expect "run_tests.sh" "$(tree/run_tests.sh | tr '\n' ' ')" "quick test "
expect "run_tests.sh asan" "$(tree/run_tests.sh asan | tr '\n' ' ')" "test asan "
if command -v make >/dev/null; then
  expect "make test" "$(make -s -C tree test | grep -v ^make | tr '\n' ' ')" "quick test "
  expect "make demo" "$(make -s -C tree demo | grep -v ^make | tr '\n' ' ')" "quick demo "
fi

# The sources of a build have one name, committed or not, and each change gives them another.
if command -v git >/dev/null; then
  sources() { (cd sources && root=$PWD called_from=$PWD && source "$root_tools/common.sh" && sources_here); }
  root_tools=$root/tools
  mkdir -p sources/src sources/include
  touch sources/{src,include}/file
  git -C sources init -q
  commit() { git -C sources add -A && git -C sources -c user.name=n -c user.email=e commit -qm commit; }
  commit
  first=$(sources)
  [[ $first =~ ^[0-9a-f]{12}$ ]] || fail "sources are named '$first'"
  echo changed >sources/src/file
  changed=$(sources)
  [[ $changed != "$first" ]] || fail "a change of the sources does not change their name"
  touch sources/include/new
  [[ $(sources) != "$changed" ]] || fail "a new file does not change the sources' name"
  rm sources/include/new
  commit
  expect "the sources' name after the commit" "$(sources)" "$changed"
  touch sources/elsewhere
  expect "the sources' name after a change elsewhere" "$(sources)" "$changed"
fi

status=0
"$root/dev" build sideways >said 2>&1 || status=$?
expect "exit status of an unknown preset" "$status" 2

"$root/dev" help >said
for command in quick demo test build cross fuzz stress bench gpu-test gpu-plan gpu-pack fresh-root format tidy clean help; do
  grep -q "^  $command " said || fail "help does not name $command"
done

status=0
PATH=$trial/empty:/usr/bin:/bin "$root/dev" gpu-test no-such-part >said 2>&1 || status=$?
expect "exit status of an unknown part" "$status" 2

# Lanes of a plan run side by side, each with its cards, and a part that takes too long is stopped.
mkdir -p plans/tools/gpu_parts
touch plans/tools/gpu_parts/{good,bad,partial,slow}.sh
cat >plans/dev <<'END'
#!/bin/sh
echo "$2 card $CUDA_VISIBLE_DEVICES ${SETTING-unset}"
case $2 in bad) exit 3 ;; partial) exit 4 ;; slow) setsid sleep 6373 & sleep 6371 ;; esac
echo "$2 card $CUDA_VISIBLE_DEVICES ${SETTING-unset}" >>"$4/saw"
END
chmod +x plans/dev
printf '%s\n' '# a comment' '  one 0 0 good:9:SETTING=a,B=b slow:1 good' 'two 1,2 0 bad partial good' 'one 3 0 good' >plans/plan
plan() { (cd plans && called_from=$PWD && source "$root/tools/common.sh" && source "$root/tools/gpu_plan.sh" "$@"); }
status=0
plan plan --out out >said 2>&1 || status=$?
expect "exit status of a plan of which parts fail" "$status" 1
expect "what the first lane saw" "$(tr '\n' ' ' <plans/out/one/saw)" \
  "good card 0 a good card 0 unset good card 3 unset "
expect "what the second lane saw" "$(tr '\n' ' ' <plans/out/two/saw)" "good card 1,2 unset "
for words in 'one: slow: stopped' 'two: bad: failed' 'two: partial: not finished' 'two: good: passed'; do
  grep -q "^== $words" said || fail "the plan does not say '$words'"
done
grep -q '^bad card 1,2' plans/out/two/bad.log || fail "the output of a part that failed is lost"
! pgrep -fx 'sleep 6373' >/dev/null || fail "a part that was stopped leaves a process behind"
printf '%s\n' 'one 0 0 slow good' >plans/plan
touch plans/out/one/good.json
status=0
plan plan --seconds 1 --out out >said 2>&1 || status=$?
expect "exit status of a plan without time" "$status" 1
grep -q 'one: good: not begun, the time is over' said || fail "a part begins after the time is over"
[[ ! -e plans/out/one/good.json ]] || fail "the result of an earlier call stays"
(cd plans && called_from=$PWD && source "$root/tools/common.sh" && source "$root/tools/gpu_plan.sh" plan) >said 2>&1 &
stopped=$!
until pgrep -fx 'sleep 6373' >/dev/null; do sleep 0.1; done
kill "$stopped"
wait "$stopped" && fail "a plan that was stopped ends well"
for _ in $(seq 100); do pgrep -fx 'sleep 6371' >/dev/null || break; sleep 0.1; done
! pgrep -fx 'sleep 6371' >/dev/null || fail "a plan that was stopped leaves its part running"
pkill -fx 'sleep 6373' || true
for seconds in 10m -1 ''; do
  plan plan --seconds "$seconds" >said 2>&1 && fail "--seconds $seconds is accepted"
done
echo 'one 0 0 no-such-part' >plans/plan
plan plan >said 2>&1 && fail "a plan with an unknown part runs"
plan none >said 2>&1 && fail "a plan that is not there runs"
for part in $(sed -E 's/#.*//' "$root"/bench/plans/*.plan | cut -s -d' ' -f4- | tr ' ' '\n' | cut -d: -f1); do
  [[ -e $root/tools/gpu_parts/$part.sh ]] || fail "bench/plans name a part '$part' that does not exist"
done

# A distribution that is not known, and none, are refused before anything is made.
for words in 'fresh-root' 'fresh-root beos-5' 'fresh-root debian-12 --mirror'; do
  status=0
  # shellcheck disable=SC2086
  "$root/dev" $words >said 2>&1 || status=$?
  expect "exit status of ./dev $words" "$status" 2
done

cd "$root"
source tools/common.sh
source tools/setup.sh
needs='
has-it   command bash
lacks-it command no-such-command-here
no-head  header  no/such/header.h
no-mod   module  no_such_module_here'
expect "what is missing" "$(missing_packages "$needs")" "lacks-it no-head no-mod "
expect "a text as JSON" "$(json_text $'a "b" \\ c\nd')" '"a \"b\" \\ c\nd"'
expect "a machine's name" "$(CUVMM_MACHINE='Intel(R) Xeon(R) 8481C CPU @ 2.7GHz-x2' machine_here)" "intel-xeon-8481c-cpu-x2"

# With neither root nor sudo: prints what to run, and fails.
said=$( (become_root() { return 1; }; ensure_packages "$needs") 2>&1 ) && fail "went on without packages"
[[ $said == *"apt-get install lacks-it no-head no-mod"* ]] || fail "does not say what to install: $said"

# The stamp matches these requirements: nothing is installed again.
cd "$trial"
mkdir -p .venv/bin
ln -s "$(type -P true)" .venv/bin/python
echo nothing==1.0 >requirements.txt
touch ".venv/requirements-$(sha256sum <requirements.txt | cut -c1-16).done"
ensure_venv() { fail "installs again what is there"; }
ensure_python_packages requirements.txt
echo nothing==1.1 >requirements.txt
(ensure_venv() { exit 7; }; ensure_python_packages requirements.txt) && status=0 || status=$?
expect "exit status where requirements have changed" "$status" 7

# Where apt has no toml++, its headers come from a Python package, once; without that, it says what to do.
take_toml() (
  cd "$trial"
  missing_packages() { echo libtomlplusplus-dev; }
  ensure_packages() { fail "asks apt for a package that it does not have"; }
  ensure_venv() { mkdir -p .venv/bin; }
  apt-cache() { return 1; }
  ensure_toml_header
)
mkdir -p "$trial/pytomlpp-1/third_party/tomlplusplus/include/toml++"
touch "$trial/pytomlpp-1/third_party/tomlplusplus/include/toml++/toml.h"
tar -C "$trial" -czf "$trial/sources.tar.gz" pytomlpp-1
rm "$trial/.venv/bin/python"
printf '#!/bin/sh\nexit 1\n' >"$trial/.venv/bin/python"
chmod +x "$trial/.venv/bin/python"
said=$(take_toml 2>&1) && fail "went on without toml++"
[[ $said == *"Install its headers"* ]] || fail "does not say what to do without toml++: $said"
printf '#!/bin/sh\nwhile [ "$1" != --dest ]; do shift; done\ncp "%s" "$2/pytomlpp-1.tar.gz"\n' "$trial/sources.tar.gz" \
  >"$trial/.venv/bin/python"
take_toml 2>/dev/null
[[ -e $trial/.venv/toml/include/toml++/toml.h ]] || fail "the headers of toml++ are not where CMake looks for them"
printf '#!/bin/sh\nexit 1\n' >"$trial/.venv/bin/python"
take_toml 2>/dev/null || fail "fetches toml++ again"

# The tests' requirements are installed before they run.
cd "$root"
mkdir "$trial/bin"
printf '#!/bin/sh\necho ctest >>"%s/asked"\n' "$trial" >"$trial/bin/ctest"
chmod +x "$trial/bin/ctest"
(
  source tools/build.sh
  build_preset() { :; }
  say_skipped() { :; }
  ensure_packages() { echo "$1" >"$trial/needs"; }
  ensure_runtimes() { echo runtimes >>"$trial/asked"; }
  ensure_interposers() { echo interposers >>"$trial/asked"; }
  ensure_kubernetes_needs() { echo gRPC >>"$trial/asked"; }
  ensure_python_packages() { echo "$1" >>"$trial/asked"; }
  PATH=$trial/bin:$PATH run_tests release
)
expect "what ./dev test brings" "$(tr '\n' ' ' <"$trial/asked")" \
  "runtimes interposers gRPC requirements.txt requirements-tests.txt requirements-kubelet.txt requirements-ray.txt ctest "
grep -q '^procps .*pgrep' "$trial/needs" || fail "tests need procps, and ./dev test does not bring it"
for package in setuptools wheel; do
  grep -q "^$package==" requirements-tests.txt || fail "requirements-tests.txt has no $package"
done
echo "dev: all as it should be"
