#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_kubelet.sh BUILD ROOT: the device plugin against the test's own kubelet, or the reason why
# it cannot run.
set -euo pipefail
build=$1 root=$2
skip() { echo "skipped: kubelet: $*"; exit 0; }
[[ -x $build/bin/cuvmm-device-plugin ]] ||
  skip "the device plugin is not built: libgrpc++-dev, libprotobuf-dev or protobuf-compiler-grpc was missing"
python=$root/.venv/bin/python
"$python" -c 'import grpc, google.protobuf, kubernetes_validate' 2>/dev/null ||
  skip "the packages of requirements-kubelet.txt are not in .venv"
"$python" -B "$root/tests/kubernetes/check_manifests.py" "$build" "$root"
exec "$python" -B "$root/tests/kubernetes/check_kubelet.py" "$build" "$root"
