#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD: installs into a folder of its own, moves it, builds and runs a program
# against it by find_package and by pkg-config, and uninstalls without a trace.
set -euo pipefail
build=$1
here=$(dirname "$(readlink -f "$0")")
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
fail() { echo "install: $*" >&2; exit 1; }

run() {  # PROGRAM SIM_DIR
  local said
  said=$(LD_LIBRARY_PATH=$2:$2/../.. "$1") || fail "$1 failed: $said"
  [[ $said == cuvmm\ *"cuInit 0" ]] || fail "$1 said: $said"
  echo "$said"
}

echo "== install"
for component in cuvmm cuvmm_dev; do
  cmake --install "$build" --prefix "$trial/a place" --component "$component" >/dev/null
done
find "$trial/a place" -type f -printf '%P\n' | sort
for file in libcuvmm.so libcuvmm.so.0; do
  [[ -e "$trial/a place/lib/$file" ]] || fail "no $file"
done
for file in libcuda.so.1 libnvidia-ml.so.1; do
  [[ -e "$trial/a place/lib/cuvmm/sim/$file" ]] || fail "no simulated $file"
done
[[ $(find "$trial/a place/lib/cuvmm/sim" | wc -l) -le 3 ]] || fail "the simulated driver is not alone"
grep -rlF "$build" "$trial/a place/lib/cmake" "$trial/a place/lib/pkgconfig" "$trial/a place/include" &&
  fail "the files above name the build folder"

echo "== find_package, after a move"
mv "$trial/a place" "$trial/moved"
# There may be no make.
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
cmake -G "$generator" -S "$here/consumer" -B "$trial/consumer" -DCMAKE_PREFIX_PATH="$trial/moved" >/dev/null
cmake --build "$trial/consumer" >/dev/null
run "$trial/consumer/consumer" "$trial/moved/lib/cuvmm/sim"

if command -v pkg-config >/dev/null; then
  echo "== pkg-config"
  export PKG_CONFIG_PATH=$trial/moved/lib/pkgconfig
  read -ra flags < <(pkg-config --cflags --libs cuvmm)
  "${CC:-cc}" "$here/consumer/consumer.c" -o "$trial/by_pkg_config" "${flags[@]}" -rdynamic -ldl
  run "$trial/by_pkg_config" "$(pkg-config --variable=simdir cuvmm)"
fi

echo "== uninstall"
mv "$trial/moved" "$trial/a place"
for component in cuvmm cuvmm_dev; do
  cmake -DMANIFEST="$build/install_manifest_$component.txt" -P "$here/../../cmake/CuvmmUninstall.cmake" >/dev/null
done
left=$(find "$trial/a place" ! -type d -o -name '*cuvmm*')
[[ -z $left ]] || fail "left behind: $left"
echo "nothing is left"
