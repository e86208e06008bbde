# SPDX-License-Identifier: Apache-2.0
# Fills 16 GiB of the card with blocks by cuMemAllocAsync, frees half of them, and asks for the sum
# as one block, with VMM_COMPACT=all and by default. Every block's contents are checked.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
comb() {  # VMM_COMPACT KIB…
  echo "-- VMM_COMPACT=$1"
  VMM_COMPACT=$1 build/bin/cuvmm run --quiet --log-level error --limit "${CUVMM_COMB:-16G}" -- \
    build/bin/cuvmm_bench_ordered_comb "${@:2}" | tee -a "$log" || status=1
}
comb all 64 100 256 512 1000 1536 3000
comb auto 512 1536
! grep -vE '(^--|, 0 wrong$)' "$log" || status=1
exit "$status"
