# SPDX-License-Identifier: Apache-2.0
# Runs jobs of one rank for each card under cuvmmd: beside a program that keeps a card busy, and two of
# them in turns on memory for one. Then pauses such a job by command. Needs two cards and PyTorch.
source tools/common.sh
if (($(of_visible_cards index | wc -l) < 2)) || ! python3 -c 'import torch' 2>/dev/null; then
  echo "skipped: it needs two cards and PyTorch"
  exit 0
fi
exec python3 -B tools/rank_figures.py build --details "$CUVMM_PART_DETAILS"
