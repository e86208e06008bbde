# SPDX-License-Identifier: Apache-2.0
# Measures what call stacks cost a training step: the same training with a trace, without and with
# --stacks, in turns of a few steps. Exit status 1 if it is more than 2%.
runs=$(mktemp)
trap 'rm -f "$runs"' EXIT
status=0
"${CUVMM_PYTHON:-python3}" -B tests/gpu/run_frameworks.py --modes traced stacks --only torch_async \
  --starts "${CUVMM_STARTS:-5}" --rounds 20 --budget 300 --cuvmm build/bin/cuvmm --json "$runs" || status=1
python3 -B - "$runs" "$CUVMM_PART_DETAILS" <<'PYTHON' || status=1
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    workloads = [one for one in json.load(file)["workloads"] if "stacks_over" in one]
figures = [{"what": f"a step of {one['workload']} with a trace and --stacks, x one with a trace",
            "value": 1 + one["stacks_over"], "unit": "", "goal": "<= 1.02",
            "holds": one["stacks_over"] <= 0.02,
            "quartiles": [1 + over for over in one["stacks_over_quartiles"]],
            "rounds": one["rounds"], "starts": one["starts"]} for one in workloads]
with open(sys.argv[2], "w", encoding="utf-8") as details:
    json.dump({"figures": figures}, details)
sys.exit(not workloads or not all(one["holds"] for one in figures))
PYTHON
exit "$status"
