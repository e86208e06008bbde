# SPDX-License-Identifier: Apache-2.0
# What the tests of wheels share (sourced): sets `root`, `python`, and `trial`, a folder that is removed at the end. Ends
# the test if the Python cannot build wheels.
root=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..")
# ./dev puts setuptools and wheel into .venv.
python=${CUVMM_PYTHON:-$root/.venv/bin/python}
[[ -x $python ]] || python=python3
"$python" -c 'import setuptools, wheel, pip' 2>/dev/null ||
  { echo "skipped: wheel: no setuptools, wheel and pip in $python"; exit 0; }
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT

# Makes the wheel of $trial/source, a copy, since setuptools writes beside its sources, and installs it into a fresh
# environment. Sets `wheel`, and the environment's Python and its packages as `own` and `site`.
install_wheel() {  # BUILD NAME
  CUVMM_BUILD_DIR=$1 "$python" -m pip wheel --quiet --no-build-isolation --no-deps --no-index \
    -w "$trial/made" "$trial/source" >"$trial/pip.log" 2>&1 || { cat "$trial/pip.log"; fail "it was not built"; }
  wheel=$(find "$trial/made" -name "$2-*-py3-none-linux_$(uname -m).whl")
  [[ -n $wheel ]] || fail "made: $(ls "$trial/made")"
  "$python" -m venv --without-pip "$trial/a place"
  own="$trial/a place/bin/python"
  site=$("$own" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$python" -m pip install --quiet --no-deps --no-index --target "$site" "$wheel"
}
