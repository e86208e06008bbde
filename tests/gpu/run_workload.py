# SPDX-License-Identifier: Apache-2.0
"""Runs workloads in this process, and prints one line of JSON for each: run_workload.py NAME...

Each line of standard input starts a round (workloads/common.py): `yes | head | run_workload.py driver`.
"""
import importlib
import json
import pathlib
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def outcome_of(name):
    try:
        result = importlib.import_module(f"workloads.{name}").run()
    except ImportError as error:
        return {"workload": name, "missing": str(error)}
    except Exception as error:  # the next workload may succeed
        traceback.print_exc()
        return {"workload": name, "error": f"{type(error).__name__}: {error}"[:400]}
    return {
        "workload": name,
        "version": result.version,
        "hash": result.hash,
        "rounds_ms": result.rounds_ms,
    }


for one in sys.argv[1:]:
    print("RESULT " + json.dumps(outcome_of(one)), flush=True)
