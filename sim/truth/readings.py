"""What one fact says of the thing that a piece of evidence is about: a reading, words, a field.

Pure; knows the facts of producers and nothing of processors.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from nemesis.schemas.blocks import BLOCKS
from nemesis.schemas.channels import STEP_CHANNELS
from nemesis.schemas.observed import (
    CollectiveRecorded,
    DeviceStateRead,
    FabricSampled,
    KernelLineLogged,
    LogLineWritten,
    Observation,
    ProcessExited,
    SampleTaken,
    SettingRead,
    SpoolAnnounced,
)
from nemesis.sim.faults.causal import Expected

_INT64: Final = np.dtype("<i8")
_RANK: Final = STEP_CHANNELS.index("rank")
_STEP: Final = STEP_CHANNELS.index("step")


class Reading(NamedTuple):
    """One value of one thing."""

    whose: str
    """The row, rank, port or group: what is to be compared with its like."""
    value: Any


def readings(fact: Observation, expected: Expected) -> Iterator[Reading]:
    """What a fact says of the kind of thing that is expected: of all rows, not of its row alone.

    Lines say 1 where they hold the words, a setting `name=value` where it is set so; an exit says
    its field.
    """
    match fact:
        case SampleTaken() | DeviceStateRead():
            yield from column(fact, expected.sign, by_step=expected.shows == "differs")
        case FabricSampled():
            for port in fact.ports:
                yield Reading(port.port, int(getattr(port, expected.sign)))
        case CollectiveRecorded():
            yield from _recorded(fact, expected.sign)
        case SettingRead():
            if fact.name == expected.sign:
                yield Reading(fact.component, fact.value)
            elif f"{fact.name}={fact.value}" == expected.sign:
                yield Reading(fact.component, 1)
        case _:
            yield from _said(fact, expected.sign)


def _said(fact: Observation, sign: str) -> Iterator[Reading]:
    match fact:
        case KernelLineLogged() if sign in fact.text:
            yield Reading("", 1)
        case LogLineWritten() if sign in fact.text:
            yield Reading(str(fact.rank), 1)
        case ProcessExited():
            yield Reading(str(fact.rank), getattr(fact, sign))
        case SpoolAnnounced():
            yield Reading("", 1)
        case _:
            return


def column(
    fact: SampleTaken | DeviceStateRead, sign: str, *, by_step: bool = False
) -> Iterator[Reading]:
    """A channel of a sample, `gpu.temp_c`, row by row; of steps each row is a rank.

    `by_step`: what ranks read in one step is to be compared, nodes are polled in different ones.
    """
    block, _, channel = sign.partition(".")
    count_field, names = BLOCKS[type(fact)][block]
    matrix = _matrix(getattr(fact, block), getattr(fact, count_field) if count_field else 1)
    if matrix is None or matrix.shape[1] <= names.index(channel):
        return
    values = matrix[:, names.index(channel)]
    whose = matrix[:, _RANK] if block == "steps" else range(len(values))
    kinds = [f"/{step}" for step in matrix[:, _STEP]] if by_step and block == "steps" else None
    for at, (row, value) in enumerate(zip(whose, values, strict=True)):
        yield Reading(f"{row}{kinds[at] if kinds else ''}", int(value))


def _matrix(payload: bytes, count: int) -> Any:
    """None where the section is absent."""
    if not payload or not count:
        return None
    return np.frombuffer(payload, _INT64).reshape(count, -1)


def _recorded(fact: CollectiveRecorded, sign: str) -> Iterator[Reading]:
    """A field of the fact, or of its groups, or of the operation that each is in."""
    if hasattr(fact, sign):
        yield Reading(f"{fact.rank}/", getattr(fact, sign))
        return
    for group in fact.groups:
        holder = group if hasattr(group, sign) else group.first_unfinished
        if holder is not None:
            yield Reading(f"{fact.rank}/{group.name}", getattr(holder, sign))
