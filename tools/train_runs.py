# SPDX-License-Identifier: Apache-2.0
"""Training runs by setting and round, as printed by tools/train.sh, and the ratios of their times.

The speed of a card's machine can change by 15% within minutes. So a run is compared only with one
of the same round, and two settings by the median of these ratios.
"""
import dataclasses
import re
import statistics

ROUND = re.compile(r"-- round \d+$")
SUMMARY = re.compile(
    r"peak_reserved +(\d+) MiB.* retries (\d+) .*median ([\d.]+) ms total ([\d.]+) s")


@dataclasses.dataclass
class Run:
    reserved_mib: float
    retries: float
    step_ms: float
    total_s: float


def read(lines, workload):
    """Returns each setting's runs by round, and how often each ran out of memory.

    Settings are in the order of their first runs. Without lines that mark the rounds, a setting's
    first run belongs to round 1. With them, runs before the first mark (a measurement of the peak)
    are ignored.
    """
    lines = [line.rstrip() for line in lines]
    rounds_are_told = any(ROUND.match(line) for line in lines)
    round_now, tries, runs, refused = 0, {}, {}, {}
    for line in lines:
        if ROUND.match(line):
            round_now += 1
            continue
        words = line.split()
        if len(words) < 3 or words[0] != workload or (rounds_are_told and round_now == 0):
            continue
        setting, found = words[1], SUMMARY.search(line)
        if not found and "OOM after" not in line:
            continue
        tries[setting] = tries.get(setting, 0) + 1
        of_setting = runs.setdefault(setting, {})
        if found:
            of_setting[round_now if rounds_are_told else tries[setting]] = Run(*map(float, found.groups()))
        else:
            refused[setting] = refused.get(setting, 0) + 1
    return runs, refused


def median(runs, what):
    return statistics.median(getattr(run, what) for run in runs.values())


def paired(name, ours, theirs, digits=3):
    """Returns the ratio of total times over the rounds in which both ran.

    The keys are `name` for the median, and the smallest and largest. Empty if there is no such
    round.
    """
    ratios = [ours[number].total_s / theirs[number].total_s for number in ours if number in theirs]
    if not ratios:
        return {}
    shown = {name: statistics.median(ratios), f"{name}_least": min(ratios), f"{name}_most": max(ratios)}
    return {key: round(value, digits) for key, value in shown.items()}
