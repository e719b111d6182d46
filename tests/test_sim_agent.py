"""Promises of a node's agent: it fences, holds and follows, each once, and alone does no harm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from nemesis.schemas.observed import (
    CollectiveRecorded,
    InventoryReported,
    KernelLineLogged,
    Observation,
    ProcessExited,
    SampleTaken,
)
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.plans import Plan
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.agent import Done, read_journal
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.planned_decoys import LoneWork
from nemesis.sim.rendezvous import WAIT_NS
from nemesis.sim.simulation import Simulation
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed
from tests.planned import planned

MS = 1_000_000
SECOND = 1_000 * MS
CLUSTER = load_cluster()
NODE, RANK = "n006", 44


class Run:
    """A simulation that time is let pass in, in quanta of 100 ms."""

    def __init__(
        self,
        folder: Path,
        *kinds: str,
        on_log_loss: Literal["wait", "restart", "shrink"] = "wait",
        away: Callable[[str, int], bool] = lambda node, now_ns: False,
    ) -> None:
        self.submitted = JobSubmitted(
            at_ns=0,
            by="test",
            reason="test",
            job="llama",
            nodes=CLUSTER.job_nodes,
            world_min=CLUSTER.job.world_min,
            on_log_loss=on_log_loss,
            grace_ns=20 * SECOND,
        )
        plans = [planned(kind, after_s=5.0, node=NODE, gpu=4) for kind in kinds]
        faults = plan_faults(CLUSTER, plans, seed=7)
        self.sim = Simulation(
            CLUSTER, faults, seed=7, folder=folder, start_ns=0, submitted=[self.submitted]
        )
        self.folder = folder
        self.now_ns = 0
        self.truths: list[FaultInjected | MembershipFormed] = []
        self._away = away

    def until(self, second: float) -> None:
        while self.now_ns < second * SECOND:
            self.now_ns += 100 * MS
            self.truths += self.sim.advance(self.now_ns, self._reaches_the_log)

    def _reaches_the_log(self, node: str) -> bool:
        return not self._away(node, self.now_ns)

    def tell(self, plan: Plan) -> dict[str, str]:
        return {
            node: agent.follow(plan, self.now_ns).outcome
            for node, agent in self.sim.agents.items()
            if node in CLUSTER.job_nodes
        }

    def seen(self, kind: type[Observation], node: str = NODE) -> list[Any]:
        agent = self.sim.agents[node]
        return [each for each in agent.witness.observations if isinstance(each, kind)]

    def journal(self) -> list[Done]:
        return [d for node in CLUSTER.node_names for d in read_journal(self.folder / node)]

    def effects(self, doing: str) -> list[tuple[int, int]]:
        return [(done.epoch, done.rank) for done in self.journal() if done.doing == doing]


def hold(epoch: int = 0, fenced: str = str(RANK)) -> Plan:
    return Plan(job="llama", epoch=epoch, kind="hold", fenced=fenced, decision="llama/1")


def shrink(epoch: int = 1, without: tuple[int, ...] = (RANK,)) -> Plan:
    return Plan(
        job="llama",
        epoch=epoch,
        kind="membership",
        members=format_ranks(set(range(112)) - set(without)),
        world=112 - len(without),
        fenced=format_ranks(without),
        decision="llama/2",
    )


@pytest.mark.parametrize(("kind", "code", "signal"), [("xid79", 0, 6), ("xid48", 1, 0)])
def test_a_dead_rank_is_fenced_and_told_once(
    tmp_path: Path, kind: str, code: int, signal: int
) -> None:
    run = Run(tmp_path, kind)
    run.until(15)
    (told,) = run.seen(ProcessExited)
    assert (told.rank, told.fenced, told.exit_code, told.signal) == (RANK, True, code, signal)
    assert run.effects("fence") == [(0, RANK)]
    assert run.sim.faults_injected_count == 1
    assert any(f"Xid (PCI:0000:9d:00): {kind[3:]}" in k.text for k in run.seen(KernelLineLogged))


def test_without_a_plan_nobody_recovers(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79")
    run.until(40)
    step = run.sim.job.step
    run.until(80)
    assert run.sim.job.step == step
    assert [t.epoch for t in run.truths if isinstance(t, MembershipFormed)] == [0]


def test_hold_and_membership_shrink_the_job_without_losing_a_step(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79")
    run.until(7)
    step = run.sim.job.step
    assert set(run.tell(hold()).values()) == {"accepted"}
    run.until(7.5)
    assert set(run.tell(shrink()).values()) == {"accepted"}
    run.until(15)
    formed = [t for t in run.truths if isinstance(t, MembershipFormed)]
    assert [(each.epoch, each.world) for each in formed] == [(0, 112), (1, 111)]
    assert formed[1].step == step + 1
    assert (formed[1].redone_count, formed[1].restarts_count) == (0, 0)


def test_told_three_times_every_rank_joins_once(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79")
    run.until(7)
    run.tell(hold())
    assert set(run.tell(shrink()).values()) == {"accepted"}
    assert set(run.tell(shrink()).values()) == {"repeated"}
    assert set(run.tell(hold()).values()) == {"stale"}
    joined = run.effects("join")
    assert sorted(joined) == [(1, rank) for rank in range(112) if rank != RANK]


def test_an_agent_that_restarts_keeps_its_plan_and_repeats_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79")
    run.until(7)
    run.tell(hold())
    run.tell(shrink())
    agent = run.sim.restart_agent("n001", run.now_ns)
    assert agent.follow(shrink(), run.now_ns).outcome == "repeated"
    assert agent.follow(hold(), run.now_ns).outcome == "stale"
    assert len(run.effects("join")) == 111


def test_an_agent_that_died_between_plan_and_effect_finishes_at_its_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, "xid79")
    run.until(7)
    agent = run.sim.agents["n001"]

    def die(number: int, *rest: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run.sim.job, "join", die)
        with pytest.raises(KeyboardInterrupt):
            agent.follow(shrink(), run.now_ns)
    assert run.effects("join") == []
    run.sim.restart_agent("n001", run.now_ns)
    assert run.effects("join") == [(1, rank) for rank in range(8)]


def test_a_plan_for_another_boot_or_job_does_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.until(2)
    agent = run.sim.agents["n001"]
    other = Plan(job="llama", epoch=0, kind="hold", boot_ids={"n001": "before"})
    assert agent.follow(other, run.now_ns).outcome == "other_boot"
    assert agent.follow(Plan(job="x", epoch=0, kind="hold"), 0).outcome == "unknown_job"
    assert run.journal() == []


def test_an_observing_plan_answers_with_the_state_and_is_not_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.until(3)
    agent = run.sim.agents["n002"]
    answer = agent.follow(Plan(job="llama", epoch=7, kind="observe"), run.now_ns)
    assert [(state.rank, state.stage) for state in answer.ranks] == [
        (rank, "running") for rank in range(8, 16)
    ]
    assert agent.follow(hold(), run.now_ns).outcome == "accepted"


def test_each_change_of_stage_is_reported_with_a_number_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79")
    run.until(7)
    run.tell(hold())
    run.until(8)
    run.tell(shrink())
    run.until(14)
    reports = run.sim.agents[NODE].reports
    assert [report.n for report in reports] == list(range(1, len(reports) + 1))
    stages = [
        next((state.stage, state.epoch) for state in report.ranks if state.rank == RANK - 1)
        for report in reports
    ]
    assert list(dict.fromkeys(stages)) == [("running", 0), ("held", 0), ("running", 1)]


def test_survivors_dump_their_recorders_once_and_the_node_of_the_dead_says_it_has_none(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "rank-exit")
    run.until(20)
    here: list[CollectiveRecorded] = run.seen(CollectiveRecorded)
    assert [each.rank for each in here if each.dump_missing] == [RANK]
    assert len(here) == 8
    there: list[CollectiveRecorded] = run.seen(CollectiveRecorded, "n001")
    assert [each.rank for each in there] == list(range(8))
    assert all(each.groups[0].first_unfinished for each in there)


def test_a_healthy_node_samples_each_second_and_says_what_it_is_made_of(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.until(10)
    samples: list[SampleTaken] = run.seen(SampleTaken, "n016")
    assert len(samples) == 10
    (inventory,) = run.seen(InventoryReported, "n016")
    assert len(inventory.gpus) == 8
    assert run.seen(ProcessExited) == run.seen(CollectiveRecorded) == []


def test_a_lost_node_is_silent_and_its_ranks_are_gone(tmp_path: Path) -> None:
    run = Run(tmp_path, "node-lost")
    run.until(10)
    assert NODE not in run.sim.agents
    assert {run.sim.job.ranks[rank].stage for rank in range(40, 48)} == {"failed"}
    step = run.sim.job.step
    run.until(20)
    assert run.sim.job.step == step


def everywhere(node: str, now_ns: int) -> bool:
    return now_ns > 4 * SECOND


def test_without_the_log_a_healthy_job_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path, away=everywhere, on_log_loss="shrink")
    run.until(60)
    assert run.sim.job.step > 50
    assert run.journal() == []


def test_without_the_log_a_rank_that_works_alone_is_waited_for(tmp_path: Path) -> None:
    run = Run(tmp_path, away=everywhere, on_log_loss="shrink")
    run.sim.inject(plan_faults(CLUSTER, [LoneWork(node=NODE, after_s=5.0, lasts_s=50.0)], 7)[0])
    run.until(90)
    assert run.journal() == []
    assert run.sim.job.step > 30


def test_without_the_log_survivors_are_held_and_wait_for_ever_if_so_told(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79", away=everywhere)
    run.until(90)
    assert run.effects("fence") == [(0, RANK)]
    held = run.effects("hold")
    assert sorted(held) == [(0, rank) for rank in range(112) if rank != RANK]
    assert run.effects("join") == run.effects("start") == []


def test_without_the_log_the_job_shrinks_once_after_the_grace_if_so_told(tmp_path: Path) -> None:
    run = Run(tmp_path, "xid79", away=everywhere, on_log_loss="shrink")
    run.until(20)
    assert run.effects("join") == []
    run.until(60)
    assert sorted(run.effects("join")) == [(1, rank) for rank in range(112) if rank != RANK]
    formed = [t for t in run.truths if isinstance(t, MembershipFormed)]
    assert [(each.epoch, each.world) for each in formed] == [(0, 112), (1, 111)]
    assert formed[-1].redone_count == 0
    run.sim.job.kill(3, -9)
    run.until(150)
    assert {epoch for epoch, _ in run.effects("join")} == {1}
    assert run.sim.job.ranks[4].stage == "held"


def test_without_the_log_the_job_restarts_from_its_checkpoint_if_so_told(tmp_path: Path) -> None:
    run = Run(tmp_path, "rank-exit", away=everywhere, on_log_loss="restart")
    run.until(60)
    assert sorted(run.effects("start")) == [(1, rank) for rank in range(112)]
    assert run.sim.job.restarts_count == 112
    assert run.sim.job.redone_count > 0


def test_a_lost_node_without_the_log_is_left_behind_after_a_wait(tmp_path: Path) -> None:
    run = Run(tmp_path, "node-lost", away=everywhere, on_log_loss="shrink")
    run.until(40 + WAIT_NS / SECOND)
    formed = [t for t in run.truths if isinstance(t, MembershipFormed)]
    assert [(each.epoch, each.world) for each in formed] == [(0, 112), (1, 104)]


def test_half_of_the_nodes_without_the_log_never_go_on_alone(tmp_path: Path) -> None:
    half = CLUSTER.job_nodes[:7]
    run = Run(
        tmp_path,
        "xid79",
        away=lambda node, now_ns: node in half and now_ns > 4 * SECOND,
        on_log_loss="shrink",
    )
    run.until(120)
    assert run.effects("join") == []
    assert [t.epoch for t in run.truths if isinstance(t, MembershipFormed)] == [0]


def test_when_the_log_is_back_an_epoch_that_was_taken_alone_is_not_taken_again(
    tmp_path: Path,
) -> None:
    run = Run(
        tmp_path,
        "xid79",
        away=lambda node, now_ns: 4 * SECOND < now_ns < 50 * SECOND,
        on_log_loss="shrink",
    )
    run.until(55)
    told = [agent.follow(hold(), run.now_ns) for agent in run.sim.agents.values() if agent.ranks]
    assert {(each.outcome, each.members) for each in told} == {("stale", shrink().members)}
    assert set(run.tell(shrink(without=(RANK, 3))).values()) == {"refused"}
    assert set(run.tell(shrink()).values()) == {"repeated"}
    assert len(run.effects("join")) == 111
    assert run.sim.agents[NODE].reports[-1].by == "agent"
