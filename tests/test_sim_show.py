"""Promises of the story: every happening in its words, a repetition in none."""

from io import StringIO
from typing import Any

import msgspec
from rich.console import Console

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, MembershipReported
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import Culprit, Evidence, FaultAttributed
from nemesis.sim.cluster import FaultPlanned, load_cluster
from nemesis.sim.faults import plan_faults
from nemesis.sim.ledger import MembershipFormed, injected
from nemesis.sim.score import FaultScore, Score
from nemesis.sim.show import Line, Show, opening

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
CLUSTER = load_cluster()
GPU = "gpu/n006/0000:9d:00.0"


def show() -> Show:
    return Show(CLUSTER, START)


def fact(data: Any, at_s: float = 8.5) -> Fact:
    at_ns = START + round(at_s * SECOND)
    return Fact(seq=1, kind="k", key="k", id="i", at_ns=at_ns, log_time_ns=0, late=False, data=data)


def flat(lines: list[Line]) -> list[str]:
    return [line.flat().plain for line in lines]


VERDICT = FaultAttributed(
    at_ns=START,
    reason="it fell off",
    incident="i-1",
    revision=0,
    verdict="attributed",
    fault_class="gpu.off_bus",
    culprits=(Culprit(kind="gpu", id=GPU),),
    confidence_ppm=980_000,
    evidence=tuple(Evidence(fact=str(n), says=f"clue {n}", text=f"line {n}") for n in range(6)),
    missing=("a dump",),
)
DECIDED = RecoveryDecided(
    at_ns=START,
    reason="because",
    decision="llama/2",
    incident="i-1",
    mode="act",
    deadline_ns=0,
    action="shrink",
    target="job/llama",
    epoch=1,
    members="0-43,45-111",
    world=111,
    rungs_refused=("swap_node: no spare",),
)
DONE = AttemptCompleted(
    at_ns=START, reason="done", decision="llama/2", actor="a", epoch=1, step=7, world=111
)


def test_a_fault_is_shown_as_what_nemesis_cannot_see() -> None:
    planned = FaultPlanned(kind="xid79", after_s=8.0, node="n006", gpu=4)
    entry = injected(plan_faults(CLUSTER, [planned], 1)[0], START)
    first, second = flat(show().truth(entry))
    assert first == f"00:08.0  LEDGER     GPU off the bus (Xid 79): {GPU} on n006, rank 44"
    assert second.strip() == "ground truth; NEMESIS cannot see this line"


def test_a_verdict_comes_with_its_first_evidence_and_what_is_missing_and_once() -> None:
    story = show()
    lines = flat(story.fact(fact(VERDICT)))
    assert lines[0] == f"00:08.5  VERDICT    gpu.off_bus: {GPU} (attributed, 98 %)"
    assert [line.strip() for line in lines[1:4]] == ["it fell off", "- clue 0", '"line 0"']
    assert [line.strip() for line in lines[-2:]] == ["- and 2 more", "missing: a dump"]
    revised = msgspec.structs.replace(VERDICT, revision=1, confidence_ppm=990_000)
    assert story.fact(fact(revised)) == []
    unnamed = msgspec.structs.replace(VERDICT, culprits=(), verdict="insufficient")
    assert "no component named" in flat(story.fact(fact(unnamed)))[0]


def test_a_shrink_names_members_step_restarts_and_the_measured_time() -> None:
    story = show()
    decision = flat(story.fact(fact(DECIDED)))
    assert decision[0].endswith("shrink job/llama: epoch 1, 111 ranks go on (act)")
    assert decision[2].strip() == "not swap_node: no spare"
    effect = flat(story.fact(fact(DONE), measured_ms=46))
    assert effect[0] == "00:08.5  SHRINK     epoch 1, members 0-43,45-111, world 111"
    assert (
        effect[1].strip()
        == "goes on from step 7, restarts 0, 46 ms measured from decision to effect"
    )


def test_the_end_of_a_hold_is_no_news_and_a_failure_is() -> None:
    story = show()
    hold = QuiesceDecided(
        at_ns=0, reason="r", decision="llama/1", incident="i", mode="act", deadline_ns=0,
        job="llama", epoch=0, dead_ranks=(44,),
    )  # fmt: skip
    assert flat(story.fact(fact(hold)))[0].endswith("hold llama in epoch 0, fence rank 44")
    assert story.fact(fact(msgspec.structs.replace(DONE, decision="llama/1"))) == []
    failed = AttemptFailed(at_ns=0, reason="it did not work", decision="d", actor="a")
    assert flat(story.fact(fact(failed)))[0].endswith("FAILED     it did not work")
    withheld = RecoveryWithheld(
        at_ns=0, reason="a limit", incident="i", action="shrink", target="job/llama"
    )
    assert flat(story.fact(fact(withheld)))[0].endswith("WITHHELD   shrink of job/llama: a limit")
    alone = MembershipReported(at_ns=0, reason="alone", job="llama", epoch=1, members="0")
    assert flat(story.fact(fact(alone)))[0].endswith("RECOVERY   alone")


def test_the_job_goes_on_is_said_once_an_epoch_with_what_was_lost() -> None:
    story = show()
    formed = MembershipFormed(
        at_ns=START + 10 * SECOND, epoch=1, step=8, world=111, redone_count=0, restarts_count=0
    )
    assert story.truth(msgspec.structs.replace(formed, epoch=0)) == []
    lines = flat(story.truth(formed))
    assert lines[0].endswith("step 8 finished in epoch 1 by 111 ranks (-1)")
    assert lines[1].strip().startswith("steps lost 0, process restarts 0")
    assert story.truth(formed) == []


def test_a_failed_score_says_what_was_wrong() -> None:
    lost = FaultScore(
        kind="xid79", culprit=GPU, detected=False, verdict="", named=(), class_right=False,
        culprit_right=False, wrong_blame=(), action="", action_right=False, to_verdict_ms=None,
        to_decision_ms=None, to_resume_ms=None,
    )  # fmt: skip
    score = Score(
        faults=(lost,), false_alarms=(), recovered=False, steps_redone_count=0, restarts_count=0,
        world=112,
    )  # fmt: skip
    text = "\n".join(flat(show().score(score)))
    assert "not detected" in text
    assert "SCORE               FAILED: detected 0/1" in text
    assert "the job did not go on" in text


def test_long_lines_are_wrapped_below_themselves_in_a_terminal() -> None:
    console = Console(file=StringIO(), width=60)
    for line in show().fact(fact(msgspec.structs.replace(VERDICT, reason="so " * 40))):
        console.print(line.wrapped())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    wrapped = [line for line in text.splitlines() if "so so" in line]
    assert len(wrapped) > 1
    assert all(line.startswith(" " * 20 + "so") for line in wrapped)


def test_the_opening_says_that_all_is_synthetic_and_that_it_acts() -> None:
    text = "\n".join(
        line.plain for line in opening(CLUSTER, CLUSTER.scenario[0], seed=7, speed=2.0)
    )
    assert "16 nodes x 8 GPUs" in text
    assert "synthetic" in text
    assert "on a real cluster it is shadow" in text
