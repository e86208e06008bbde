# SPDX-License-Identifier: Apache-2.0
# ./dev demo: shows what the driver allows, then what programs gain from it. Uses the card if there
# is one.
if nvidia-smi -L >/dev/null 2>&1; then
  export CUVMM_TEST_DRIVER=libcuda.so.1
  say "on $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1 | sed 's/, /, driver /')"
else
  say "no card here: on the simulated driver"
fi
headline='Headline.*:*/Headline.*'
build/bin/cuvmm_contract_tests --gtest_filter="$headline" --gtest_list_tests | grep -q Headline ||
  die "the contract suite has no headline scenario"
build/bin/cuvmm_contract_tests --gtest_filter="$headline"

# Programs that fail natively and succeed under cuvmm, with pictures of both.
options=(-o demo-output)
[[ -n ${CUVMM_TEST_DRIVER:-} ]] || options+=(--sim)
build/bin/cuvmm demo "${options[@]}"

# Programs that are linked to the library, and need no preload library.
driver_path=()
[[ -n ${CUVMM_TEST_DRIVER:-} ]] || driver_path=("LD_LIBRARY_PATH=$PWD/build/lib/cuvmm/sim")
say "a pool with far more addresses than there is memory:"
env "${driver_path[@]}" build/bin/elastic_pool
say "two models that take turns under one limit:"
env "${driver_path[@]}" build/bin/two_models
say "a pool seen from Python:"
env "${driver_path[@]}" CUVMM_LIBRARY="$PWD/build/lib/libcuvmm.so" python3 -B examples/elastic_pool.py

say "memory of one process in another:"
place=$(mktemp -d)
XDG_RUNTIME_DIR=$place env "${driver_path[@]}" build/bin/producer &
producer=$!
for _ in {1..600}; do [[ -S $place/cuvmm/share ]] && break || sleep 0.05; done
XDG_RUNTIME_DIR=$place env "${driver_path[@]}" build/bin/consumer | sed 's/^/    /'
wait "$producer"
rm -rf "$place"

# A plain program again, which does not know about cuvmm.
simulated=()
[[ -n ${CUVMM_TEST_DRIVER:-} ]] || simulated=(--sim)
say "a program that grows a buffer: a larger one, a copy, a free; natively:"
build/bin/cuvmm run "${simulated[@]}" --mode off -- build/bin/resize_test
say "the same program, served by cuvmm:"
build/bin/cuvmm run "${simulated[@]}" --mode vmm -- build/bin/resize_test
say "and with new memory given on the promise of the old (VMM_RESIZE=elide):"
VMM_RESIZE=elide build/bin/cuvmm run "${simulated[@]}" --mode vmm -- build/bin/resize_test

# Programs compiled by nvcc. Without nvcc, the C++ programs above have shown the same.
if [[ -x build/bin/vector_add ]]; then
  say "a CUDA program, with a kernel:"
  build/bin/cuvmm run "${simulated[@]}" -- build/bin/vector_add
  small=() comb=(--fill 8G)
  [[ -n ${CUVMM_TEST_DRIVER:-} ]] || small=(--sim=memory=64M) comb=()
  say "free memory in pieces, by cudaMalloc; natively:"
  ! build/bin/cuvmm run "${small[@]}" --mode off -- build/bin/frag_test_runtime "${comb[@]}" ||
    die "the driver put the free memory together by itself"
  say "and served by cuvmm:"
  build/bin/cuvmm run "${small[@]}" --mode vmm -- build/bin/frag_test_runtime "${comb[@]}"
  say "a buffer that grows, by cudaMalloc, cudaMemcpy and cudaFree:"
  build/bin/cuvmm run "${simulated[@]}" --mode vmm -- build/bin/resize_test_runtime
else
  say "nvcc is not installed: the examples for the CUDA runtime were not built"
fi

say "two clients of one device, by every policy:"
build/bin/cuvmm run "${simulated[@]}" -- build/bin/two_clients

say "a program that is taken off the card and put back while it works:"
place=$(mktemp -d)
XDG_RUNTIME_DIR=$place build/bin/cuvmm run "${simulated[@]}" --control -- build/bin/take_turns --memory 2 --steps 40 &
program=$!
for _ in {1..600}; do compgen -G "$place/cuvmm/control-*" >/dev/null && break || sleep 0.05; done
XDG_RUNTIME_DIR=$place build/bin/cuvmm top -1
XDG_RUNTIME_DIR=$place build/bin/cuvmm pause --all
XDG_RUNTIME_DIR=$place build/bin/cuvmm top -1
XDG_RUNTIME_DIR=$place build/bin/cuvmm resume --all
wait "$program"
rm -rf "$place"

say "three programs that each need 60% of one card, natively and with a service for the node (simulated):"
tools/demo_node.sh build
say "four servers with more weights together than one card has, requests in turn (simulated):"
tools/demo_servers.py build

say "shown: free memory put together for programs that know nothing of cuvmm; pools with more addresses"
say "than memory; models that share a limit; memory of one process in another; growing without copying;"
say "clients in an order; a program watched, taken off the card and put back; three on one card. Pictures:"
for picture in demo-output/*.png demo-output/*.html; do
  [[ ! -e $picture ]] || say "  $picture"
done
