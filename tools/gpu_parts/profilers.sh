# SPDX-License-Identifier: Apache-2.0
# Trains a few steps under PyTorch's profiler, Nsight Compute and Nsight Systems, natively and under
# cuvmm in both modes. The program must print the same, and the profiler must see the same kernels.
# Skips what is missing, and what fails natively.
source tools/tell.sh
status=0
python=${CUVMM_PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: no PyTorch"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CUBLAS_WORKSPACE_CONFIG=:4096:8
train=("$python" -B tests/gpu/profiled_torch.py)

in_all_modes() {  # NAME FUNCTION: calls FUNCTION MODE, which runs with `before`
  local mode result
  for mode in native monitor vmm; do
    echo "-- $1, $mode"
    result=passed
    run_in "$mode"
    if ! "$2" "$mode" >"$folder/$mode" 2>"$folder/errors"; then
      tail -n 5 "$folder/$mode" "$folder/errors"
      result=failed
      [[ $mode != native ]] || { echo "skipped: $1 fails natively"; return 0; }
    elif ! cmp "$folder/native" "$folder/$mode"; then
      diff "$folder/native" "$folder/$mode" | head -n 10 || true
      result=different
    fi
    [[ $result == passed ]] || status=1
    [[ $mode != native ]] || cut -c1-100 "$folder/native"
    tell "$1" "$mode" "$result"
  done
}

by_pytorch() { timeout 90 "${before[@]}" "${train[@]}" profile; }
in_all_modes "PyTorch's profiler" by_pytorch

find_tool() { command -v "$1" || ls /opt/nvidia/nsight-*/*/"$1" /opt/nvidia/nsight-*/*/host/*/"$1" 2>/dev/null | tail -n 1; }

ncu=$(find_tool ncu) || ncu=
if [[ -n $ncu ]]; then
  by_ncu() {  # its log names each kernel that it has measured
    timeout 120 "$ncu" --target-processes all --clock-control none --launch-count 40 \
      --metrics gpu__time_duration.sum --log-file "$folder/ncu" "${before[@]}" "${train[@]}" || return
    echo "kernels measured: $(grep -c 'gpu__time_duration' "$folder/ncu")"
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
