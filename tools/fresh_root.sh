# SPDX-License-Identifier: Apache-2.0
# ./dev fresh-root DISTRIBUTION… [OPTION…]: shows that a checkout builds, runs and installs on a bare
# system. Makes a minimal root of each distribution, builds this checkout in it, and installs the
# packages and the wheel into a second one that has neither a compiler nor the sources. Sourced by
# dev; needs root and mmdebstrap. Without --work, the roots are removed at the end.
#
#   --mirror URL     where the distribution's packages come from. For the distribution that runs
#                    here, the default is the mirror that apt uses
#   --keyring FILE   keys that sign that mirror, if they are not among apt's own
#   --from TARBALL   a root made earlier, instead of making one
#   --test [REGEX]   also run ./dev test, or the tests that match
#   --plain-wheel    make the wheel as `pip wheel .` does, which compiles everything again
#   --work FOLDER    keep the roots there, and go on with what an earlier call built in them
#   --out FILE       write the outcome there: bench/results/MACHINE/fresh_roots.txt
#
# The steps that a root goes through are in tools/fresh_root/.
declare -A suites=([debian-12]=bookworm [ubuntu-22.04]=jammy [ubuntu-24.04]=noble)

distributions=() mirror='' keyring='' from='' tests='' plain_wheel='' work='' out=''
while (($# > 0)); do
  case $1 in
    --mirror | --keyring | --from | --work | --out)
      (($# > 1)) || { say "$1 needs a value"; exit 2; }
      declare "${1#--}=$2"
      shift ;;
    --test)
      tests=.
      [[ ${2:-} == -* || -z ${2:-} || -n ${suites[${2:-}]:-} ]] || { tests=$2; shift; } ;;
    --plain-wheel) plain_wheel=yes ;;
    *)
      [[ -n ${suites[$1]:-} ]] || { say "there is no distribution '$1': ${!suites[*]}"; exit 2; }
      distributions+=("$1") ;;
  esac
  shift
done
((${#distributions[@]} > 0)) || { say "which distribution? One or more of: ${!suites[*]}"; exit 2; }
for file in keyring from work out; do
  [[ -z ${!file} ]] || declare "$file=$(cd "$called_from" && realpath -m "${!file}")"
done
[[ -z $keyring || -r $keyring ]] || die "there is no keyring $keyring"
[[ $(id -u) == 0 ]] || die "making a root and entering it needs root: try sudo ./dev fresh-root"
ensure_packages 'mmdebstrap command mmdebstrap'

own_distribution() { (. /etc/os-release && printf '%s-%s' "$ID" "$VERSION_ID"); }

# Prints the lines of sources.list. Ubuntu keeps most of what a build needs in universe.
sources_of() {  # DISTRIBUTION
  local suite=${suites[$1]} components=main signed='' site=$mirror
  [[ $1 != ubuntu-* ]] || components='main universe'
  [[ -z $keyring ]] || signed="[signed-by=$keyring] "
  if [[ -z $site ]]; then
    [[ $(own_distribution) == "$1" ]] || die "$1 is not what runs here: name its mirror with --mirror"
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
      sed -n "s/ $suite\$//p" | head -n 1)
    [[ -n $site ]] || die "apt has no mirror of $suite: name one with --mirror"
  fi
  printf "deb $signed%s %s $components\n" "$site" "$suite" "$site" "$suite-updates"
}

make_root() {  # DISTRIBUTION TARBALL
  local lines
  lines=$(sources_of "$1") || exit 1
  say "making a root of $1"
  # Ubuntu's minimal variant lacks apt.
  nice mmdebstrap --variant=minbase --include=apt,ca-certificates "${suites[$1]}" "$2" - \
    <<<"$lines" 2>"$2.log" || { tail -n 20 "$2.log" >&2; die "mmdebstrap could not make $1"; }
}

unpack_root() {  # TARBALL FOLDER: also gives it this machine's way to the network
  mkdir "$2"
  tar -C "$2" -xpf "$1" --exclude='./dev/*'
  cp -L /etc/resolv.conf /etc/hosts "$2/etc/"
  [[ -z ${PIP_CERT:-} ]] || cp "$PIP_CERT" "$2/etc/pip-cert.pem"
  # The keyring's path is this machine's.
  if [[ -n $keyring ]]; then
    cp "$keyring" "$2/usr/share/keyrings/fresh-root.gpg"
    sed -i "s#signed-by=[^] ]*#signed-by=/usr/share/keyrings/fresh-root.gpg#; s#Signed-By: .*#Signed-By: /usr/share/keyrings/fresh-root.gpg#" \
      "$2"/etc/apt/sources.list "$2"/etc/apt/sources.list.d/* 2>/dev/null || true
  fi
  mkdir "$2/exchange"
  cp tools/fresh_root/*.sh "$2/exchange/"
}

# Runs a script in the root, in namespaces of its own, so that its mounts and processes end with it.
enter() {  # FOLDER SCRIPT [NAME=VALUE…]
  local root=$1 script=$2
  shift 2
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/run"
    shift
    exec chroot "$root" "$@"' enter "$root" \
    env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    ${PIP_INDEX_URL:+"PIP_INDEX_URL=$PIP_INDEX_URL"} ${PIP_CERT:+PIP_CERT=/etc/pip-cert.pem} \
    "CUVMM_JOBS=$(jobs_here)" "$@" bash -euo pipefail "/exchange/$script" </dev/null
}

# A line for each step. `step` succeeds if the step does.
step() {  # WHAT COMMAND…
  local began=$SECONDS result=passed
  say "$distribution: $1"
  "${@:2}" >"$place/$distribution.log" 2>&1 || result=failed
  printf '%-13s %-58s %-6s %5d s\n' "$distribution" "$1" "$result" $((SECONDS - began)) | tee -a "$report"
  [[ $result == passed ]] && return
  tail -n 40 "$place/$distribution.log" | sed 's/^/    /' >&2
  return 1
}

try_distribution() {
  local builds=$place/$distribution-builds uses=$place/$distribution-uses tarball=$from
  if [[ -z $tarball ]]; then
    tarball=$place/$distribution.tar
    [[ -s $tarball ]] || make_root "$distribution" "$tarball" || return 1
  fi
  local how='from nothing'
  if [[ -d $builds/cuvmm ]]; then how='on what an earlier call built'; else unpack_root "$tarball" "$builds" || return 1; fi
  rm -rf "$uses" "$builds"/exchange/*
  cp tools/fresh_root/*.sh "$builds/exchange/"
  mkdir -p "$builds/cuvmm"
  # What git knows or would add, but nothing that was built.
  git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -C "$builds/cuvmm" -x
  commit_here >"$builds/exchange/commit"
  step "./dev demo, $how" enter "$builds" demo.sh || return 1
  enter "$builds" versions.sh | sed "s/^/$(printf '%-13s ' "$distribution")/" | tee -a "$report"
  step "pip wheel .${plain_wheel:+, which compiles everything}" enter "$builds" wheel.sh "PLAIN=$plain_wheel" || return 1
  step 'cpack -G DEB' enter "$builds" packages.sh || return 1
  unpack_root "$tarball" "$uses" || return 1
  cp "$builds"/exchange/*.deb "$builds"/exchange/*.whl "$uses/exchange/"
  step 'the packages installed by apt into another root, and used' enter "$uses" use_packages.sh || return 1
  step 'the wheel in that root, without the packages' enter "$uses" use_wheel.sh || return 1
  if [[ -n $tests ]]; then
    [[ $tests == . ]] && name='./dev test' || name="the tests that match $tests"
    step "$name" enter "$builds" test.sh "TESTS=$tests" || return 1
    grep -E 'tests passed|tests failed|^skipped: ' "$place/$distribution.log" | sed "s/^/$(printf '%-13s     ' "$distribution")/" | tee -a "$report"
  fi
  [[ -n $work ]] || rm -rf "$builds" "$uses"
}

place=$work
if [[ -z $place ]]; then
  place=$(mktemp -d)
  trap 'rm -rf --one-file-system "$place"' EXIT
fi
mkdir -p "$place"
report=$place/report
began_with=$(commit_here)
: >"$report"
failed=()
for distribution in "${distributions[@]}"; do try_distribution || failed+=("$distribution"); done
if [[ -n $out ]]; then
  mkdir -p "$(dirname "$out")"
  { echo "# fresh minimal roots, no card, $(nproc) processors, commit $began_with"; cat "$report"; } >"$out"
fi
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
