"""An advice as a fact, written once: who was first is not spoken over."""

from typing import Final

from msgspec.structs import replace

from nemesis.actors.advisor.advice import Advice
from nemesis.actors.advisor.worklist import Case
from nemesis.schemas.advised import AdviceGiven
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.facts import encode_conclusion
from nemesis.streams.errors import PositionMovedError
from nemesis.streams.log import Log

TEXT_CHARS_LEAST: Final = 2000
"""So much of the words is kept where all of it does not fit into a fact."""


def fact_of(advice: Advice, case: Case, *, model: str, at_ns: int) -> AdviceGiven:
    """What is written of an advice."""
    passed = sum(not act.rule for act in advice.acts)
    if advice.ended == "answered":
        reason = f"{model} proposes {passed} acts, {len(advice.acts) - passed} were refused."
    else:
        reason = f"{model} gave no whole answer ({advice.ended}): the rules decide alone."
    meter = advice.meter
    return AdviceGiven(
        at_ns=at_ns,
        reason=reason,
        advice=f"{case.job.job}/{case.seq}",
        job=case.job.job,
        spec=case.job.spec,
        text=advice.text,
        acts=advice.acts,
        calls=advice.calls,
        ended=advice.ended,
        limit=advice.limit,
        model=model,
        requests=meter.requests,
        tokens_in=meter.tokens_in,
        tokens_out=meter.tokens_out,
        cost_microusd=meter.cost_microusd,
        duration_ns=advice.duration_ns,
    )


async def give(log: Log, data: AdviceGiven, case: Case) -> int:
    """Write it; its sequence, 0 where somebody else has advised on the job meanwhile.

    Raises:
        LogUnavailableError: no answer; it may or may not have been taken.
    """
    try:
        subject, payload = _encoded(data, case.seq)
    except MalformedFactError:
        short = replace(data, acts=(), text=data.text[:TEXT_CHARS_LEAST], ended="too_long")
        subject, payload = _encoded(short, case.seq)
    try:
        return await log.publish(subject, payload, expected_last_subject_seq=case.advised_seq)
    except PositionMovedError:
        return 0


def _encoded(data: AdviceGiven, cause: int) -> tuple[str, bytes]:
    return encode_conclusion(
        id=f"advisor/{data.advice}",
        source="/actors/advisor",
        at_ns=data.at_ns,
        data=data,
        key=data.job,
        cause=str(cause),
        job=data.job,
    )
