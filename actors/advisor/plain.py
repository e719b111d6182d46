"""What the rules alone say of a job, in words: the whole answer where no model can be asked."""

from nemesis.processors.advice.situation import Situation, Standing, case_of, planned
from nemesis.processors.parallelism.check import check
from nemesis.processors.parallelism.parsing import BadSpecError
from nemesis.schemas.node_ranges import format_nodes


def plain_words(situation: Situation, about: str) -> tuple[str, ...]:
    """Sentences for the job's owner."""
    job = situation.by_name[about]
    if job.stage not in ("waiting", "rejected"):
        where = f" on {' '.join(format_nodes(job.nodes))}" if job.nodes else ""
        return (f"{job.job} is {job.stage}{where}.",)
    return _judged(situation, job)


def _judged(situation: Situation, job: Standing) -> tuple[str, ...]:
    try:
        case = case_of(job, situation.usable)
    except BadSpecError as error:
        return (f"Rejected: {error.message}.",)
    checked = check(case)
    told = tuple(
        f"{each.severity} {each.code}: {each.text}" + (f"; {each.legal}" if each.legal else "")
        for each in checked.findings
    )
    if checked.outcome != "accepted":
        outcome = "Rejected" if checked.outcome == "rejected" else "It has to wait"
        return (f"{outcome}:", *told)
    plan = planned(case, situation.usable)
    if not plan.seats:
        return ("Accepted, and no rule finds a place for it now.", *told)
    nodes = " ".join(format_nodes(seat.node for seat in plan.seats))
    step = f"; a step is predicted to take {plan.step_ns / 1e9:.3f} s" if plan.step_ns else ""
    proof = ", and none can touch fewer groups" if plan.optimal else ""
    return (f"Accepted; by the rules it goes to {nodes}{proof}{step}.", *told)
