"""What a job tells of its state: checkpoints that it wrote, checksums of its parameters."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.actors.agent import watch
from nemesis.actors.agent.launch import Launch
from nemesis.actors.agent.ranks import Rank
from nemesis.actors.agent.roster import Roster
from nemesis.actors.agent.starter import Starter
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided
from nemesis.schemas.done import AttemptCompleted, AttemptStarted
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.plans import Plan
from nemesis.schemas.saved import CheckpointWritten
from nemesis.training.membership import State
from nemesis.training.wire import Standing
from tests.healer_cell import ACT, Cell
from tests.log_cell import SECOND_NS
from tests.training.cell import has_torch, torch_python, training_cell

pytestmark = pytest.mark.torch
OVER_S = 90.0


@pytest.fixture
def torch_there() -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")


def told_by(rank: Rank, step: int) -> None:
    """A rank has made a step, and its checksum."""
    standing = Standing(
        rank=0,
        pid=rank.pid,
        stage="training",
        epoch=0,
        state=State(0, step),
        checksum=1000 + step,
        checked_step=step,
    )
    rank.heard(standing, None, 0)  # type: ignore[arg-type]


@given(
    every=st.integers(1, 12),
    steps_per_poll=st.integers(1, 40),
    phases=st.lists(st.integers(0, 39), min_size=2, max_size=5),
)
def test_nodes_that_are_read_at_other_moments_tell_of_one_same_step_again_and_again(
    every: int, steps_per_poll: int, phases: list[int]
) -> None:
    async def run() -> int:
        ranks = [Rank(at, os.getpid(), 0, lambda rank: None) for at in range(len(phases))]
        told: dict[int, tuple[int, int]] = {}
        agreed: set[int] = set()
        for step in range(1, 24 * max(steps_per_poll, every)):
            for at, (rank, phase) in enumerate(zip(ranks, phases, strict=True)):
                if step % every == 0:
                    told_by(rank, step)
                if (step + phase) % steps_per_poll == 0:
                    told[at] = rank.checked()
            if len(told) == len(ranks) and len(set(told.values())) == 1:
                agreed.add(told[0][0])
        return len(agreed - {0})

    assert asyncio.run(run()) >= 2


def test_who_is_started_anew_finds_why_and_from_what_in_its_environment(tmp_path: Path) -> None:
    command = ("sh", "-c", "env | grep ^NEMESIS_ | sort; echo end")

    async def run(plan: Plan) -> dict[str, str]:
        log = tmp_path / f"rank_{plan.epoch}.log"
        launch = Launch(node="n", job="llama", ranks=(plan.epoch,), world=1, command=command)
        ranks: dict[int, Rank] = {}
        starter = Starter(launch, tmp_path, Roster(tmp_path / "r"), ranks, lambda rank: None)
        starter.start(plan.epoch, 1, None, store="h:1", state_from=plan.state_from, plan=plan)
        while not log.read_text().endswith("end\n"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ranks[plan.epoch].wait()
        return dict(line.split("=", 1) for line in log.read_text().splitlines()[:-1])

    base: dict[str, Any] = {"job": "llama", "kind": "membership", "why": "rank 1 is lost"}
    plan = Plan(epoch=0, state_from="checkpoint", step=120, checkpoint="/c/120", **base)
    found = asyncio.run(run(plan))
    assert (found["NEMESIS_CHECKPOINT"], found["NEMESIS_CHECKPOINT_STEP"]) == ("/c/120", "120")
    assert (found["NEMESIS_WHY"], found["NEMESIS_STATE_FROM"]) == ("rank 1 is lost", "checkpoint")
    assert "NEMESIS_CHECKPOINT" not in asyncio.run(run(Plan(epoch=1, state_from="peer", **base)))


def test_a_restart_says_from_which_step_and_how_many_are_done_again() -> None:
    cell = Cell(policy=ACT | {"playbooks": {"unknown": ["restart_job"]}})
    cell.submit()
    told: dict[str, Any] = {
        "node": "n0",
        "start_ns": 1,
        "at_ns": cell.now_ns,
        "job": "llama",
        "rank": 0,
    }
    for n, step in enumerate((100, 120), start=1):
        fact = CheckpointWritten(n=n, step=step, path=f"/c/{step}", **told)
        cell.observe("checkpoint", fact)
    cell.exit(3)
    decision = cell.last(QuiesceDecided).decision
    cell.attempt(AttemptStarted, decision, deadline_ns=cell.now_ns + 30 * SECOND_NS)
    cell.attempt(AttemptCompleted, decision, lost="3", step=134)
    cell.tick(2)
    recovery = cell.last(RecoveryDecided)
    assert (recovery.checkpoint, recovery.checkpoint_step) == ("/c/120", 120)
    assert recovery.reason.endswith(
        "8 started anew from the checkpoint of step 120, 14 steps are done again."
    )


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_a_job_that_lost_all_its_ranks_goes_on_from_its_checkpoint_as_it_went_before(
    tmp_path: Path,
) -> None:
    async def run() -> RecoveryDecided:
        environment = {"STEPS": "1000000", "FATE": "", "SAVE": "8"}
        async with training_cell(tmp_path, torch_python(), environment=environment) as cell:
            [agent] = cell.agents
            async with asyncio.timeout(OVER_S):
                while not (tmp_path / "saved_24.pt").exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.3)  # what was told is in the log before all are dead
                for rank in agent.ranks.values():
                    os.kill(rank.pid, signal.SIGKILL)
                before = len(cell.told(1))
                while len(cell.told(1)) < before + 40:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            events = [fact.data for fact in await cell.events()]
            return next(each for each in events if isinstance(each, RecoveryDecided))

    recovery = asyncio.run(run())
    assert (recovery.action, recovery.started) == ("restart_job", "0-3")
    lines = (tmp_path / "rank_1.txt").read_text().splitlines()
    steps = [int(line.split()[0]) for line in lines]
    anew = next(at for at, step in enumerate(steps) if at and step <= steps[at - 1])
    assert steps[anew] == recovery.checkpoint_step + 1 > 24
    assert steps[:anew] == list(range(1, anew + 1))
    again = dict(zip(steps[anew:], lines[anew:], strict=True))
    assert [again.get(step, line) for step, line in zip(steps[:anew], lines, strict=False)] == (
        lines[:anew]
    )
    assert sorted(again) == list(range(steps[anew], steps[anew] + len(again)))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("torch_there")
def test_a_rank_whose_parameters_were_altered_in_silence_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PERIOD_NS", SECOND_NS)

    async def run() -> FaultAttributed:
        environment = {"STEPS": "1000000", "FATE": "alter:2@40", "CHECK": "10"}
        async with training_cell(tmp_path, torch_python(), environment=environment) as cell:
            async with asyncio.timeout(OVER_S):
                while True:
                    for fact in await cell.events():
                        if isinstance(fact.data, FaultAttributed):
                            return fact.data
                    await asyncio.sleep(0.2)

    verdict = asyncio.run(run())
    assert verdict.fault_class == "silent_corruption"
    assert [each.id for each in verdict.culprits] == ["rank/llama/2"]


CHECKSUMS = """
import torch
from nemesis.training.checksum import checksum

def of(kind, shift=0, changed=False):
    memory = torch.zeros(40, dtype=kind)
    memory[shift : shift + 21] = torch.linspace(-1, 1, 21).to(kind)
    if changed:
        memory[shift + 7] = torch.nextafter(memory[shift + 7], torch.tensor(9.0, dtype=kind))
    module = torch.nn.Module()
    module.one = torch.nn.Parameter(memory[shift : shift + 20])
    module.two = torch.nn.Parameter(memory[shift + 20])
    return int(checksum(torch, [module]))

for kind in (torch.float32, torch.float64, torch.bfloat16):
    print(of(kind) == of(kind, shift=1), of(kind) != of(kind, changed=True))
"""


@pytest.mark.usefixtures("torch_there")
def test_a_checksum_changes_with_one_bit_and_not_with_the_place_in_memory() -> None:
    there = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])}
    ran = subprocess.run(
        [torch_python(), "-c", CHECKSUMS], env=there, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True True\n" * 3
