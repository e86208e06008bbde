# SPDX-License-Identifier: Apache-2.0
# Combs of blocks on the card, natively and served, by the driver's calls and by the runtime's.
# Natively small blocks must fail, or the comb would show nothing; served all must succeed.
programs=(build/bin/frag_test)
[[ -x build/bin/frag_test_runtime ]] && programs+=(build/bin/frag_test_runtime)
status=0
for program in "${programs[@]}"; do
  for block in 64K 256K 512K 1M; do
    echo "-- $(basename "$program") --block $block --fill 8G, natively"
    "$program" --block "$block" --fill 8G && { echo "the driver copes: nothing is shown"; status=1; }
    echo "-- $(basename "$program") --block $block --fill 8G, served"
    build/bin/cuvmm run --mode vmm -- "$program" --block "$block" --fill 8G || status=1
  done
done
exit "$status"
