#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_sim_wheel.sh BUILD: the wheel with the simulated driver alone, installed into its own environment, runs a
# program on a machine without a driver.
set -euo pipefail
build=$(readlink -f "$1")
source "$(dirname "${BASH_SOURCE[0]}")/wheel_support.sh"
fail() { echo "sim wheel: $*" >&2; exit 1; }

cp -r "$root/python/sim" "$trial/source"
install_wheel "$build" cuvmm_sim

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$root/python/cuvmm/_version.py")
sim=("$own" -m cuvmm_sim)
cd /
[[ $("${sim[@]}" --version) == "cuvmm-sim $version" ]] || fail "it is not of version $version"
cat >"$trial/program.py" <<'PYTHON'
import ctypes
cuda, count, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_uint64()
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
answers = [cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)) for _ in range(2)]
print(count.value, *answers)
PYTHON
out_of_memory=2
fault=fault=cuMemAlloc:2=CUDA_ERROR_OUT_OF_MEMORY
[[ $("${sim[@]}" devices=3 -- "$own" "$trial/program.py") == "3 0 0" ]] || fail "the program failed"
[[ $("${sim[@]}" "devices=2,$fault" -- "$own" "$trial/program.py") == "2 0 $out_of_memory" ]] ||
  fail "the second allocation did not fail"
[[ $("$own" -c 'import cuvmm_sim; print(cuvmm_sim.env({"A": "B"}, devices=2)["VMM_SIM_DEVICES"])') == 2 ]] ||
  fail "env() does not work"
options=$(sed -n 's/^CUVMM_OPTION(\([a-z_]*\),.*/\1/p' "$root/src/base/sim_options.def")
[[ -n $options && $("$own" -c 'import cuvmm_sim; print(*cuvmm_sim.SETTINGS, sep="\n")') == "$options" ]] ||
  fail "its settings are not those of the driver"
status_of() { "$@" >/dev/null 2>&1 && echo 0 || echo $?; }
[[ $(status_of "${sim[@]}" -- sh -c 'exit 7') == 7 ]] || fail "the status is not the command's"
[[ $(status_of "${sim[@]}" nonsense -- true) == 2 ]] || fail "nonsense was taken as settings"
[[ $(status_of "${sim[@]}" -- /nonexistent) == 127 ]] || fail "a missing command gave another status"
echo "the wheel of the simulated driver works: $(du -h "$wheel" | cut -f1)"
