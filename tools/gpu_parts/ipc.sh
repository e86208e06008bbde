# SPDX-License-Identifier: Apache-2.0
# Memory between processes on the card: the examples, IPC handles by the runtime and by PyTorch
# (natively first, then served), NCCL where two cards are, and what sharing costs. What is not there
# is skipped and said.
status=0
python=${CUVMM_PYTHON:-python3}
check() {  # WHAT COMMAND...
  echo "-- $1"
  "${@:2}" || { echo "failed: $1"; status=1; }
}
served() { build/bin/cuvmm run --mode vmm -- "$@"; }

echo "-- producer and consumer"
build/bin/producer &
producer=$!
sleep 5
build/bin/consumer || status=1
wait "$producer" || status=1

if nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc); then
  program=$(mktemp)
  if "$nvcc" -std=c++17 -O2 -cudart static -o "$program" tests/gpu/ipc_runtime.cu; then
    check "the runtime's IPC calls, natively" "$program"
    check "the runtime's IPC calls, served" served "$program"
  else
    echo "failed: nvcc"; status=1
  fi
  rm -f "$program"
else
  echo "skipped: the runtime's IPC calls: no nvcc"
fi

if "$python" -c 'import torch' 2>/dev/null; then
  check "torch.multiprocessing, natively" "$python" -B tests/gpu/ipc_torch.py tensors
  check "torch.multiprocessing, served" served "$python" -B tests/gpu/ipc_torch.py tensors
  # torch.multiprocessing shares what PyTorch's own cache holds, and refuses natively without it.
  check "tensors without the caching allocator, natively" "$python" -B tests/gpu/ipc_torch.py uncached
  check "tensors without the caching allocator, served" \
    served "$python" -B tests/gpu/ipc_torch.py uncached
  check "NCCL's all-reduce on two cards, natively" "$python" -B tests/gpu/ipc_torch.py all_reduce
  # With chunks of its own, and with memory that it is served: by IPC handles.
  check "NCCL's all-reduce on two cards, served" served "$python" -B tests/gpu/ipc_torch.py all_reduce
  check "NCCL's all-reduce on two cards, served, by IPC handles" \
    served env NCCL_CUMEM_ENABLE=0 "$python" -B tests/gpu/ipc_torch.py all_reduce
else
  echo "skipped: torch.multiprocessing and NCCL: no PyTorch"
fi

check "what sharing costs" build/bin/cuvmm_bench_share --benchmark_out="$CUVMM_PART_DETAILS"
exit "$status"
