# SPDX-License-Identifier: Apache-2.0
"""Training runs by setting and round, as tools/train.sh has them printed, and the ratios of their
times.

The machine of a card changes its pace by 15% within minutes. So a run is compared with the one of its
own round only, and a setting with another by the median of these ratios.
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
    """Each setting's runs by their rounds, in the order in which settings were tried, and how often
    each was out of memory. Without lines that tell the rounds, a setting's first run is of round 1.
    With them, what comes before the first (a peak that is measured) is of no round."""
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
    """The ratio of total times in the rounds in which both ran: their median as `name`, the smallest
    and the largest. Empty where there is no such round."""
    ratios = [ours[number].total_s / theirs[number].total_s for number in ours if number in theirs]
    if not ratios:
        return {}
    shown = {name: statistics.median(ratios), f"{name}_least": min(ratios), f"{name}_most": max(ratios)}
    return {key: round(value, digits) for key, value in shown.items()}
