# SPDX-License-Identifier: Apache-2.0
# Pauses a PyTorch program with 8 GiB, of memory that cuvmm serves and of expandable segments, which
# the program maps itself; takes it off the card; and compares both with the driver's own checkpoint.
# Then opens 1 GiB of expandable segments in another process by its IPC handle, and of chunks that
# were created without a handle type.
status=0
python=${CUVMM_PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: no PyTorch"; exit 0; }
"$python" -B tools/deep_pause_figures.py build --details "$CUVMM_PART_DETAILS" || status=1
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True build/bin/cuvmm run --quiet -- \
  "$python" -B tests/gpu/ipc_expandable.py || { echo "failed: an IPC handle of virtual memory"; status=1; }
exit "$status"
