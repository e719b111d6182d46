"""The hazard rule on real faults: a node that had an uncorrected error is likely to have another.

The one public fault trace of a GPU cluster with a usable licence (stepfun-ai/InfiniteHBD-Trace,
Apache-2.0: 584 faults of 400 servers with eight GPUs, 349 days) has no counters, so it cannot judge
the model; it can judge the rule behind its slow inputs. An alarm is the begin of a double-bit error
whose whole window was observed; nothing is fitted, so both halves of the time are tests.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.schedule import TRACE_BYTES_MAX
from nemesis.streams.documents import BadDocumentError, read_document

DOUBLE_BIT: Final = "GPU DBE(Double Bit ECC) > Threshold"
NODES_COUNT: Final = 400
DAYS: Final = 348.9798
"""When the trace ends."""
WINDOWS_DAYS: Final = (7, 30, 60)
RESAMPLES: Final = 400
FIGURES: Final = ("precision", "recall", "lift")

Times = Mapping[str, Sequence[float]]
"""Node to the days on which its double-bit errors began, ascending."""


class BadTraceError(NemesisError):
    """A file that is not the trace."""

    exit_code = 2


class _Type(msgspec.Struct):
    description: str = msgspec.field(name="Desc")


class _Event(msgspec.Struct):
    node_id: str
    event_time: float
    event_type: str
    fault_type: _Type


class Repeats(msgspec.Struct, kw_only=True, frozen=True):
    """What the rule would have told."""

    window_days: int
    alarms_count: int
    right_count: int
    """Alarms that another error of the same node followed within the window."""
    errors_count: int
    foreseen_count: int
    """Errors that came within the window after another of the same node."""
    base: float
    """Chance that any node at any time has one within the window."""

    @property
    def precision(self) -> float:
        """Of alarms."""
        return self.right_count / self.alarms_count if self.alarms_count else 0.0

    @property
    def recall(self) -> float:
        """Of errors."""
        return self.foreseen_count / self.errors_count if self.errors_count else 0.0

    @property
    def lift(self) -> float:
        """How much likelier than of any node."""
        return self.precision / self.base if self.base else 0.0


def double_bit_errors(path: Path) -> dict[str, list[float]]:
    """When each node's double-bit errors began, of the trace's JSON.

    Raises:
        BadTraceError: no such file, or not the trace.
    """
    try:
        raw = read_document(path, bytes_max=TRACE_BYTES_MAX)
        events = msgspec.json.decode(raw, type=list[_Event])
    except BadDocumentError as error:
        raise BadTraceError(error.message) from error
    except msgspec.DecodeError as error:
        raise BadTraceError(f"{path}: {error}") from error
    found: dict[str, list[float]] = defaultdict(list)
    for each in events:
        if each.event_type == "fault_start" and each.fault_type.description == DOUBLE_BIT:
            found[each.node_id].append(each.event_time)
    return {node: sorted(times) for node, times in found.items()}


def repeats(
    errors: Times,
    window_days: int,
    *,
    since: float = 0.0,
    until: float = DAYS,
    nodes_count: int = NODES_COUNT,
) -> Repeats:
    """The rule on the errors of a stretch of time, of which all that lies in it is known."""
    alarms = right = count = foreseen = 0
    covered = 0.0
    for times in errors.values():
        own = [each for each in times if since <= each < until]
        ends = since
        for at, time in enumerate(own):
            count += 1
            foreseen += at > 0 and time - own[at - 1] <= window_days
            if time + window_days <= until:
                alarms += 1
                right += at + 1 < len(own) and own[at + 1] - time <= window_days
            # a moment that looks ahead at this error, and at no earlier one
            covered += max(0.0, min(time, until - window_days) - max(ends, time - window_days))
            ends = time
    looked = nodes_count * max(0.0, until - since - window_days)
    return Repeats(
        window_days=window_days,
        alarms_count=alarms,
        right_count=right,
        errors_count=count,
        foreseen_count=foreseen,
        base=covered / looked if looked else 0.0,
    )


def intervals(
    errors: Times,
    window_days: int,
    *,
    since: float = 0.0,
    until: float = DAYS,
    seed: int = 1,
) -> dict[str, tuple[float, float]]:
    """The middle 95 % of each of FIGURES over resamples of nodes, those without any error too."""
    random = np.random.default_rng(seed)
    nodes: list[Sequence[float]] = [*errors.values()]
    nodes += [()] * (NODES_COUNT - len(errors))
    drawn: list[list[float]] = []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, len(nodes), len(nodes)).tolist()
        sample = {str(at): nodes[node] for at, node in enumerate(chosen) if nodes[node]}
        found = repeats(sample, window_days, since=since, until=until)
        drawn.append([found.precision, found.recall, found.lift])
    lows, highs = np.quantile(np.array(drawn), [0.025, 0.975], axis=0).tolist()
    return dict(zip(FIGURES, zip(lows, highs, strict=True), strict=True))
