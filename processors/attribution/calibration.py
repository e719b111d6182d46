"""From how sure a rule claims to be to how often such verdicts were right.

Why: a rule's constant orders what is surer and says nothing of frequencies; whoever reads "97 %"
should be wrong three times in a hundred. How: verdicts of one kind (class and kind of what is
named) get the share that was measured in simulated incidents, a kind that never came up there what
its claim was worth in all kinds; between two measured claims the line between them holds.
Applied after the decision whether to name anybody, which rests on the claims (certainty.py). Not
here: the measurement (tests/calibrate.py makes calibration_table.py).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from nemesis.processors.attribution.calibration_table import MEASURED, Measured
from nemesis.schemas import components
from nemesis.schemas.codes import FaultClass

PPM: Final = 1_000_000
NOBODY: Final = "nobody"
"""The kind of what is named by a verdict that gives the class alone."""
ANY_KIND: Final = "any kind"


def verdict_kind(fault_class: FaultClass | str, culprits: Sequence[str]) -> str:
    """What verdicts are measured together: `network.link port`, `nvlink nobody`."""
    named = components.kind_of(culprits[0]) if culprits else NOBODY
    return f"{fault_class} {named}"


def calibrated_ppm(fault_class: FaultClass | str, culprits: Sequence[str], claimed_ppm: int) -> int:
    """How often a verdict that claims so much was right, in ppm; never falls as the claim rises."""
    return looked_up(MEASURED, verdict_kind(fault_class, culprits), claimed_ppm)


def looked_up(table: Mapping[str, Sequence[Measured]], kind: str, claimed_ppm: int) -> int:
    """The same by any table."""
    return read_off(table.get(kind) or table.get(ANY_KIND, ()), claimed_ppm)


def read_off(rows: Sequence[Measured], claimed_ppm: int) -> int:
    """The confidence that belongs to a claim by the rows of its kind, ascending; without any it is
    the claim."""
    if not rows:
        return claimed_ppm
    points = ((0, 0), *((row.claimed_ppm, row.confidence_ppm) for row in rows), (PPM, PPM))
    (below, low), (above, high) = next(
        pair for pair in pairwise(points) if claimed_ppm <= pair[1][0]
    )
    return low + (claimed_ppm - below) * (high - low) // (above - below)
