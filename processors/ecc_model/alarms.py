"""What is said of a GPU whose band is another one now, and of a day on which the model saw more.

The class is what the part's own counters show. A model foresees a failure and not its kind: where
they show nothing the class is unknown.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.ecc_model.bands import Band, percent
from nemesis.processors.ecc_model.drift import Tally
from nemesis.processors.ecc_model.inputs import INPUTS
from nemesis.processors.ecc_model.model import HORIZONS_S
from nemesis.processors.incident.names import incident_of
from nemesis.schemas.codes import FaultClass
from nemesis.schemas.facts import Conclusion, Fact
from nemesis.schemas.inferred import Evidence, FailurePredicted, InputShift, ModelDriftMeasured

RULE: Final = "ecc_model"
NAMED_CHARS: Final = 12
"""Of a model's hash, in sentences and keys."""
_SIGNS: Final[tuple[tuple[FaultClass, str, tuple[str, ...]], ...]] = (
    ("gpu.memory", "uncorrectable memory errors", ("ue_recency",)),
    ("gpu.memory", "remapped rows", ("remap_pending", "remap_failed", "rows_known")),
    ("gpu.memory", "banks short of spare rows", ("spare_rows_low",)),
    ("gpu.memory", "corrected memory errors", ("ce_hours", "ce_day", "ce_week")),
    ("gpu.off_bus", "replays on its links", ("links_day",)),
    ("gpu.thermal", "a thermal slowdown", ("thermal_slowdown", "power_brake")),
)
"""The gravest first."""


class Raised(msgspec.Struct, array_like=True, frozen=True):
    """A GPU that has a band."""

    component: str
    incident: str


def raised(component: str, proof: Fact) -> Raised:
    """The incident has the name of the fact and of the part: a sample shows several of them."""
    return Raised(component, incident_of(f"{proof.id}/{component}"))


def predicted(
    about: Raised,
    band: Band,
    chances_ppm: Sequence[int],
    codes: Sequence[int],
    inventory: Inventory,
    *,
    model: str,
    fact: Fact,
    proof: Fact,
) -> Conclusion:
    """The part is in this band; `proof` is the newest reading of it, or the tick itself."""
    fault_class, shown = _shown(codes)
    seats = inventory.seats_of(about.component)
    jobs = tuple(dict.fromkeys(seat.job for seat in seats))
    job = jobs[0] if jobs else ""
    chance = chances_ppm[band.head]
    data = FailurePredicted(
        at_ns=fact.log_time_ns,
        reason=(
            f"{about.component}: model {model[:NAMED_CHARS]} gives it a chance of "
            f"{chance // 10_000} % to fail within {HORIZONS_S[band.head] / 3600:g} h; {shown}"
        ),
        component=about.component,
        fault_class=fault_class,
        band=band.name,
        probability_ppm=chance,
        horizon_ns=band.horizon_ns,
        rule=RULE,
        evidence=(
            Evidence(
                fact=proof.id, says=f"within 0.5, 1, 2 and 3 h: {percent(chances_ppm)}; {shown}"
            ),
        ),
        jobs=jobs,
        ranks=tuple(seat.rank for seat in seats if seat.job == job),
        incident=about.incident,
    )
    cause = tuple(sorted({proof.seq, fact.seq}))
    return Conclusion(data=data, key=about.incident, cause=cause, job=job)


def cleared(about: Raised, fact: Fact, why: str) -> Conclusion:
    """Nothing is foreseen of the part any more."""
    data = FailurePredicted(
        at_ns=fact.log_time_ns,
        reason=f"{about.component}: {why}",
        component=about.component,
        fault_class="unknown",
        band="clear",
        rule=RULE,
        incident=about.incident,
    )
    return Conclusion(data=data, key=about.incident, cause=(fact.seq,))


def drifted(tally: Tally, trained: bytes, model: str, fact: Fact) -> Conclusion:
    """How far a day's inputs and scores lie from those of training."""
    shifts = tally.shifts_ppm(trained)
    inputs, scores = shifts[: len(INPUTS)], shifts[len(INPUTS) :]
    most = max(range(len(inputs)), key=inputs.__getitem__)
    data = ModelDriftMeasured(
        at_ns=fact.log_time_ns,
        reason=(
            f"model {model[:NAMED_CHARS]}: of its inputs {INPUTS[most]} is farthest from training,"
            f" {inputs[most] // 10_000} % lie elsewhere; of its scores {max(scores) // 10_000} %"
        ),
        model=model,
        seen_count=tally.seen,
        inputs=tuple(
            InputShift(name=name, shift_ppm=shift)
            for name, shift in zip(INPUTS, inputs, strict=True)
            if shift
        ),
        score_shift_ppm=max(scores),
    )
    return Conclusion(data=data, key=model[:NAMED_CHARS], cause=(fact.seq,))


def _shown(codes: Sequence[int]) -> tuple[FaultClass, str]:
    """What the counters show, the gravest sign of it and all in words."""
    own = dict(zip(INPUTS, codes, strict=True))
    signs: list[tuple[FaultClass, str]] = [
        (kind, says) for kind, says, names in _SIGNS if any(own[name] > 0 for name in names)
    ]
    if not signs:
        return "unknown", "its counters show nothing by themselves"
    return signs[0][0], f"it shows {', '.join(says for _, says in signs)}"
