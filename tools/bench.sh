# SPDX-License-Identifier: Apache-2.0
# ./dev bench: runs every benchmark program, and records its output, also as JSON, under the
# machine's name.
results=bench/results/$(machine_here)
mkdir -p "$results"
shopt -s nullglob
programs=(build/bin/cuvmm_bench_*)
((${#programs[@]} > 0)) || die "there are no benchmarks in build/bin"
for program in "${programs[@]}"; do
  name=${program##*/cuvmm_bench_}
  run=()
  [[ $name == ordered_comb || $name == small_blocks ]] && continue
  # These are plain programs over the driver. Without a driver, they run over the simulated one.
  if [[ $name =~ ^(calls|streams|placement|resize|share)$ ]] && ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    run=(build/bin/cuvmm run --sim --mode off --)
  fi
  echo "== $name"
  "${run[@]}" "$program" --benchmark_out="$results/$name.json" --benchmark_out_format=json \
    --benchmark_context=commit="$(commit_built)" --benchmark_context=machine="$(machine_here)" 2>&1 |
    tee "$results/$name.txt"
done
of_the_node() {  # SCRIPT ARGUMENT…
  echo "== $1"
  {
    echo "commit $(commit_built)"
    echo "machine $(machine_here)"
    python3 -B "bench/$1.py" build "${@:2}" --json "$results/$1.json"
  } 2>&1 | tee "$results/$1.txt"
}
echo "== ordered_comb"
simulated=()
ldconfig -p | grep -q 'libcuda\.so\.1' || simulated=(--sim)
{
  echo "commit $(commit_built)"
  echo "machine $(machine_here)"
  VMM_COMPACT=all build/bin/cuvmm run "${simulated[@]}" --log-level error --limit 2G -- build/bin/cuvmm_bench_ordered_comb
} 2>&1 | tee "$results/ordered_comb.txt"
of_the_node node --kills 0
of_the_node page
echo "results in $results"
