#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_ray.sh BUILD ROOT: a local Ray on a simulated card, or the reason why it cannot run.
set -euo pipefail
build=$1 root=$2
skip() { echo "skipped: ray: $*"; exit 0; }
python=$root/.venv/bin/python
"$python" -c 'import ray, ray.serve' 2>/dev/null ||
  skip "the packages of requirements-ray.txt are not in .venv"
exec "$python" -B "$root/tests/ray/check_ray.py" "$build" "$root"
