# SPDX-License-Identifier: Apache-2.0
# Two programs on one card by cuvmmd's policies of device time, beside what the driver does alone:
# a foreground that asks every 10 ms beside one that is always busy, shares by weight with kernels and
# with graphs, a cap, and one program alone under the service. Ends with 1 where a program fails or a
# share is missed.
exec "${CUVMM_PYTHON:-python3}" -B tools/time_figures.py build --details "$CUVMM_PART_DETAILS"
