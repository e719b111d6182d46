"""How often to save, and how much of a job's time is then worth something: arithmetic for planning.

Why: a save costs time at every interval, a failure costs all since the last one, and the best
interval follows from both. How: failures come at random moments (exponential), also while a job
restarts; the time that a segment of work takes on average is then known exactly, and from it the
share of time that is work, `ettr` (effective training time ratio). The old approximations stand
beside it, to show how far off they are.

Not here: what a real job did with its time, which `goodput.py` accounts from the log. Nothing here
goes into a fact: exponentials differ between machines in the last digits.
"""

from math import exp, expm1, inf, sqrt
from typing import Final

import msgspec
from msgspec.structs import replace

DAY_S: Final = 86_400.0
BISECTIONS: Final = 60
"""Halvings of an interval until nothing is left of it in 53 bits."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A job's failures and what it pays for them, in seconds."""

    mtbf_s: float
    """Mean time between failures that stop the job."""
    save_s: float
    """A save holds the job up so long."""
    restart_s: float
    """From a failure until the job works again, from its last save."""
    write_s: float = 0.0
    """A save in the background is safe only after so long; 0: when the job goes on."""

    @property
    def shortest_s(self) -> float:
        """The shortest interval: a save has to be written before the next begins."""
        return max(0.0, self.write_s - self.save_s)


def mtbf_s(gpu_count: int, gpus_per_node: int, failures_per_1000_node_days: float) -> float:
    """Mean time between failures of a job: its nodes fail independently, at one rate.

    arXiv 2410.21680 measured 6.50 and 2.34 on two clusters; its jobs of 1,024 GPUs failed after 7.9
    hours, not after the 28.8 that this says. Infinite where nothing fails.
    """
    nodes = -(-gpu_count // gpus_per_node)
    rate = nodes * failures_per_1000_node_days / 1000 / DAY_S
    return 1 / rate if rate else inf


def young_s(plan: Plan) -> float:
    """Interval by Young, CACM 1974: save and half an interval lost, to first order."""
    return sqrt(2 * plan.save_s * plan.mtbf_s)


def daly_first_s(plan: Plan) -> float:
    """Interval by Daly 2006, first order: Young's, less the save itself.

    It is meant for saves far shorter than what lies between failures; 0 or less from twice that on.
    """
    return young_s(plan) - plan.save_s


def daly_s(plan: Plan) -> float:
    """Interval by Daly 2006, equation 37; the failure time where a save takes twice that."""
    if plan.save_s >= 2 * plan.mtbf_s:
        return plan.mtbf_s
    part = plan.save_s / (2 * plan.mtbf_s)
    return young_s(plan) * (1 + sqrt(part) / 3 + part / 9) - plan.save_s


def availability_period_s(plan: Plan) -> float:
    """Period, save included, at which availability is best (arXiv 2410.18124)."""
    save = plan.save_s
    return save + sqrt(2 * (plan.mtbf_s + plan.restart_s) * save + save * save)


def best_interval_s(plan: Plan) -> float:
    """Work between two saves at which the exact ratio is best; restarts have no part in it.

    The root of 1 - exp(-(t + save) / M) = t / M, or what writing allows.
    """
    low, high = 0.0, 1.0
    part = plan.save_s / plan.mtbf_s
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if -expm1(-(middle + part)) > middle:
            low = middle
        else:
            high = middle
    return max(plan.shortest_s, high * plan.mtbf_s)


def ettr(plan: Plan, interval_s: float) -> float:
    """Work's share of time, 0 to 1, saving after every `interval_s` of work.

    A segment takes M·exp(R/M)·(exp((t + save)/M) - 1) on average. What is being written when a
    failure strikes is lost as well, which adds the write to what a failure costs.
    """
    lost = plan.restart_s + max(0.0, plan.write_s - plan.save_s)
    whole = (interval_s + plan.save_s) / plan.mtbf_s
    if whole + lost / plan.mtbf_s > 700:  # beyond what a float holds: nothing gets done
        return 0.0
    taken = plan.mtbf_s * exp(lost / plan.mtbf_s) * expm1(whole)
    return interval_s / taken if taken else 0.0


def ettr_linear(plan: Plan, interval_s: float) -> float:
    """The linear formula of arXiv 2410.21680; below 0 where restarts outlast failures: no bound."""
    lost = (plan.restart_s + interval_s / 2) / plan.mtbf_s
    return (1 - lost) / (1 + plan.save_s / interval_s)


class Improvement(msgspec.Struct, frozen=True):
    """What one change is worth, with the interval chosen anew."""

    name: str
    plan: Plan
    interval_s: float
    ettr: float


def improvements(plan: Plan) -> list[Improvement]:
    """Each cost halved, failures half as often: the most valuable first."""
    half = plan.save_s / 2  # what is written in the background stays as long
    changes = [
        ("failures half as often", replace(plan, mtbf_s=plan.mtbf_s * 2)),
        ("restart in half the time", replace(plan, restart_s=plan.restart_s / 2)),
        (
            "save in half the time",
            replace(plan, save_s=half, write_s=max(0.0, plan.write_s - half)),
        ),
    ]
    if plan.write_s > plan.save_s:
        changes.append(("write in half the time", replace(plan, write_s=plan.write_s / 2)))
    found = [
        Improvement(
            name, changed, best_interval_s(changed), ettr(changed, best_interval_s(changed))
        )
        for name, changed in changes
    ]
    return sorted(found, key=lambda each: -each.ettr)


def longest_save_s(plan: Plan, goal: float) -> float:
    """The longest save that holds the job up and still allows a ratio; 0 where none does."""
    low, high = 0.0, plan.mtbf_s
    if ettr(replace(plan, save_s=0.0), plan.mtbf_s * 2.0**-20) < goal:
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        tried = replace(plan, save_s=middle)
        if ettr(tried, best_interval_s(tried)) >= goal:
            low = middle
        else:
            high = middle
    return low
