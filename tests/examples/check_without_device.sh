#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_without_device.sh BUILD: without a device or a driver, each example ends with one line that
# names the error or the remedy.
set -uo pipefail
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_RUNTIME_DIR=$folder   # the default place of the socket, private to this test
status=0
ends_with_line() {   # LIBRARIES EXAMPLE PATTERN
  local errors
  errors=$(LD_LIBRARY_PATH=$1 VMM_SIM_DEVICES=0 timeout 60 "$build/bin/$2" 2>&1 >/dev/null </dev/null) &&
    { echo "wrong: $2 succeeded"; status=1; }
  [[ $errors =~ ^$2:\ $3$ && $errors != *$'\n'* ]] || { echo "wrong: $2 said '$errors' instead of '$3'"; status=1; }
}

for example in frag_test resize_test take_turns model_server elastic_pool two_models two_clients busy producer consumer; do
  ends_with_line "$build/lib/cuvmm/sim" "$example" \
    'cuInit returned CUDA_ERROR_NO_DEVICE \(no CUDA-capable device is detected\)'
  ldconfig -p | grep -q libcuda.so.1 || ends_with_line "$folder" "$example" 'no CUDA driver .*`cuvmm run --sim.*'
done
exit "$status"
