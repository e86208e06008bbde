# SPDX-License-Identifier: Apache-2.0
# In a root with nothing of the build: apt installs the packages with what they depend on, and what
# they contain runs on the simulated card. Then they are removed.
fail() { echo "packages: $*" >&2; exit 1; }
! command -v g++ >/dev/null || fail "this root is not fresh: it has a compiler"
apt-get update -q
apt-get install -q -y --no-install-recommends /exchange/cuvmm_*.deb /exchange/libcuvmm-dev_*.deb
cuvmm --version
cuvmm run --sim=memory=64M --mode vmm -- /usr/libexec/cuvmm/frag_test
! cuvmm run --sim=memory=64M --mode off -- /usr/libexec/cuvmm/frag_test ||
  fail "the simulated driver put free memory together by itself: frag_test shows nothing"
cuvmm run --sim --trace /tmp/run.trace -- /usr/libexec/cuvmm/resize_test
cuvmm stats /tmp/run.trace | grep -q . || fail "no summary of the trace"
cuvmm demo --sim --no-pictures -o /tmp/demo
apt-get install -q -y --no-install-recommends python3
python3 -c 'import cuvmm; print(cuvmm.__version__)'
apt-get remove -q -y libcuvmm-dev cuvmm
[[ ! -e /usr/bin/cuvmm ]] || fail "cuvmm is still there after its removal"
