"""The node of an open incident is asked to look each second, and does so until nobody asks."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.actors import job as job_module
from nemesis.actors.job import JobActor
from nemesis.actors.suspicion import FOR_NS, LONGEST_NS, NODES_MAX, PERIOD_NS, Suspicion
from nemesis.processors.fold import Input
from nemesis.producers.node.serve import Producer, Settings
from nemesis.schemas.facts import Record, encode_conclusion, encode_observation, telemetry_subject
from nemesis.schemas.inferred import Culprit, FaultAttributed, IncidentClosed, IncidentOpened
from nemesis.schemas.observed import ClockTicked, SampleTaken
from nemesis.schemas.plans import PollPlan, encode_message, poll_plan_subject
from nemesis.streams.contexts import Target
from nemesis.streams.server import Server
from tests.cells import in_cell, until
from tests.node_trees import Tree
from tests.test_node_producer import told, working

SECOND_NS = 1_000_000_000


def opened(incident: str, component: str, at_ns: int = 0) -> IncidentOpened:
    return IncidentOpened(
        at_ns=at_ns, reason="r", incident=incident, trigger="verdict", component=component
    )


def blamed(incident: str, *components: str) -> FaultAttributed:
    culprits = tuple(Culprit(kind="gpu", id=each) for each in components)
    return FaultAttributed(
        at_ns=0,
        reason="r",
        incident=incident,
        revision=0,
        verdict="attributed",
        fault_class="gpu.off_bus",
        culprits=culprits,
    )


def closed(incident: str) -> IncidentClosed:
    return IncidentClosed(at_ns=0, reason="r", incident=incident, outcome="recovered")


def event(data: msgspec.Struct) -> tuple[str, bytes]:
    key: Any = getattr(data, "incident", "x")
    return encode_conclusion(id="p/1/0", source="p", at_ns=0, data=data, key=key)


def asked(facts: Sequence[msgspec.Struct], at_ns: int = 0) -> dict[str, str]:
    """Node to why, after these facts."""
    suspicion = Suspicion()
    for seq, fact in enumerate(facts, start=1):
        subject, payload = event(fact)
        suspicion.take(Input(Record(seq, subject, 0, payload)))
    return {plan.node: plan.why for plan in suspicion.plans(at_ns)}


def test_nodes_that_an_open_incident_names_are_asked() -> None:
    facts = [
        opened("i-1", "gpu/n1/0000:19:00.0"),
        opened("i-2", ""),
        blamed("i-2", "nic/n2/mlx5_0"),
    ]
    assert asked(facts) == {"n1": "i-1", "n2": "i-2"}


def test_what_is_closed_old_or_on_no_node_asks_nobody() -> None:
    assert asked([opened("i-1", "node/n1"), closed("i-1")]) == {}
    assert asked([opened("i-1", "node/n1")], at_ns=LONGEST_NS + 1) == {}
    assert asked([opened("i-1", "switch/leaf03")]) == {}
    assert asked([blamed("i-1", "node/n1")]) == {}  # of one that was never opened


def test_of_very_many_the_newest_are_asked() -> None:
    nodes = asked([opened(f"i-{at}", f"node/n{at}") for at in range(NODES_MAX + 9)])
    assert (len(nodes), f"n{NODES_MAX + 8}" in nodes, "n0" in nodes) == (NODES_MAX, True, False)


@pytest.mark.server
def test_a_producer_polls_each_second_for_as_long_as_it_is_asked_and_no_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "ASK_S", 0.1)

    async def body(server: Server) -> None:
        target = Target(url=server.url, credentials_folder=server.credentials_folder)
        tree = Tree(tmp_path / "root")
        settings = Settings(
            node="n1", state=tmp_path / "s", root=tree.path, period_ns=300 * SECOND_NS
        )
        tick = ClockTicked(node="clock", start_ns=1, n=1, at_ns=time.time_ns())
        async with await server.connect("ticker") as log:
            await log.publish(telemetry_subject("clock", "tick"), encode_observation(tick))
        async with await server.connect("processor/incident") as log:
            await log.publish(*event(opened("i-1", "node/n1", tick.at_ns)))
        actor = await server.connect("actor/job")
        running = asyncio.ensure_future(JobActor(actor, "a").run())
        producer = Producer(settings, target)

        async def periods() -> list[int]:
            samples = [fact for fact in await told(server) if isinstance(fact, SampleTaken)]
            return [sample.period_ns for sample in samples]

        async with working(producer):

            async def is_fast() -> bool:
                return (await periods()).count(PERIOD_NS) >= 2

            await until(is_fast, "it polls each second")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            plan = PollPlan(node="n1", period_ns=1, for_ns=FOR_NS)
            await actor.connection.publish(poll_plan_subject("n1"), encode_message(plan))
            await actor.connection.publish(poll_plan_subject("n1"), b"{")
            await actor.connection.flush()
            assert producer._period_ns() == PERIOD_NS
        assert set(await periods()) <= {300 * SECOND_NS, PERIOD_NS}
        await actor.close()

    in_cell(tmp_path, body, roles=("node/n1", "producer/n1"))


def test_a_producer_that_nobody_asks_any_more_goes_back_to_its_own_pace(tmp_path: Path) -> None:
    settings = Settings(node="n1", state=tmp_path, root=tmp_path, period_ns=5 * SECOND_NS)
    producer = Producer(settings, Target(url="nats://127.0.0.1:1"))
    producer._hurry_ns = (PERIOD_NS, time.monotonic_ns() + 60 * SECOND_NS)
    assert producer._period_ns() == PERIOD_NS
    producer._on_rate("half")
    assert producer._period_ns() == 10 * SECOND_NS  # the log fills up: that comes first
    producer._on_rate("full")
    producer._hurry_ns = (PERIOD_NS, time.monotonic_ns())
    assert producer._period_ns() == 5 * SECOND_NS
