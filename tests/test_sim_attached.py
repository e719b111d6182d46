"""Promises of a simulation on a log that runs: it takes nobody's nodes, jobs or policy."""

from pathlib import Path

import pytest

from nemesis.schemas.facts import encode_conclusion, telemetry_subject
from nemesis.schemas.operated import JobSubmitted
from nemesis.sim import attached
from nemesis.sim.operator import BY
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.streams.log import Log
from nemesis.streams.lookup import subjects
from nemesis.streams.server import Server
from tests.cells import in_cell

pytestmark = pytest.mark.server
CLUSTER = load_cluster()
NAME = CLUSTER.job.name
SUBJECT = telemetry_subject(CLUSTER.node_names[0], "sample")


async def submit(log: Log, job: str, by: str) -> None:
    data = JobSubmitted(at_ns=1, by=by, reason="r", job=job, nodes=("n900",))
    await log.publish(*encode_conclusion(id=job, source="/x", at_ns=1, data=data, key=job))


def test_only_jobs_of_simulations_are_ended_and_a_policy_that_is_there_stays(
    tmp_path: Path,
) -> None:
    async def body(server: Server) -> None:
        async with await server.connect("operator") as log:
            await submit(log, NAME, BY)
            await submit(log, f"{NAME}-3", "ann")
            await log.publish("nemesis.events.policy_applied.policy", b"somebody's")
            cluster = await attached._submit(log, CLUSTER, 1)
            assert cluster.job.name == f"{NAME}-4"
            ended = await subjects(log, "nemesis.events.job_ended.*")
            assert list(ended) == [f"nemesis.events.job_ended.{NAME}"]
            assert await subjects(log, "nemesis.events.policy_applied.*") == {
                "nemesis.events.policy_applied.policy": 1
            }

    in_cell(tmp_path, body)


def test_nobody_is_simulated_who_speaks_already(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with await server.connect("sim") as sim, await server.connect("operator") as log:

            async def speak() -> None:
                await sim.publish(SUBJECT, b"x")

            async def stay_silent() -> None:
                return

            await attached._refuse_second(log, CLUSTER, speak)
            await speak()
            with pytest.raises(attached.NodesSpeakError, match="speaks already"):
                await attached._refuse_second(log, CLUSTER, speak)
            await attached._refuse_second(log, CLUSTER, stay_silent)

    in_cell(tmp_path, body)
