# SPDX-License-Identifier: Apache-2.0
"""Summaries of bench/results: where the parts ran, what cuvmm costs, and which goals were missed."""
import json
import re
import statistics

from result_tables import number, ratios, table

# How README.md names the frameworks, and in which order.
FRAMEWORKS = {"torch": "PyTorch", "transformers": "transformers", "triton": "Triton", "cupy": "CuPy", "jax": "JAX"}
# What README.md says was run, and the parts that ran it.
AREAS = (
    ("the contract suite, directly and under cuvmm", ("contract", "served")),
    ("{frameworks}", ("frameworks", "frameworks_more", "frameworks_transformers")),
    ("every pair of use, memory manager and setting of cuvmm", ("matrix",)),
    ("CUDA runtime programs, also with memcheck", ("runtime", "memcheck")),
    ("torch_memory_saver, comfy-aimdo and the calls of kvcached, beside cuvmm", ("interposers",)),
    ("PyTorch's profiler and Nsight Compute, over cuvmm", ("profilers",)),
    ("random programs: stream order; eight threads for minutes", ("order", "endurance")),
    ("fragmented memory as one block", ("frag_test", "comb")),
    ("small blocks laid out for compaction", ("small_blocks",)),
    ("training in less memory", ("workloads", "workloads_var", "floor", "floor_var")),
    ("spilling to the host, or to the other card", ("spill", "spill_var", "spill_offload", "spill_peer", "placement")),
    ("pause and resume; off the card with all contexts", ("pause", "deep_pause")),
    ("growing buffers without copies", ("resize",)),
    ("pools of models", ("pools",)),
    ("IPC handles, torch.multiprocessing; on two cards also NCCL", ("ipc",)),
    ("programs that lease memory from `cuvmmd`; on two cards, jobs whose ranks wait for each other", ("node", "ranks")),
    ("call stacks of allocations", ("stacks",)),
    ("device time: clients of a process; between processes", ("schedule", "gputime")),
)
MODES = ("monitor", "vmm")


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def parts_of(machine):
    """Returns the results of the parts that ran on this machine's cards, by name."""
    parts = {file.stem: read(file) for file in sorted(machine.glob("*.json"))}
    return {name: part for name, part in parts.items() if "part" in part}


def workloads_of(part):
    return [one for one in part["details"]["workloads"] if "native_ms" in one]


def missed_figures(part):
    """The figures that a part itself compared with their goals and that missed them."""
    details = part.get("details")
    figures = details.get("figures", []) if isinstance(details, dict) else []
    missed, before = [], ""
    for one in (one for one in figures if isinstance(one, dict)):
        if one.get("holds") is False:
            missed.append({**one, "what": one["what"].replace("the same", before)})
        before = one["what"].partition(",")[0]
    return missed


def outcome(parts):
    if not parts:
        return ""
    failed = [part for part in parts if part["result"] != "passed"]
    if all(missed_figures(part) for part in failed):
        return "[goals missed](docs/measured.md#goals)" if failed else "passed"
    return "**failed**"


def frameworks_of(machines):
    """Returns the names and versions of all frameworks, such as "PyTorch 2.11.0+cu130"."""
    versions = {one["version"] for parts in machines for _, part in parts for one in
                (workloads_of(part) if part["part"].startswith("frameworks") else [])}
    return ", ".join(f"{name} {version.partition(' ')[2]}" for package, name in FRAMEWORKS.items()
                     for version in sorted(versions) if version.startswith(package + " "))


def machines_of(results):
    """Returns a list of all parts for each machine. `CARD-one-of-N` has parts that ran on a card of CARD's
    model in a machine with several, where mapping takes longer: another folder, but the same column."""
    machines = {}
    for path in sorted(path for path in results.iterdir() if path.is_dir()):
        if parts := parts_of(path):
            machines.setdefault(path.name.partition("-one-of-")[0], []).extend(parts.items())
    return list(machines.values())


def where_it_ran(results):
    machines = machines_of(results)
    cards, drivers = [], []
    for parts in machines:
        cards.append(parts[0][1]["card"].partition(", one of ")[0].replace(" x ", " × "))
        drivers.append(", ".join(sorted({part["driver"] for _, part in parts})))
    known = {name for _, names in AREAS for name in names}
    rows = [["driver", *drivers]]
    for what, names in (*AREAS, *((name, (name,)) for parts in machines for name, _ in parts
                                  if name not in known and name not in ("bench", "calls", "streams"))):
        cells = [outcome([part for name, part in parts if name in names]) for parts in machines]
        if any(cells):
            rows.append([what.format(frameworks=frameworks_of(machines)), *cells])
    return table(["", *cards], rows)


def change(one, mode):
    """The median of the rounds and their quartiles."""
    rounds = ratios(one, mode)
    shown = f"{statistics.median(rounds):+.1%}"
    if len(rounds) < 2:
        return shown
    lower, _, upper = statistics.quantiles(rounds, n=4)
    return f"{shown} ({lower:+.1%} to {upper:+.1%})"


def natively(one):
    """The median of the rounds and, since it shows how much the machine itself varies, their quartiles."""
    rounds = one["native_ms_of_rounds"]
    shown = f"{one['native_ms']:.3g} ms"
    if len(rounds) < 2:
        return shown
    lower, _, upper = statistics.quantiles(rounds, n=4)
    return f"{shown} ({lower:.3g} to {upper:.3g})"


def repeats(one):
    """The starts and their rounds; one start says little, since processes differ."""
    return one.get("starts", 1), one["rounds"]


def costs(results):
    """A row for each program of the frameworks' parts on each card, from the worst median under `vmm` to
    the best."""
    measured = {}
    for file in sorted(results.glob("*/frameworks*.json")):
        part = read(file)
        card = re.search(r"NVIDIA (\w+)", part["card"]).group(1)
        for one in workloads_of(part):
            if all(f"{mode}_ms_of_rounds" in one for mode in MODES):
                kept = measured.get((one["workload"], card))
                if not kept or repeats(one) > repeats(kept):
                    measured[one["workload"], card] = one
    by_cost = sorted(measured.items(), key=lambda found: -statistics.median(ratios(found[1], "vmm")))
    rows = [[name, card, natively(one), *(change(one, mode) for mode in reversed(MODES)),
             one["rounds"], repeats(one)[0]] for (name, card), one in by_cost]
    return table(["A step of", "Card", "Natively", "Under cuvmm", "`--mode monitor`", "Rounds", "Starts"], rows)


def missed_by_parts(results):
    rows = []
    for file in sorted(results.glob("*/*.json")):
        for one in missed_figures(read(file)):
            unit, value = one.get("unit", ""), one["value"]
            # As for other goals, so that a ratio just beyond its goal differs from it.
            shown = f"{value:.3f}" if not unit and 0.5 < value < 2 else number(value)
            measured = f"{shown} {unit}".strip()
            goal = one["goal"].replace("<=", "≤").replace(">=", "≥")
            rows.append((one["what"], goal, measured, f"`{file.relative_to(results)}`"))
    return rows


def grouped_results(rows):
    """One row for all programs of a machine with the same outcome. `rows` are same_results.rows_of()."""
    groups = {}
    for program, compared, *outcomes, source in rows:
        machine = source.strip("`").partition("/")[0]
        name = re.sub(rf", (driver|{'|'.join(FRAMEWORKS)}) [\w.+]+$", "", program)
        groups.setdefault((compared, *outcomes, machine), {})[name] = None
    return [[names_of(programs), *outcome_of_all] for outcome_of_all, programs in groups.items()]


def names_of(programs):
    """The names, or how many there are of combinations with nothing to be said about each."""
    if len(programs) > 3 and all(name.startswith("combination: ") for name in programs):
        return f"{len(programs)} combinations"
    return "; ".join(programs)


def sources(results):
    """A row for each state of src and include that parts ran with, the one with most parts first."""
    states = {}
    for machine in sorted(path for path in results.iterdir() if path.is_dir()):
        for name, one in parts_of(machine).items():
            state = states.setdefault(one.get("sources", "unknown"), {})
            state.setdefault(machine.name, []).append(name)
    by_parts = sorted(states.items(), key=lambda one: (-sum(map(len, one[1].values())), one[0]))
    return table(["`src` and `include`", "Ran with it"],
                 [(f"`{state}`", "; ".join(f"{machine}: {', '.join(names)}"
                                           for machine, names in sorted(machines.items())))
                  for state, machines in by_parts])


def raw_data(results):
    rows = []
    for machine in sorted(path for path in results.iterdir() if path.is_dir()):
        parts = parts_of(machine)
        cards = {re.sub(r", one of .*", "", part["card"]) for part in parts.values()}
        rows.append([f"[{machine.name}](../bench/results/{machine.name})",
                     ", ".join(sorted(cards)) or "no card", len(list(machine.glob("*.txt")))])
    return table(["Folder", "Card", "Raw outputs"], rows)
