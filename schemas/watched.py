"""What a node's producer says of its own watching: what it reads, what it cannot, what that costs.

So that silence is never taken for health: what is not `read` was not looked at.
"""

from typing import Annotated, Literal

import msgspec

from nemesis.schemas.observed import Count, Ns, Observation

ProbeState = Literal["read", "absent", "denied", "stalled", "broken", "unsupported", "lost"]
"""How a producer got on with one thing that it should watch. absent: it is not there; denied: it
may not be read; stalled: the reading did not come back; broken: what came back makes no sense;
unsupported: the device or driver does not tell; lost: the device was there and is gone."""


class ProbeSeen(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True, gc=False):
    """One thing that a node's producer should watch, and whether it does."""

    component: str
    """What is watched: `gpu/n012/0000:1b:00.0`, `node/n012`."""
    source: str
    """By what: `nvml`, `sysfs`, `kmsg`."""
    state: ProbeState
    says: str = ""
    """Why it is not read, and what would mend that, for a person."""
    since_ns: Ns = 0
    """When it was first seen so."""


class CoverageReported(Observation, kw_only=True, frozen=True):
    """What a node's producer should watch and does; each minute, at each change, at its end."""

    probes: tuple[ProbeSeen, ...] = ()
    period_ns: Ns = 0
    cpu_ppm: Count = 0
    """What the producer itself takes, of one core, since its last such fact."""
    rss_mib: Count = 0
    late_ns: Ns = 0
    """How much later than due a poll came, at most."""
    waiting_count: Count = 0
    """Facts that are not in the log yet."""
    dropped_count: Count = 0
    """Facts given up that no `spool` fact has told of yet."""
    missed_lines_count: Count = 0
    """Lines of the kernel log that were overwritten before they could be read, since the start."""
    clock_step_ns: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    """By how much the wall clock was set, against the clock that is never set."""
    ends: bool = False
    """The producer was told to end, and ends in order: what it does not tell from here on is no
    sign of the node's."""
