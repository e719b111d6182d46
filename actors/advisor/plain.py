"""What the rules alone say of a description, in words: the whole answer where no model is asked."""

from nemesis.processors.scheduler.admission import admit
from nemesis.processors.scheduler.advice_rules import Moment
from nemesis.processors.scheduler.queue import Ground, fit
from nemesis.processors.scheduler.settings import Settings
from nemesis.processors.scheduler.state import State, Waiting
from nemesis.processors.topology.pool import Pool
from nemesis.schemas.node_ranges import format_nodes
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import JobFinding


def moment_of(pool: Pool, job: JobSubmitted) -> Moment:
    """An idle scheduler on a pool, with one job that waits if the checker lets it."""
    columns = zip(pool.nodes, pool.gpu_counts, pool.free_counts, strict=True)
    taken = {name for name, gpus, free in columns if free < gpus}
    state = State()
    if admit(job, pool).outcome != "rejected":
        state.queue[job.job] = Waiting(job=job, seq=1, since_ns=job.at_ns)
    ground = Ground(whole=pool, barred={}, doubtful={}, taken=taken)
    settings = Settings(follow_advice=True)
    return Moment(state=state, settings=settings, ground=ground, now_ns=job.at_ns)


def plain_words(moment: Moment, job: JobSubmitted) -> tuple[str, ...]:
    """Sentences for the job's owner."""
    admission = admit(job, moment.ground.free())
    findings = tuple(map(_finding, admission.findings))
    if admission.outcome != "accepted":
        outcome = "Rejected" if admission.outcome == "rejected" else "It has to wait"
        return (f"{outcome}:", *findings)
    waiting = moment.state.queue[job.job]
    found = fit(moment.state, moment.ground, waiting, (), moment.now_ns)
    if found is None:
        return ("Accepted, and no rule finds a place for it now.", *findings)
    quality = found.place.quality
    nodes = " ".join(format_nodes(found.place.nodes))
    proof = ", and none is better" if quality.status == "optimal" else ""
    step = f"; a step is predicted to take {quality.step_ns / 1e9:.3f} s" * bool(quality.step_ns)
    return (f"Accepted; by the rules it goes to {nodes}{proof}{step}.", *findings)


def _finding(finding: JobFinding) -> str:
    return f"{finding.code}: {finding.text}" + (f"; {finding.legal}" if finding.legal else "")
