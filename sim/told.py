"""What all nodes and switches of a simulation tell, as messages of the log, node by node."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.observed import Observation
from nemesis.schemas.registry import BY_STRUCT
from nemesis.sim.simulation import Simulation
from nemesis.streams.batch import Message


def told(simulation: Simulation, now_ns: int) -> Iterator[Observation]:
    """Take away what is to be sent now; who has nothing to say is not visited."""
    for node in simulation.speaking():
        yield from simulation.agents[node].witness.carried(now_ns)
    for collector in simulation.speaking_collectors():
        yield from collector.carried()


def message_of(observation: Observation) -> Message:
    """An observation as its producer writes it."""
    subject = _subject(observation.node, BY_STRUCT[type(observation)].token)
    return Message(subject=subject, payload=encode_observation(observation))


_subject: Final = lru_cache(maxsize=65_536)(telemetry_subject)
"""Of whoever tells something again and again."""
