# SPDX-License-Identifier: Apache-2.0
# Runs two programs on one card under cuvmmd's policies for device time, and with the driver alone:
# a foreground program that asks every 10 ms beside one that is always busy, shares by weight with
# kernels and with graphs, a cap, and one program alone under the service. Exit status 1 if a
# program fails or a share is missed.
exec "${CUVMM_PYTHON:-python3}" -B tools/time_figures.py build --details "$CUVMM_PART_DETAILS"
