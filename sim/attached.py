"""A simulated cluster on a log that runs already: its nodes sign in as real ones would.

Why: parts that were started one by one, as in a container engine, need a cluster to look after.
Time is real, because the clock of that log is. The job of an earlier simulation is ended, for its
processes are gone, and the new one has a name of its own; nobody else's job is touched, and where
nodes of these names speak already nothing is done: they are real, or another simulation's. Faults
come again and again, each time with another target among those that still work.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from nemesis.processors.fold import Input
from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import event_subject
from nemesis.schemas.operated import JobEnded, JobSubmitted, Operation, PolicyApplied
from nemesis.schemas.tokens import name_of, token_of
from nemesis.sim.clock import SimClock
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.faults.symptoms import Fault
from nemesis.sim.operator import BY, REASON, demo_policy, publish, requests
from nemesis.sim.simulation import Simulation
from nemesis.sim.stage import Stage, wire_roles
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import Truth
from nemesis.streams.contexts import Target
from nemesis.streams.credentials import seed_path
from nemesis.streams.errors import WrongCredentialsError
from nemesis.streams.log import Log
from nemesis.streams.lookup import subjects
from nemesis.streams.serving import activate
from nemesis.streams.side_by_side import background

DRAWS_MAX: Final = 100
SILENT_S: Final = 5.0  # several periods of a node's polls


class NodesSpeakError(NemesisError):
    """Nodes of these names are heard already."""

    exit_code = 4


class Attached(msgspec.Struct, kw_only=True, frozen=True):
    """What to run, and on which log."""

    cluster: Cluster
    scenario: Scenario
    target: Target
    folder: Path
    """Where agents keep what outlives them."""
    seed: int = 7
    every_s: float = 0.0
    """The scenario again after so long, with other targets; 0: once."""


async def run(
    options: Attached, on_truth: Callable[[Truth], None], on_behind: Callable[[], None]
) -> None:
    """Submit the job and let the cluster live until cancelled.

    Raises:
        WrongCredentialsError: a seed is missing.
        NodesSpeakError: somebody speaks for these nodes already.
        LogUnavailableError: no server answers.
    """
    seeds = options.target.credentials_folder
    if seeds is None:
        raise WrongCredentialsError("no folder of seeds", hint="name it with --credentials")
    clock = SimClock()
    async with await options.target.connect("operator") as log:
        await _refuse_second(log, options.cluster, partial(asyncio.sleep, SILENT_S))
        cluster = await _submit(log, options.cluster, clock.start_ns)
    simulation = Simulation(
        cluster,
        plan_faults(
            cluster, options.scenario.faults, options.seed, lasts_s=options.scenario.duration_s
        ),
        seed=options.seed,
        folder=options.folder / cluster.job.name,
        start_ns=clock.start_ns,
    )
    async with await options.target.connect("sim") as ledger:
        stage = Stage(
            simulation,
            clock,
            url=options.target.url,
            credentials_folder=seeds,
            ledger=ledger.connection,
            on_truth=on_truth,
            on_behind=on_behind,
        )
        async with background(stage.run()):
            for turn in count(1):
                await asyncio.sleep(options.every_s or float("inf"))
                for fault in _next_faults(simulation, options, turn):
                    since_ns = clock.now_ns() - clock.start_ns
                    simulation.inject(fault.later(since_ns))


def missing_seeds(folder: Path, cluster: Cluster) -> list[str]:
    """Roles that a simulation needs and that have no seed in this folder."""
    roles = ["operator", "sim", *wire_roles(cluster)]
    return [role for role in roles if not seed_path(folder, role).is_file()]


async def _refuse_second(log: Log, cluster: Cluster, listen: Callable[[], Awaitable[None]]) -> None:
    """Two who speak for one node would make one incident after another; `listen` takes a while.

    Raises:
        NodesSpeakError: a node is heard now.
    """
    node = cluster.node_names[0]
    subject = f"nemesis.telemetry.{token_of(node)}.sample"
    before = await log.last(subject)
    if before is None or abs(time.time_ns() - before.stored_ns) > 10 * SILENT_S * 1e9:
        return
    await listen()
    after = await log.last(subject)
    if after is not None and after.seq != before.seq:
        raise NodesSpeakError(
            f"node {node} of this log speaks already: it is real, or a simulation runs",
            hint="simulate on a log of its own: `nemesis demo`, or end the other simulation",
        )


async def _submit(log: Log, cluster: Cluster, at_ns: int) -> Cluster:
    """Do what a person would do before; the cluster under the names of its jobs."""
    await activate(log)
    submitted = await subjects(log, "nemesis.events.job_submitted.*")
    ended = await subjects(log, "nemesis.events.job_ended.*")
    known = {name_of(subject.rpartition(".")[2]) for subject in submitted}
    over = {name_of(subject.rpartition(".")[2]) for subject in ended}
    acts: list[tuple[Operation, str]] = []
    if not await subjects(log, "nemesis.events.policy_applied.*"):
        policy = msgspec.Raw(msgspec.json.encode(demo_policy()))
        acts.append((PolicyApplied(at_ns=at_ns, by=BY, reason=REASON, policy=policy), "policy"))
    renamed = list(cluster.jobs)
    for place, job in enumerate(cluster.jobs):
        prefix = f"{job.name}-"
        of_name = sorted(each for each in known if each == job.name or each.startswith(prefix))
        gone = [each for each in of_name if each not in over and await _is_ours(log, each)]
        for each in gone:
            reason = "its simulation is gone"
            acts.append((JobEnded(at_ns=at_ns, by=BY, reason=reason, job=each), each))
        if of_name:
            number = next(n for n in count(len(of_name) + 1) if f"{prefix}{n}" not in known)
            renamed[place] = replace(job, name=f"{prefix}{number}")
    cluster = replace(cluster, jobs=tuple(renamed))
    acts += ((submitted, submitted.job) for submitted in requests(cluster, at_ns))
    await publish(log, acts, at_ns)
    return cluster


async def _is_ours(log: Log, job: str) -> bool:
    """Whether a simulation submitted it."""
    last = await log.last(event_subject("job_submitted", job))
    submitted = Input(last).decoded() if last is not None else None
    return isinstance(submitted, JobSubmitted) and submitted.by == BY


def _next_faults(simulation: Simulation, options: Attached, turn: int) -> list[Fault]:
    """The scenario's faults on targets that still work; none where no draw finds such."""
    for draw in range(DRAWS_MAX):
        seed = options.seed + turn * DRAWS_MAX + draw
        faults = plan_faults(
            simulation.cluster, options.scenario.faults, seed, lasts_s=options.every_s
        )
        if all(_works(simulation, fault) for fault in faults):
            return faults
    return []


def _works(simulation: Simulation, fault: Fault) -> bool:
    job = simulation.cluster.job_on(fault.node)
    ranks = simulation.jobs[job.name].ranks if job else {}
    return fault.node not in simulation.lost_nodes and all(
        number in ranks and ranks[number].stage == "running" for number in fault.lost_ranks
    )
