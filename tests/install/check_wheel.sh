#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_wheel.sh BUILD: a wheel of the build, installed into its own environment; its command line,
# env() and plot data work wherever it lies.
set -euo pipefail
build=$(readlink -f "$1")
source "$(dirname "${BASH_SOURCE[0]}")/wheel_support.sh"
fail() { echo "wheel: $*" >&2; exit 1; }

mkdir "$trial/source"
cp -r "$root/python" "$root/pyproject.toml" "$root/setup.py" "$root/README.md" "$trial/source/"
cd "$trial"
install_wheel "$build" cuvmm
# pip does not keep the executable bit of a wheel that it did not install itself.
[[ -x $site/cuvmm/_parts/bin/cuvmm ]] || fail "the program cannot be executed"

unset CUVMM_PYTHON CUVMM_LIBRARY
cd /
[[ $("$own" -m cuvmm --version) == cuvmm\ * ]] || fail "python -m cuvmm does not answer"
"$own" -m cuvmm run --sim=memory=64M --quiet --trace "$trial/run.trace" -- \
  "$site/cuvmm/_parts/libexec/cuvmm/frag_test" >/dev/null 2>&1 || fail "frag_test failed under it"
"$own" -m cuvmm plot "$trial/run.trace" -o "$trial/run.json" || fail "no data for a picture"
"$own" -m cuvmm demo --sim --no-pictures -o "$trial/demo" >/dev/null 2>&1 || fail "the demo failed"
for engine in own preloaded; do
  under=()
  [[ $engine == own ]] || under=("$own" -m cuvmm run --sim --quiet --)
  LD_LIBRARY_PATH="$site/cuvmm/_parts/lib/cuvmm/sim" CUVMM_TEST_ENGINE=$engine \
    "${under[@]}" "$own" "$root/tests/install/use_package.py" "$site" || fail "import cuvmm failed"
done
"$own" - "$trial" <<'PYTHON' || fail "env() or the library does not work"
import os, subprocess, sys
import cuvmm
trace = os.path.join(sys.argv[1], "by env.trace")
program = os.path.join(os.path.dirname(cuvmm.__file__), "_parts", "libexec", "cuvmm", "frag_test")
environment = cuvmm.env(sim=True, mode="vmm", trace_file=trace, frameworks=True)
assert environment["PYTORCH_ALLOC_CONF"] == "backend:cudaMallocAsync"
assert "LD_PRELOAD" not in os.environ
environment["VMM_SIM_MEMORY"] = "64M"
subprocess.run([program], env=environment, check=True, stdout=subprocess.DEVNULL,
               stderr=subprocess.DEVNULL)
assert os.path.getsize(trace) > 10_000
kept = cuvmm.env({"LD_PRELOAD": "/other.so", "PYTORCH_CUDA_ALLOC_CONF": "x"}, frameworks=True)
assert kept["LD_PRELOAD"].startswith("/other.so:") and "PYTORCH_ALLOC_CONF" not in kept
try:
    cuvmm.env(lmit="1G")
except TypeError as error:
    assert "lmit" in str(error)
else:
    sys.exit("an option that there is not was taken")
PYTHON
echo "the wheel works: $(du -h "$wheel" | cut -f1)"
