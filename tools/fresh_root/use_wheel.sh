# SPDX-License-Identifier: Apache-2.0
# In a root with nothing of the build, and without the packages: the wheel in an environment.
fail() { echo "wheel: $*" >&2; exit 1; }
! command -v cuvmm >/dev/null || fail "the package is still installed"
apt-get install -q -y --no-install-recommends python3-venv
python3 -m venv /tmp/environment
/tmp/environment/bin/pip install --no-deps /exchange/cuvmm-*.whl
cd /
cuvmm=/tmp/environment/bin/cuvmm
parts=$(/tmp/environment/bin/python -c 'import cuvmm, os; print(os.path.dirname(cuvmm.__file__))')/_parts
"$cuvmm" --version
"$cuvmm" run --sim=memory=64M --mode vmm -- "$parts/libexec/cuvmm/frag_test"
"$cuvmm" demo --sim --no-pictures -o /tmp/wheel-demo
/tmp/environment/bin/pip uninstall -q -y cuvmm
[[ ! -e $parts ]] || fail "left behind: $parts"
