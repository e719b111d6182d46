"""`nemesis topology place`: where a job would lie, and what other schedulers would do with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemesis.cli.output import JsonOption, print_json, say
from nemesis.cli.topology_check import (
    EXIT_CODES,
    GpusOption,
    ModelOption,
    NumberOption,
    SettingOption,
    SpecArgument,
    TakenOption,
    case_of,
    checked_case,
    explain,
)

if TYPE_CHECKING:
    from nemesis.processors.mfu.step import Job
    from nemesis.processors.parallelism.case import Case
    from nemesis.processors.placement.plan import Plan


def place(
    spec: SpecArgument,
    cluster: Annotated[Path, typer.Option(help="A cluster file, or the name of a shape.")],
    model: ModelOption = "",
    gpus: GpusOption = 0,
    taken: TakenOption = None,
    setting: SettingOption = None,
    bare_number: NumberOption = "rails",
    json: JsonOption = False,
) -> None:
    """Show where a job would lie on a cluster, beside what other schedulers would do.

    Whole nodes; the shortest step where model and batch are known, else the fewest pods, then the
    fewest leaves. Nothing is reserved. Exit status: 0, 1
    rejected, 2 not in the language, 3 it would have to wait, or no rule finds a place that holds.
    """
    from nemesis.processors.placement.plan import plan_of

    parsed, case = case_of(spec, model, cluster, gpus, taken or [], setting or [], bare_number)
    checked = checked_case(case)
    if checked.outcome != "accepted":
        if json:
            print_json({"outcome": checked.outcome, "findings": checked.findings})
        else:
            explain(parsed, case, checked)
        raise typer.Exit(EXIT_CODES[checked.outcome])
    job, why_not = _job(case)
    plan = plan_of(case, job)
    if json:
        print_json(_document(plan) | {"not_predicted": why_not})
    else:
        for line in _lines(plan):
            say(line)
        if why_not:
            say(f"  no step time: {why_not}")
    if not plan.seats:
        raise typer.Exit(3)


def _job(case: "Case") -> "tuple[Job | None, str]":
    """The job as the MFU model takes it, or why it cannot."""
    from nemesis.processors.mfu.planned import UnpredictableError, gpu_of, job_of

    assert case.pool is not None
    try:
        return job_of(case, *gpu_of(case.pool)), ""
    except UnpredictableError as error:
        return None, error.message


def _document(plan: "Plan") -> dict[str, Any]:
    return {
        "outcome": "placed" if plan.seats else "no_place",
        "rule": plan.rule,
        "optimal": plan.optimal,
        "order": plan.order,
        "step_ns": plan.step_ns,
        "step_ns_least": plan.step_ns_least,
        "mfu_ppm": plan.mfu_ppm,
        "levels": [
            {"level": name, "touched": touched, "at_least": least}
            for name, touched, least in zip(
                plan.levels, plan.touched or (0,) * len(plan.levels), plan.fewest, strict=True
            )
        ],
        "candidates": plan.candidates,
        "seats": plan.seats,
    }


def _lines(plan: "Plan") -> list[str]:
    from nemesis.schemas.node_ranges import format_nodes

    if not plan.seats:
        lines = ["no rule finds a place that holds"]
        return lines + [f"  {each.rule}: {each.refused or 'no room'}" for each in plan.candidates]
    parts = [
        f"{_counted(touched, name)} (at least {least})"
        for name, touched, least in _levels(plan, plan.touched)
    ]
    proof = "none can touch fewer" if plan.optimal else "fewer may be possible"
    lines = [
        f"{len(plan.seats)} nodes on {', '.join(parts)}: {proof}",
        *_step_lines(plan),
        f"  ranks along the nodes, closest first: {' x '.join(plan.order)}",
        f"  {' '.join(format_nodes(seat.node for seat in plan.seats))}",
    ]
    for each in plan.candidates:
        told = each.refused or "no room"
        if each.touched:
            told = ", ".join(_counted(n, name) for name, n, _ in _levels(plan, each.touched))
            told += f", {each.step_ns / 1e9:.3f} s" if each.step_ns else ""
        mark = "  <- taken" if each.rule == plan.rule else ""
        lines.append(f"  {each.rule:<15} {told}{mark}")
    return lines


def _step_lines(plan: "Plan") -> list[str]:
    """What a step takes there, and could take at best."""
    if not plan.step_ns:
        return []
    share = plan.step_ns_least / plan.step_ns
    return [
        f"  a step takes {plan.step_ns / 1e9:.3f} s, {plan.mfu_ppm / 10_000:.1f} % of the peak "
        f"(modelled); {share:.1%} of the speed that the best place could give"
    ]


def _levels(plan: "Plan", touched: tuple[int, ...]) -> list[tuple[str, int, int]]:
    """(name, touched, at least) of each level but the last, which is all there is."""
    return list(zip(plan.levels, touched, plan.fewest, strict=True))[:-1]


def _counted(number: int, name: str) -> str:
    plural = {"leaf": "leaves"}.get(name, f"{name}s")
    return f"{number} {name if number == 1 else plural}"
