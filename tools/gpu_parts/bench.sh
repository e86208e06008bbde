# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks on the card, which compare the core with direct driver calls, except those that
# other parts run, and full_device, which needs arguments (./dev bench).
status=0
json=$(mktemp -d)
trap 'rm -rf "$json"' EXIT
for program in build/bin/cuvmm_bench_*; do
  name=${program##*/cuvmm_bench_}
  [[ $name != full_device ]] || continue
  ! grep -qw "cuvmm_bench_$name" tools/gpu_parts/*.sh || continue
  "$program" --benchmark_out="$json/$name" --benchmark_out_format=json || {
    echo "failed: $name"
    rm -f "$json/$name"
    status=1
  }
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
exit "$status"
