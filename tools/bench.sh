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
  [[ $name == full_device || $name == ordered_comb || $name == small_blocks ]] && continue
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
echo "== full_device"
full() {  # OPTION… -- WORD…: of `cuvmm run`, and five of the program
  echo "-- $*"
  VMM_SIM_MEMORY=80G VMM_SIM_BACKING=none build/bin/cuvmm run "${simulated[@]}" --log-level error "${@:1:$#-6}" -- \
    build/bin/cuvmm_bench_full_device "${@:$#-4}"
}
{
  echo "commit $(commit_built)"
  echo "machine $(machine_here)"
  full --limit 4G -- ordered 4096 20 65536 3000
  full --limit 16G -- ordered 16384 20 65536 3000
  full --limit 2G -- blocking 2048 20 65536 2000
  full --limit 16G -- blocking 16384 20 65536 2000
  full --limit 8G -- blocking 8192 64 1024 3000
  full --limit 8G --spill host:64G -- ordered 10240 2048 262144 1500
  full --limit 32G --spill host:64G -- ordered 40960 2048 262144 1500
  full --limit 8G --spill host:64G -- blocking 10240 64 1024 3000
} 2>&1 | tee "$results/full_device.txt"
of_the_node node --kills 0
of_the_node page
echo "results in $results"
