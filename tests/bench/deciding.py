"""The control plane's own share of a recovery: a rank's end is told, the plan to hold arrives.

No training runs. Jobs of four ranks lose one, one after the other; server, processors and
job actor are those of a served cell, and a loader writes the samples of 100,000 GPUs beside them.
The clock runs from the publish of the fact to the receipt of the plan by the node's agent.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from nats.aio.msg import Msg

from nemesis.processors.catalogue import CATALOGUE
from nemesis.producers.origin import Origin
from nemesis.producers.process import exit_of
from nemesis.schemas.facts import encode_observation, telemetry_subject
from nemesis.schemas.operated import JobEnded, JobSubmitted, Operation, PolicyApplied
from nemesis.schemas.plans import Plan, PlanAnswer, RankState, decode_message, encode_message
from nemesis.schemas.policy import Policy
from nemesis.sim.operator import publish
from nemesis.streams import crew, ticker
from nemesis.streams.log import Log
from nemesis.streams.provision import Limits
from nemesis.streams.server import Server
from nemesis.streams.serving import activate
from nemesis.streams.supervisor import Supervisor
from tests.bench.pipeline import SAMPLES_PER_S
from tests.bench.row import AtMost, Row, median, percentile

JOBS_COUNT = 120
PERIOD_S = 0.25
SETTLE_S = 3.0
READY_S = 60.0
WAIT_S = 10.0
GOAL_MS = 20.0
RANKS = 4
BY = "bench"
POLICY = Policy(mode="act", playbooks={"unknown": ("shrink",), "app.program": ("shrink",)})


async def measure(jobs_count: int = JOBS_COUNT) -> list[Row]:
    """End a rank of one job after the other, and time the plan."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            limits = Limits(log_bytes=4 * 2**30)
            server = await enter(Server("bench", folder=Path(folder) / "cell", limits=limits))
            reader = await enter(await server.connect("reader"))
            operator = await enter(await server.connect("operator"))
            names = sorted(CATALOGUE)
            async with await server.connect("ticker") as log:
                first = encode_observation(ticker.tick_of(time.time_ns()))
                await log.publish(ticker.TICK_SUBJECT, first)
            await activate(operator)
            policy = msgspec.Raw(msgspec.json.encode(POLICY))
            await _operate(
                operator,
                PolicyApplied(at_ns=time.time_ns(), by=BY, reason=BY, policy=policy),
                "policy",
            )
            await enter(
                Supervisor(crew.commands(server, names, cell="bench", copies=1, archivist=False))
            )
            await crew.until_started(reader, names, from_seq=1, timeout_s=READY_S)
            await enter(crew.clockwork(server, time.time_ns, lambda alarm: None))
            nodes = await enter(await server.connect("sim"))
            load_s = int(SETTLE_S + jobs_count * PERIOD_S) + 1
            load = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "tests.bench.pipeline", "load"],
                *[server.url, folder, str(load_s)],
                stdout=asyncio.subprocess.DEVNULL,
            )
            await asyncio.sleep(SETTLE_S)
            took_ms = await _shares(nodes, operator, jobs_count)
            await load.wait()
    how = (
        f"exit of a rank → its agent has the plan, {len(took_ms)} jobs, no training, "
        f"{SAMPLES_PER_S:,} samples/s beside it"
    )
    return [
        Row("P3", "control plane's share, p50", median(took_ms), "ms", how),
        Row(
            "P3",
            "control plane's share, p99",
            percentile(took_ms, 99),
            "ms",
            f"the same, at most {max(took_ms):.0f}",
            AtMost(GOAL_MS),
        ),
    ]


async def _shares(nodes: Log, operator: Log, jobs_count: int) -> list[float]:
    arrived: dict[str, float] = {}

    async def on_plan(msg: Msg) -> None:
        plan = decode_message(Plan, msg.data)
        arrived.setdefault(plan.job, time.perf_counter())
        node = msg.subject.rpartition(".")[2]
        ranks = tuple(
            RankState(rank=rank, stage="held", epoch=plan.epoch) for rank in range(1, RANKS)
        )
        answer = PlanAnswer(
            node=node,
            boot_id=BY,
            job=plan.job,
            outcome="accepted",
            epoch=plan.epoch,
            kind=plan.kind,
            ranks=ranks,
        )
        await nodes.connection.publish(msg.reply, encode_message(answer))

    await nodes.connection.subscribe("nemesis.plan.*", on_plan)
    took_ms: list[float] = []
    for number in range(jobs_count):
        job = node = f"own{number:03d}"
        at_ns = time.time_ns()
        submitted = JobSubmitted(
            at_ns=at_ns, by=BY, reason=BY, job=job, nodes=(node,), ranks_per_node=RANKS
        )
        await _operate(operator, submitted, job)
        await asyncio.sleep(PERIOD_S / 2)
        exited = exit_of(
            Origin(node, start_ns=at_ns, boot_id=BY),
            time.time_ns(),
            job=job,
            rank=0,
            pid=1,
            returncode=-9,
            fenced=True,
            epoch=0,
        )
        began_s = time.perf_counter()
        await nodes.publish(telemetry_subject(node, "process"), encode_observation(exited))
        while job not in arrived and time.perf_counter() - began_s < WAIT_S:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        took_ms.append((arrived.get(job, began_s + WAIT_S) - began_s) * 1_000)
        ended = JobEnded(at_ns=time.time_ns(), by=BY, reason=BY, job=job)
        await _operate(operator, ended, job)
        await asyncio.sleep(PERIOD_S / 2)
    return took_ms


async def _operate(log: Log, act: Operation, key: str) -> None:
    await publish(log, [(act, key)], act.at_ns)
