# SPDX-License-Identifier: Apache-2.0
# The benchmarks on the card: what the core adds to calling the driver directly.
json=$(mktemp -d)
trap 'rm -rf "$json"' EXIT
for program in build/bin/cuvmm_bench_*; do
  name=${program##*/cuvmm_bench_}
  "$program" --benchmark_out="$json/$name" --benchmark_out_format=json
done
{
  separator='{'
  for result in "$json"/*; do
    printf '%s\n"%s": ' "$separator" "${result##*/}"
    cat "$result"
    separator=,
  done
  printf '}\n'
} >"$CUVMM_PART_DETAILS"
