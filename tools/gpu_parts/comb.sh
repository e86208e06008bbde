# SPDX-License-Identifier: Apache-2.0
# Fills 16 GiB of the card with blocks by cuMemAllocAsync, frees half of them and asks for the sum as
# one block: with VMM_COMPACT=all, by default, and from the driver alone. Every block's contents are
# checked.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
for compact in all auto; do
  echo "-- VMM_COMPACT=$compact"
  VMM_COMPACT=$compact build/bin/cuvmm run --quiet --log-level error --limit "${CUVMM_COMB:-16G}" -- \
    build/bin/cuvmm_bench_ordered_comb | tee -a "$log" || status=1
done
! grep -vE '(^--|, 0 wrong$)' "$log" || status=1
exit "$status"
