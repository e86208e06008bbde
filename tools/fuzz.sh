# SPDX-License-Identifier: Apache-2.0
# ./dev fuzz [SECONDS]: runs libFuzzer on each parser of untrusted bytes for that time, starting
# with the corpus in tests/fuzz. A finding ends it with status 1 and stays in build-fuzz. Needs
# clang.
seconds=${1:-10}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { say "fuzz takes seconds, not '$seconds'"; exit 2; }

# Prints the first clang that has libFuzzer.
fuzzing_clang() {
  local clang folder
  folder=$(mktemp -d)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$folder/trial.cpp"
  for clang in clang++-14 clang++; do
    type -P "$clang" >/dev/null || continue
    "$clang" -fsanitize=fuzzer,address "$folder/trial.cpp" -o "$folder/trial" 2>/dev/null || continue
    echo "$clang"
    break
  done
  rm -r "$folder"
}

clang=$(fuzzing_clang)
if [[ -z $clang ]]; then
  echo "skipped: fuzzing needs a clang with libFuzzer"
  exit 0
fi
ensure_build_needs
[[ -e build-fuzz/build.ninja ]] || CXX=$clang cmake --preset fuzz >&2
cmake --build --preset fuzz -j "$(jobs_here)" >&2

corpora=$(mktemp -d)
trap 'rm -rf "$corpora"' EXIT
mkdir "$corpora/trace_reader"
cp -r tests/fuzz/share_message tests/fuzz/node_message tests/fuzz/pickle "$corpora"
for events in 20 100 700; do
  build-fuzz/bin/cuvmm_make_trace $events "$corpora/trace_reader/$events"
done
fuzz() {  # TARGET LONGEST INPUT
  local report
  report=$(ASAN_OPTIONS=detect_leaks=1 "build-fuzz/bin/cuvmm_fuzz_$1" -max_len="$2" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix=build-fuzz/ "$corpora/$1" 2>&1) ||
    { echo "$report"; die "fuzzing $1 has found something: the input lies in build-fuzz"; }
  echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' <<<"$report") inputs, nothing found"
}
fuzz share_message 2200
fuzz node_message 4200
fuzz pickle 8192
fuzz trace_reader 65536
