#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD: installs into a separate folder, moves it, builds and runs a program and an
# installed example against it with find_package and with pkg-config, and uninstalls without a trace.
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

use_examples() {  # PREFIX
  local sim="$1/lib/cuvmm/sim" program said
  for program in elastic_pool two_models elastic_pool.py; do
    said=$(env -u PYTHONPATH LD_LIBRARY_PATH="$sim" "$1/libexec/cuvmm/$program" 2>&1) ||
      fail "$program failed: $said"
  done
  "$1/bin/cuvmm" run --sim --quiet -- "$1/libexec/cuvmm/elastic_pool.py" >/dev/null || fail "elastic_pool.py failed under cuvmm"
}
import_package() {  # PREFIX: natively, and under its own cuvmm
  local engine under=()
  for engine in own preloaded; do
    [[ $engine == own ]] || under=("$1/bin/cuvmm" run --sim --quiet --)
    env -u CUVMM_LIBRARY -u PYTHONDONTWRITEBYTECODE LD_LIBRARY_PATH="$1/lib/cuvmm/sim" PYTHONPATH="$1/share/cuvmm/python" \
      CUVMM_TEST_ENGINE=$engine \
      "${under[@]}" python3 "$here/use_package.py" "$1" || fail "import cuvmm failed in $1"
  done
}
import_package "$trial/a place"
# The examples that the documentation names.
named=$(grep -oE '`[a-z_]+\.(cpp|py)`' "$here/../../examples/README.md" | tr -d '`' | sort -u)
for source in $named; do
  [[ -x "$trial/a place/libexec/cuvmm/${source%.cpp}" ]] || fail "the example $source is not installed"
  [[ -e "$trial/a place/share/doc/libcuvmm-dev/examples/$source" ]] || fail "the source $source is not installed"
done
(($(wc -w <<<"$named") >= 9)) || fail "examples/README.md names: $named"
# The pages that --help, the manuals and docstrings name. None links to a file that is not installed.
pages=$(grep -rhoaE 'docs/[a-z_/]+\.md' "$trial/a place"/{bin,share/man,share/cuvmm} | sort -u)
for page in $pages; do
  [[ -e "$trial/a place/share/doc/cuvmm/$page" ]] || fail "$page is not installed"
done
(($(wc -w <<<"$pages") >= 9)) || fail "programs and manuals name: $pages"
python3 -B "$here/../layout/check_links.py" "$trial/a place" || fail "the links above are broken"

echo "== find_package, after a move"
mv "$trial/a place" "$trial/moved"
import_package "$trial/moved"
use_examples "$trial/moved"
# make may not be installed.
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
cmake -G "$generator" -S "$here/consumer" -B "$trial/consumer" -DCMAKE_PREFIX_PATH="$trial/moved" >/dev/null
cmake --build "$trial/consumer" >/dev/null
run "$trial/consumer/consumer" "$trial/moved/lib/cuvmm/sim"

echo "== an example, from its installed source"
examples="$trial/moved/share/doc/libcuvmm-dev/examples"
cuda=$(sed -n 's/^CUVMM_CUDA_INCLUDE:PATH=//p' "$build/CMakeCache.txt")
cmake -G "$generator" -S "$examples" -B "$trial/examples" -DCMAKE_PREFIX_PATH="$trial/moved" \
  -DCUVMM_CUDA_INCLUDE="$cuda" >/dev/null
cmake --build "$trial/examples" --target elastic_pool >/dev/null
run_example() {  # PROGRAM: finds libcuvmm by itself
  LD_LIBRARY_PATH="$trial/moved/lib/cuvmm/sim" "$1" | tail -n 1 | grep 'all contents read back as written' ||
    fail "$1 failed"
}
run_example "$trial/examples/elastic_pool"

if command -v pkg-config >/dev/null; then
  echo "== pkg-config"
  export PKG_CONFIG_PATH=$trial/moved/lib/pkgconfig
  read -ra flags < <(pkg-config --cflags --libs cuvmm)
  "${CC:-cc}" "$here/consumer/consumer.c" -o "$trial/by_pkg_config" "${flags[@]}" -rdynamic -ldl
  run "$trial/by_pkg_config" "$(pkg-config --variable=simdir cuvmm)"
  # As examples/README.md says.
  "${CXX:-c++}" -std=c++20 "$examples/elastic_pool.cpp" -o "$trial/elastic_pool" -I"$cuda" \
    "${flags[@]}" -Wl,-rpath,"$(pkg-config --variable=libdir cuvmm)" -ldl
  run_example "$trial/elastic_pool"
fi

echo "== uninstall"
mv "$trial/moved" "$trial/a place"
for component in cuvmm cuvmm_dev; do
  cmake -DMANIFEST="$build/install_manifest_$component.txt" -P "$here/../../cmake/CuvmmUninstall.cmake" >/dev/null
done
left=$(find "$trial/a place" ! -type d -o -name '*cuvmm*')
[[ -z $left ]] || fail "left behind: $left"
echo "nothing is left"
