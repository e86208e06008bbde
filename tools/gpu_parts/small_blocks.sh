# SPDX-License-Identifier: Apache-2.0
# Small blocks natively, with VMM_COMPACT=off and with all, which lays them out in stripes: three
# rounds in turns, each with the time of an allocation and the speed of a kernel that reads them.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
sizes=(64 100 256 1000)
for round in 1 2 3; do
  for way in native off all; do
    echo "-- $way, round $round"
    run=(build/bin/cuvmm run --quiet --mode vmm --log-level error --)
    [[ $way != native ]] || run=()
    VMM_COMPACT=${way/native/off} "${run[@]}" build/bin/cuvmm_bench_small_blocks \
      "${CUVMM_SMALL_BLOCKS:-8192}" "${sizes[@]}"
  done
done | tee "$log"
python3 - "$log" "$CUVMM_PART_DETAILS" <<'PYTHON'
import json
import re
import statistics
import sys

runs = {}
for line in open(sys.argv[1], encoding="utf-8"):
    if line.startswith("--"):
        way = re.match(r"-- (\w+)", line).group(1)
        continue
    numbers = re.findall(r"[0-9.]+", line)
    runs.setdefault((way, int(numbers[0])), []).append([float(word) for word in numbers[1:]])
ratios = {}
for (way, size), rounds in runs.items():
    for other in {"native": [], "off": ["native"], "all": ["native", "off"]}[way]:
        for index, name in enumerate(("first", "again", "read")):
            of = statistics.median(one[index] for one in rounds)
            to = statistics.median(one[index] for one in runs[other, size])
            ratios[f"{size}_kib_{name}_{way}_to_{other}"] = round(of / to, 3)
for name, ratio in ratios.items():
    print(f"{name}: {ratio}")
with open(sys.argv[2], "w", encoding="utf-8") as details:
    json.dump(ratios, details, indent=1)
PYTHON
