# SPDX-License-Identifier: Apache-2.0
# Measures what call stacks cost a training step: the same training with a trace, without and with
# --stacks, in turns. Exit status 1 if it is more than 2%.
source tools/train.sh
train_in_turns train_var 3 cuvmm-traced cuvmm-stacks
PYTHONPATH=tools python3 -B - "$train_lines" "$CUVMM_PART_DETAILS" <<'PYTHON' || status=1
import json
import statistics
import sys

import train_runs

with open(sys.argv[1], encoding="utf-8") as file:
    runs, _ = train_runs.read(file, "train_var")
traced, stacks = runs["cuvmm-traced"], runs["cuvmm-stacks"]
ratios = [stacks[number].step_ms / traced[number].step_ms for number in stacks if number in traced]
cost = statistics.median(ratios)
print(f"a step with --stacks, x one without: {cost:.3f} ({min(ratios):.3f} to {max(ratios):.3f}) <= 1.02")
with open(sys.argv[2], "w", encoding="utf-8") as details:
    json.dump({"figures": [{"what": "a training step with a trace and --stacks, x one with a trace",
                            "value": cost, "unit": "", "goal": "<= 1.02", "holds": cost <= 1.02,
                            "rounds": ratios}]}, details)
sys.exit(cost > 1.02)
PYTHON
exit "$status"
