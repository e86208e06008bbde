# SPDX-License-Identifier: Apache-2.0
# Measures a spilled block that a program uses constantly: its speed at first, and once cuvmm has
# migrated it back, with VMM_SPILL_MOVE and without.
json=$(mktemp -d)
trap 'rm -rf "$json"' EXIT
for move in on off; do
  VMM_SPILL_MOVE=$move build/bin/cuvmm run --mode vmm --limit 8G --spill host:16G -- \
    build/bin/cuvmm_bench_placement --benchmark_out="$json/$move" --benchmark_out_format=json
done
python3 - "$json" "$CUVMM_PART_DETAILS" <<'PYTHON'
import json
import pathlib
import sys

folder, details = map(pathlib.Path, sys.argv[1:])
result = {}
for move in ("on", "off"):
    one = json.loads((folder / move).read_text())["benchmarks"][0]
    for name in ("first_gb_s", "settled_gb_s"):
        result[f"move_{move}_{name}"] = round(one[name], 1)
details.write_text(json.dumps(result, indent=1))
sys.exit(0 if result["move_on_settled_gb_s"] > 2 * result["move_off_settled_gb_s"] else 1)
PYTHON
