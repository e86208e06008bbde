# SPDX-License-Identifier: Apache-2.0
# Grows a buffer on the card: natively, with VMM_RESIZE=auto and with VMM_RESIZE=elide. First
# runs the examples, with the driver's calls and the runtime's: each must succeed, and served ones
# must copy less. Then measures three rounds, in turns, and reports the median.
programs=(build/bin/resize_test)
[[ -x build/bin/resize_test_runtime ]] && programs+=(build/bin/resize_test_runtime)
status=0
copied() { sed -n 's/^asked to copy .* MiB, copied \([0-9.]*\) MiB$/\1/p' <<<"$1"; }
for program in "${programs[@]}"; do
  name=$(basename "$program")
  echo "-- $name, natively"
  natively=$("$program") || status=1
  echo "$natively"
  for how in auto elide; do
    echo "-- $name, VMM_RESIZE=$how"
    served=$(VMM_RESIZE=$how build/bin/cuvmm run --mode vmm -- "$program") || status=1
    echo "$served"
    awk -v served="$(copied "$served")" -v natively="$(copied "$natively")" \
      'BEGIN { exit !(served != "" && served + 0 < natively / 4) }' ||
      { echo "$name copies as much as natively"; status=1; }
  done
done

bench=build/bin/cuvmm_bench_resize
if [[ -x $bench ]]; then
  json=$(mktemp -d)
  trap 'rm -rf "$json"' EXIT
  for round in 1 2 3; do
    for how in native auto elide; do
      echo "-- cuvmm_bench_resize, $how, round $round"
      run=(build/bin/cuvmm run --mode vmm --)
      [[ $how == native ]] && run=(env)
      VMM_RESIZE=${how/native/off} "${run[@]}" "$bench" --benchmark_out="$json/$how.$round" \
        --benchmark_out_format=json || status=1
    done
  done
  python3 - "$json" "$CUVMM_PART_DETAILS" <<'PYTHON' || status=1
import json
import pathlib
import statistics
import sys

folder, details = map(pathlib.Path, sys.argv[1:])
ways = ("native", "auto", "elide")


def median_of(rounds):
    """The benchmark with the middle time, and each of its counters' medians."""
    ordered = sorted(rounds, key=lambda one: one["real_time"])
    middle = dict(ordered[len(ordered) // 2])
    for key in ("median_us", "bare_us", "over_bare", "granted", "ratio", "direct_us"):
        if key in middle:
            middle[key] = statistics.median(one[key] for one in rounds)
    return middle


result = {}
for way in ways:
    rounds = [json.loads(file.read_text())["benchmarks"] for file in sorted(folder.glob(f"{way}.*"))]
    result[way] = {"benchmarks": [median_of(same) for same in zip(*rounds, strict=True)]}
times = {way: [one.get("median_us", one["real_time"]) for one in result[way]["benchmarks"]] for way in ways}
for way in ways:
    for one, native, this in zip(result[way]["benchmarks"], times["native"], times[way], strict=True):
        one["name"] = f"{way} {one['name']}"
        one["native_over_this"] = native / this
details.write_text(json.dumps(result, indent=1))
PYTHON
fi
exit "$status"
