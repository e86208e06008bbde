# SPDX-License-Identifier: Apache-2.0
# Shares memory between processes on the card: the examples, IPC handles from the runtime and from
# PyTorch, NCCL with two cards; natively and under cuvmm in both modes. Then measures the cost of
# sharing. Skips and reports what is missing.
source tools/tell.sh
status=0
python=${CUVMM_PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Both print addresses and descriptors, which differ between runs. Each fails if contents are wrong.
for mode in native monitor vmm; do
  echo "-- producer and consumer, $mode"
  result=passed
  run_in "$mode"
  "${before[@]}" timeout 60 build/bin/producer &
  producer=$!
  sleep 5
  "${before[@]}" build/bin/consumer || result=failed status=1
  wait "$producer" || result=failed status=1
  tell "producer and consumer" "$mode" "$result"
done

if nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc); then
  if "$nvcc" -std=c++17 -O2 -cudart static -o "$folder/ipc_runtime" tests/gpu/ipc_runtime.cu; then
    in_all_modes "the runtime's IPC calls" in_mode "$folder/ipc_runtime"
  else
    echo "failed: nvcc"; status=1
  fi
else
  echo "skipped: the runtime's IPC calls: no nvcc"
fi

if "$python" -c 'import torch' 2>/dev/null; then
  torch=("$python" -B tests/gpu/ipc_torch.py)
  in_all_modes "torch.multiprocessing" in_mode "${torch[@]}" tensors
  # torch.multiprocessing shares memory of PyTorch's own cache; natively, it refuses without the
  # cache.
  in_all_modes "tensors without the caching allocator" in_mode "${torch[@]}" uncached
  # NCCL with its own chunks, and with served memory through IPC handles.
  in_all_modes "NCCL's all-reduce on two cards" in_mode "${torch[@]}" all_reduce
  in_all_modes "NCCL's all-reduce on two cards, by IPC handles" in_mode env NCCL_CUMEM_ENABLE=0 "${torch[@]}" all_reduce
  in_all_modes "NCCL's user buffers, symmetric windows and graphs; PyTorch's symmetric memory" \
    in_mode "$python" -B tests/gpu/nccl_memory.py
else
  echo "skipped: torch.multiprocessing and NCCL: no PyTorch"
fi

echo "-- what sharing costs"
build/bin/cuvmm_bench_share --benchmark_out="$folder/costs" || { echo "failed: what sharing costs"; status=1; }
all_told >"$folder/programs"
python3 - "$folder" "$CUVMM_PART_DETAILS" <<'PYTHON'
import json
import pathlib
import sys

folder, details = map(pathlib.Path, sys.argv[1:])
costs = folder / "costs"
result = json.loads(costs.read_text()) if costs.exists() else {"benchmarks": []}
result["programs"] = json.loads((folder / "programs").read_text())
details.write_text(json.dumps(result, indent=1))
PYTHON
exit "$status"
