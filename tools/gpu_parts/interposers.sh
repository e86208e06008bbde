# SPDX-License-Identifier: Apache-2.0
# Runs torch_memory_saver, comfy-aimdo and the calls of kvcached natively and under cuvmm: before and
# after it, spilled, and paused. Needs what ./dev test installs into .venv/interposers.
python3 -B tests/interposers/check_interposers.py --cuvmm build/bin/cuvmm -v
