# SPDX-License-Identifier: Apache-2.0
# ./dev cross: builds for aarch64 on another machine and runs the tests that run in qemu-aarch64.
# Sourced by dev. Debian's packages are unpacked into the build folder, so that this machine needs
# no foreign architecture and keeps its own packages.
cross=$root/build-aarch64

# apt-get with lists and a state of its own, for one architecture.
own_apt() {  # ARCHITECTURE COMMAND…
  local own=$cross/packages
  mkdir -p "$own/lists/partial" "$own/cache/archives/partial"
  touch "$own/status"
  apt-get -q -y -o APT::Architecture="$1" -o APT::Architectures="$1" -o Dir::State="$own" \
    -o Dir::State::status="$own/status" -o Dir::Cache="$own/cache" "${@:2}" >&2
}

unpack_packages() {  # FOLDER
  local package
  for package in "$cross"/packages/cache/archives/*.deb; do dpkg-deb -x "$package" "$1"; done
  rm -rf "$cross/packages"
}

# The target's libraries and headers.
fill_sysroot() {
  [[ ! -e $cross/sysroot.done ]] || return 0
  local needed=$build_needs
  # Where apt has no toml++, ensure_build_needs has fetched its headers.
  if apt-cache show libtomlplusplus-dev >/dev/null 2>&1; then needed+=$toml_needs; fi
  needed=$(sed -nE 's/^(\S+) +header .*/\1/p' <<<"$needed")
  rm -rf "$cross/packages" "$cross/sysroot"
  mkdir -p "$cross/sysroot"
  say "unpacking arm64 packages into build-aarch64/sysroot"
  # shellcheck disable=SC2086
  { own_apt arm64 update && own_apt arm64 install --download-only --no-install-recommends $needed; } ||
    die "this machine's package sources have no arm64 packages (Ubuntu's are at ports.ubuntu.com): $needed"
  unpack_packages "$cross/sysroot"
  [[ -e $cross/sysroot/lib ]] || ln -s usr/lib "$cross/sysroot/lib"
  touch "$cross/sysroot.done"
}

# Before version 8, qemu keeps a record for each page, and the simulated driver reserves 99 TiB.
is_new_enough() {  # EMULATOR
  local version
  version=$("$1" --version 2>/dev/null | sed -nE '1s/.*version ([0-9]+).*/\1/p')
  [[ -n $version && $version -ge 8 ]]
}

ensure_emulator() {
  local codename repository
  is_new_enough "$cross/qemu-aarch64" && return
  mkdir -p "$cross"
  if is_new_enough qemu-aarch64; then
    ln -sf "$(command -v qemu-aarch64)" "$cross/qemu-aarch64"
    return
  fi
  # Debian 12 has a newer one in its backports, linked statically, where this machine gets the rest.
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  # shellcheck disable=SC2016
  repository=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $codename" | sed -n 1p)
  rm -rf "$cross/packages"
  mkdir -p "$cross/packages"
  echo "deb $repository $codename-backports main" >"$cross/packages/sources"
  local from=(-o Dir::Etc::sourcelist="$cross/packages/sources" -o Dir::Etc::sourceparts=-)
  say "unpacking a newer qemu-user into build-aarch64"
  (own_apt amd64 "${from[@]}" update &&
    cd "$cross/packages/cache/archives" && own_apt amd64 "${from[@]}" download qemu-user) ||
    die "qemu-aarch64 8 or newer is needed, and this machine's sources have none"
  unpack_packages "$cross/qemu"
  ln -sf qemu/usr/bin/qemu-aarch64 "$cross/qemu-aarch64"
  is_new_enough "$cross/qemu-aarch64" || die "qemu-aarch64 8 or newer is needed"
}

[[ $(uname -m) == x86_64 ]] || die "./dev cross builds on x86_64; on aarch64, use ./dev test"
ensure_build_needs
ensure_packages "$cross_needs"
fill_sysroot
ensure_emulator
configure aarch64
cmake --build --preset aarch64 -j "$(jobs_here)" >&2
ctest --preset aarch64 "$@"
