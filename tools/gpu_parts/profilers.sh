# SPDX-License-Identifier: Apache-2.0
# Trains a few steps under PyTorch's profiler, Nsight Compute and Nsight Systems, natively and under
# cuvmm in both modes. The program must print the same, and the profiler must see the same kernels.
# Skips what is missing.
source tools/tell.sh
status=0
python=${CUVMM_PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: no PyTorch"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CUBLAS_WORKSPACE_CONFIG=:4096:8
train=("$python" -B tests/gpu/profiled_torch.py)

by_pytorch() { timeout 90 "${before[@]}" "${train[@]}" profile; }
in_all_modes "PyTorch's profiler" by_pytorch

find_tool() { command -v "$1" || ls /opt/nvidia/nsight-*/*/"$1" /opt/nvidia/nsight-*/*/host/*/"$1" 2>/dev/null | tail -n 1; }

ncu=$(find_tool ncu) || ncu=
if [[ -n $ncu ]]; then
  # Its log has a heading for each kernel: name, grid and block, then numbers that differ between runs.
  by_ncu() {
    timeout 120 "$ncu" --target-processes all --clock-control none --launch-count 40 \
      --metrics gpu__time_duration.sum --log-file "$folder/ncu" "${before[@]}" "${train[@]}" || return
    sed -nE 's/^ *(.*), Context [0-9]+, Stream .*/measured: \1/p' "$folder/ncu" | grep .
  }
  in_all_modes "Nsight Compute" by_ncu
else
  echo "skipped: Nsight Compute is not here"
fi

nsys=$(find_tool nsys) || nsys=
if [[ -n $nsys ]]; then
  # Drops its own output, which names files and times. Where it cannot make a report, the program has
  # still run under its injection.
  by_nsys() {
    timeout 120 "$nsys" profile --trace cuda,nvtx --sample none --cpuctxsw none --force-overwrite true \
      --output "$folder/nsys" "${before[@]}" "${train[@]}" >"$folder/said" 2>&1 || true
    ls "$folder"/nsys.* >/dev/null && grep '^weights' "$folder/said"
  }
  in_all_modes "Nsight Systems" by_nsys
else
  echo "skipped: Nsight Systems is not here"
fi

all_told >"$CUVMM_PART_DETAILS"
exit "$status"
