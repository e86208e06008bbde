# SPDX-License-Identifier: Apache-2.0
# Installs what a build needs and this machine lacks: first Debian packages, then Python packages in
# .venv. Does nothing if everything is installed. Sourced by dev after common.sh.

# Each package, and the evidence that it is installed: a command, a header, a file, or a Python
# module.
build_needs='
g++                  command g++
cmake                command cmake
ninja-build          command ninja
pkg-config           command pkg-config
python3              command python3
python3-venv         module  ensurepip
libgtest-dev         header  gtest/gtest.h
libbenchmark-dev     header  benchmark/benchmark.h
libcli11-dev         header  CLI/CLI.hpp
libfmt-dev           header  fmt/format.h
nlohmann-json3-dev   header  nlohmann/json.hpp
zlib1g-dev           header  zlib.h
liblz4-dev           header  lz4.h
libzstd-dev          header  zstd.h'
toml_needs='
libtomlplusplus-dev  header  toml++/toml.h'
test_needs='
procps               command pgrep'
# Needed to build the device plugin for Kubernetes. Without them, everything else is built.
kubernetes_needs='
libgrpc++-dev          header  grpcpp/grpcpp.h
libprotobuf-dev        header  google/protobuf/message.h
protobuf-compiler      command protoc
protobuf-compiler-grpc command grpc_cpp_plugin'
# Tests use these if they are installed: container runtimes, Slurm, and other C libraries.
cluster_needs="
podman               command podman
runc                 command runc
slurmctld            command slurmctld
slurmd               command slurmd
slurm-client         command srun
slurm-wlm-basic-plugins file /usr/lib/$(uname -m)-linux-gnu/slurm-wlm/auth_none.so
libslurm-dev         header  slurm/spank.h
busybox-static       command busybox
musl-tools           command musl-gcc"
# Needed to build for aarch64 on another machine.
cross_needs='
g++-aarch64-linux-gnu  command aarch64-linux-gnu-g++'
style_needs='
clang-format-14      command clang-format-14
clang-tidy-14        command clang-tidy-14'

is_there() {  # KIND NAME
  case $1 in
    command) command -v "$2" >/dev/null ;;
    file) [[ -e $2 ]] ;;
    header) [[ -e /usr/include/$2 || -e /usr/local/include/$2 ]] ;;
    module) python3 -c "import $2" 2>/dev/null ;;
  esac
}

missing_packages() {  # NEEDS
  local package kind name
  while read -r package kind name; do
    [[ -z $package ]] || is_there "$kind" "$name" || printf '%s ' "$package"
  done <<<"$1"
}

# Prints the command to run as root: sudo if it needs no password or there is a terminal to type
# one.
become_root() {
  if [[ $(id -u) == 0 ]]; then
    printf env
  elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    printf sudo
  else
    return 1
  fi
}

ensure_packages() {  # NEEDS
  local missing as_root
  missing=$(missing_packages "$1")
  [[ -n $missing ]] || return 0
  command -v apt-get >/dev/null ||
    die "this machine has no apt-get. Install what these Debian packages hold, then try again: $missing"
  as_root=$(become_root) ||
    die "these packages are missing, and neither root nor sudo is at hand. Run: apt-get install $missing"
  say "installing $missing"
  "$as_root" apt-get update -q >&2
  # shellcheck disable=SC2086
  "$as_root" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing >&2 ||
    die "apt-get could not install: $missing"
  missing=$(missing_packages "$1")
  [[ -z $missing ]] || die "installed, but still not found: $missing"
}

ensure_compiler() {
  local version
  version=$("${CXX:-g++}" -dumpversion) || die "no C++ compiler answers to ${CXX:-g++}"
  [[ ${CXX:-g++} == *clang* || ${version%%.*} -ge 11 ]] ||
    die "cuvmm needs g++ 11 or newer, this is $version. Set CXX to a newer one."
}

ensure_venv() {
  .venv/bin/python -c 'import pip' 2>/dev/null && return
  say "making .venv"
  python3 -m venv --clear .venv || die "python3 -m venv failed: is python3-venv installed?"
}

# Installs a requirements file once. A stamp in .venv records the hash of the installed file.
ensure_python_packages() {  # REQUIREMENTS
  local hash stamp
  hash=$(sha256sum <"$1" | cut -c1-16)
  stamp=.venv/$(basename "$1" .txt)-$hash.done
  [[ -e $stamp ]] && .venv/bin/python -c '' 2>/dev/null && return
  ensure_venv
  say "installing the Python packages of $1 into .venv"
  .venv/bin/python -m pip install --quiet -r "$1" >&2 || return 1
  touch "$stamp"
}

cuda_header_is_there() { cmake -P cmake/CuvmmCudaSearch.cmake >/dev/null 2>&1; }

ensure_cuda_header() {
  [[ -z ${CUVMM_CUDA_INCLUDE:-} ]] || return 0
  cuda_header_is_there && return
  say "no toolkit of CUDA 13.0 or newer: taking cuda.h from its Python package"
  ensure_python_packages requirements-cuda.txt || true
  cuda_header_is_there ||
    die "cuda.h could not be had. Install a CUDA toolkit, 13.0 or newer, or set CUVMM_CUDA_INCLUDE."
}

# Ubuntu 22.04 has no package of toml++, so it takes the headers from the sources of their Python
# binding. Expects that apt's package lists are there.
ensure_toml_header() {
  local folder=.venv/toml sources
  [[ -n $(missing_packages "$toml_needs") && ! -e $folder/include/toml++/toml.h ]] || return 0
  if command -v apt-cache >/dev/null && ! apt-cache show libtomlplusplus-dev >/dev/null 2>&1; then
    ensure_venv
    say "apt has no toml++: taking its headers from the Python package pytomlpp"
    sources=$(mktemp -d)
    .venv/bin/python -m pip download --quiet --no-deps --no-binary pytomlpp --dest "$sources" pytomlpp==1.1.0 >&2 &&
      mkdir -p "$folder" &&
      tar -C "$folder" --strip-components=3 --wildcards -xzf "$sources"/pytomlpp-*.tar.gz '*/third_party/tomlplusplus/include' ||
      die "toml++ could not be had. Install its headers into /usr/local/include."
    rm -rf "$sources"
  else
    ensure_packages "$toml_needs"
  fi
}

# Programs build and run without plots, so a machine without a network loses only those.
ensure_plots() {
  ensure_python_packages requirements.txt ||
    say "the Python packages for plots could not be had: all else works, plots will not"
}

# Without a network or root, the tests that need these packages are skipped and say so.
ensure_test_needs() {
  (ensure_packages "$test_needs") || true
  ensure_plots
  ensure_python_packages requirements-tests.txt ||
    say "setuptools and wheel could not be had: the wheel will not be tested"
  ensure_python_packages requirements-kubelet.txt ||
    say "grpcio could not be had: the device plugin will not be tested"
  ensure_python_packages requirements-ray.txt ||
    say "Ray could not be had: it is not tested with"
  ensure_viewers
}

# Reconfigures a build folder that was configured without these packages.
ensure_kubernetes_needs() {  # PRESET
  [[ -n $(missing_packages "$kubernetes_needs") ]] || return 0
  if (ensure_packages "$kubernetes_needs"); then
    rm -f "$(build_folder "$1")/build.ninja"
  else
    say "gRPC could not be had: the device plugin for Kubernetes is not built"
  fi
}

# Only in CI or with CUVMM_CLUSTERS=1, since these packages start their own services. Tests skip and
# report what is missing.
ensure_clusters() {
  [[ -n ${CI:-} || -n ${CUVMM_CLUSTERS:-} ]] || return 0
  (ensure_packages "$cluster_needs") || true
}

# Installs PyTorch's own reader of memory snapshots, only in CI or with CUVMM_VIEWERS=1. It is one
# Python file that needs nothing else of PyTorch. The wheels for macOS are the smallest ones with it.
ensure_viewers() {
  [[ -n ${CI:-} || -n ${CUVMM_VIEWERS:-} ]] || return 0
  local folder=.venv/viewers wheel
  [[ ! -e $folder/_memory_viz.py ]] || return 0
  ensure_venv
  wheel=$(mktemp -d)
  if .venv/bin/python -m pip download --quiet --no-deps --only-binary=:all: --dest "$wheel" \
    --platform macosx_11_0_arm64 --python-version 3.12 torch==2.6.0 >&2; then
    mkdir -p "$folder"
    .venv/bin/python - "$wheel"/torch-*.whl "$folder/_memory_viz.py" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as file:
    file.write(wheel.read("torch/cuda/_memory_viz.py"))
PYTHON
  else
    say "PyTorch's reader of snapshots could not be had: exports are not tested with it"
  fi
  rm -rf "$wheel"
}

# Tests skip and report what is missing.
ensure_runtimes() { ensure_separately runtimes; }
ensure_interposers() { ensure_separately interposers; }

# Installs each line of a list of requirements, without dependencies, into a folder of its own.
ensure_separately() {  # NAME
  local package beside folder
  while read -r package beside; do
    folder=.venv/$1/${package/==/-}
    [[ ! -e $folder/done ]] || continue
    ensure_venv
    say "installing $package into $folder"
    # shellcheck disable=SC2086
    if .venv/bin/python -m pip install --quiet --no-deps --only-binary=:all: --upgrade --target "$folder" \
      "$package" $beside >&2; then
      touch "$folder/done"
    else
      say "$package could not be had: it is not tested with"
    fi
  done < <(grep -v '^#' "requirements-$1.txt")
}

ensure_build_needs() {
  [[ $(uname -sm) =~ ^Linux\ (x86_64|aarch64)$ ]] ||
    die "cuvmm runs on Linux, x86_64 or aarch64; this is $(uname -sm)"
  ensure_packages "$build_needs"
  ensure_compiler
  ensure_cuda_header
  ensure_toml_header
}

ensure_style_needs() { ensure_packages "$style_needs"; }
