"""What `nemesis goodput` says of a job that is only planned: how often it should save."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemesis.cli.durations import LONGEST_S, seconds, spoken
from nemesis.cli.output import print_json, say
from nemesis.schemas.errors import NemesisError

if TYPE_CHECKING:
    from nemesis.processors.goodput.checkpoints import Plan

DAY_H = 24
"""No duration of a plan is longer: a hundred years."""


class BadPlanError(NemesisError):
    """Numbers that no job can have."""

    exit_code = 2


def plan_of(
    *,
    mtbf: str | None,
    rate: float | None,
    gpus: int,
    gpus_per_node: int,
    save: str,
    restart: str,
    write: str,
) -> "Plan":
    """The plan that these options describe.

    Raises:
        BadPlanError: it is not said how often the job fails, or a number is impossible.
        BadDurationError: a duration is none.
    """
    from nemesis.processors.goodput.checkpoints import Plan, best_interval_s, ettr, mtbf_s

    if (mtbf is None) == (rate is None):
        raise BadPlanError(
            "say once how often the job fails: --mtbf 3h5m, or --rate 6.5 with --gpus or --cluster",
            hint="6.5 and 2.34 failures per 1000 node-days were published (arXiv 2410.21680)",
        )
    failing_s = 0.0 if mtbf is None else seconds(mtbf, "--mtbf")
    if rate is not None:
        if not gpus:
            raise BadPlanError("--rate counts by nodes: say --gpus or --cluster too")
        if not rate > 0:
            raise BadPlanError(f"--rate must be positive, not {rate:g}")
        failing_s = mtbf_s(gpus, gpus_per_node, rate)
        if not 1 <= failing_s <= LONGEST_S:
            raise BadPlanError(f"--rate {rate:g}: expected a failure in a second to 100 years")
    plan = Plan(
        mtbf_s=failing_s,
        save_s=seconds(save, "--save"),
        restart_s=seconds(restart, "--restart"),
        write_s=seconds(write, "--write"),
    )
    if not plan.mtbf_s or not plan.save_s:
        raise BadPlanError("--mtbf and --save must be longer than nothing")
    if not ettr(plan, best_interval_s(plan)):
        raise BadPlanError(
            f"with a failure every {spoken(plan.mtbf_s)}, saves of {spoken(plan.save_s)} and "
            f"restarts of {spoken(plan.restart_s)} no work is ever done: expected shorter ones"
        )
    return plan


def cluster_size(cluster: Path) -> tuple[int, int]:
    """(GPUs, GPUs of a node) of a cluster file or a shape."""
    from nemesis.sim.topology.cluster_file import load_cluster

    found = load_cluster(cluster)
    return found.cluster.nodes * len(found.node.gpus), len(found.node.gpus)


def show_plan(
    plan: "Plan", *, gpus: int, interval: str | None, goal: float | None, json: bool
) -> None:
    """Tell the best interval, what it gives, and what would give more.

    Raises:
        BadPlanError: the interval of today, or the goal, is none.
        BadDurationError: the interval is no duration.
    """
    own_s = None if interval is None else seconds(interval, "--interval")
    if own_s is not None and not own_s:
        raise BadPlanError(f"--interval {interval}: expected longer than nothing")
    if goal is not None and not goal > 0:
        raise BadPlanError(f"--goal must be above 0, not {goal:g}")
    document = _document(plan, gpus, own_s, goal)
    if json:
        print_json(document)
        return
    for line in _lines(document):
        say(line)


def _document(
    plan: "Plan", gpus: int, interval_s: float | None, goal: float | None
) -> dict[str, Any]:
    from nemesis.processors.goodput import checkpoints as arithmetic

    best = arithmetic.best_interval_s(plan)
    now = arithmetic.ettr(plan, best)
    found: dict[str, Any] = {
        "mtbf_s": plan.mtbf_s,
        "gpus": gpus,
        "interval_s": best,
        "ettr": now,
        "intervals_s": {
            "exact": best,
            "daly": arithmetic.daly_s(plan),
            "daly_first_order": first if (first := arithmetic.daly_first_s(plan)) > 0 else None,
            "young": arithmetic.young_s(plan),
            "availability": arithmetic.availability_period_s(plan) - plan.save_s,
        },
        "improvements": [
            {
                "name": each.name,
                "interval_s": each.interval_s,
                "ettr": each.ettr,
                "gpu_hours_a_day": (each.ettr - now) * gpus * DAY_H if gpus else None,
            }
            for each in arithmetic.improvements(plan)
        ],
    }
    if interval_s:
        own = arithmetic.ettr(plan, interval_s)
        lost = (now - own) * gpus * DAY_H if gpus else None
        found["today"] = {"interval_s": interval_s, "ettr": own, "gpu_hours_a_day": lost}
    if goal:
        longest = arithmetic.longest_save_s(plan, goal)
        found["goal"] = {"ettr": goal, "longest_save_s": longest}
    return found


def _lines(document: dict[str, Any]) -> list[str]:
    best, share = document["interval_s"], document["ettr"]
    lines = [
        f"save every {spoken(best)}: {share:.1%} of the time is work "
        f"(a failure every {spoken(document['mtbf_s'])})",
    ]
    others = document["intervals_s"]
    spelt = [
        f"{name.replace('_', ' ')} {'out of its range' if length is None else spoken(length)}"
        for name, length in others.items()
        if name != "exact"
    ]
    lines.append(f"  by approximation: {', '.join(spelt)}")
    if "today" in document:
        today = document["today"]
        lines.append(
            f"  every {spoken(today['interval_s'])}, as today: {today['ettr']:.1%}"
            f"{_hours(today['gpu_hours_a_day'], 'lost')}"
        )
    for each in document["improvements"]:
        gain = each["ettr"] - share
        lines.append(
            f"  {each['name']}: {each['ettr']:.1%}, {100 * gain:+.1f} points, "
            f"save every {spoken(each['interval_s'])}{_hours(each['gpu_hours_a_day'], 'won')}"
        )
    if "goal" in document:
        goal = document["goal"]
        longest = goal["longest_save_s"]
        how = f"with saves of at most {spoken(longest)}" if longest else "not by faster saves alone"
        lines.append(f"  {goal['ettr']:.0%} can be reached {how}")
    return lines


def _hours(gpu_hours: float | None, what: str) -> str:
    return f", {gpu_hours:,.0f} GPU-hours a day {what}" if gpu_hours else ""
