"""Promises of the story: every happening in its words, a repetition in none."""

from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console

from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptFailed, MembershipReported
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import Culprit, Evidence, FaultAttributed
from nemesis.sim.cell import PARTS
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.planned import KINDS
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.show import Line, Show, look_further, opening
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.ledger import MembershipFormed, injected
from nemesis.sim.truth.score import FaultScore, Score
from nemesis.sim.watcher import lag_ns
from tests.commands import nemesis
from tests.planned import planned

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
    plan = planned("xid79", after_s=8.0, node="n006", gpu=4)
    entry = injected(plan_faults(CLUSTER, [plan], 1)[0], START)
    first, second = flat(show().truth(entry))
    assert first == f"00:08.0  LEDGER     GPU off the bus (Xid 79): {GPU}, rank 44"
    assert second.strip() == "ground truth; NEMESIS cannot see this line"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_of_any_kind_is_told_in_words(kind: str) -> None:
    plan = planned("xid79", after_s=8.0, node="n006", gpu=4)
    entry = msgspec.structs.replace(injected(plan_faults(CLUSTER, [plan], 1)[0], START), kind=kind)
    said = flat(show().truth(entry))[0].removeprefix("00:08.0  LEDGER     ")
    what, _, rest = said.partition(": ")
    assert " " in what
    assert what.count("(") == what.count(")")
    assert rest.startswith(GPU)


def test_a_verdict_comes_with_its_first_evidence_and_what_is_missing_and_once() -> None:
    story = show()
    lines = flat(story.fact(fact(VERDICT)))
    assert lines[0] == f"00:08.5  VERDICT    gpu.off_bus: {GPU} (attributed, 98 %), incident i-1"
    assert [line.strip() for line in lines[1:4]] == ["it fell off", "- clue 0", '"line 0"']
    assert [line.strip() for line in lines[-2:]] == ["- and 2 more", "missing: a dump"]
    revised = msgspec.structs.replace(VERDICT, revision=1, confidence_ppm=990_000)
    assert story.fact(fact(revised)) == []
    unnamed = msgspec.structs.replace(VERDICT, culprits=(), verdict="insufficient")
    assert "no component named" in flat(story.fact(fact(unnamed)))[0]


def test_what_several_incidents_lack_alike_is_listed_once() -> None:
    story = show()
    one = msgspec.structs.replace(VERDICT, culprits=(), verdict="insufficient")
    other = msgspec.structs.replace(one, incident="i-2", reason="another node")
    assert any("missing: a dump" in line for line in flat(story.fact(fact(one))))
    head, reason = flat(story.fact(fact(other)))
    assert head.endswith("incident i-2")
    assert reason.strip() == "another node"


def test_a_switch_is_on_no_node() -> None:
    plan = planned("xid79", after_s=8.0, node="n006", gpu=4)
    entry = injected(plan_faults(CLUSTER, [plan], 1)[0], START)
    entry = msgspec.structs.replace(entry, kind="switch-down", culprit="switch/leaf01")
    assert flat(show().truth(entry))[0].endswith("stops: switch/leaf01, rank 44")


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


def test_a_plan_that_is_decided_anew_is_one_line() -> None:
    story = show()
    story.fact(fact(DECIDED))
    anew = msgspec.structs.replace(DECIDED, decision="llama/3", job_revision=9)
    assert flat(story.fact(fact(anew))) == [
        "00:08.5  DECISION   shrink again as llama/3: the log moved on under the other"
    ]
    effect = flat(story.fact(fact(msgspec.structs.replace(DONE, decision="llama/3"))))
    assert "SHRINK" in effect[0]


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
    later = msgspec.structs.replace(failed, withdrawn=True)
    assert flat(story.fact(fact(later)))[0].endswith("WITHDRAWN  d makes way for a later decision")
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
        world=112, broken=("the job did not go on",),
    )  # fmt: skip
    text = "\n".join(flat(show().score(score)))
    assert "not detected" in text
    assert "SCORE               FAILED: detected 0/1" in text
    assert "the job did not go on" in text
    assert "did not keep up" not in text
    slow = "\n".join(flat(show().score(score, is_behind=True)))
    assert "this machine did not keep up, late nodes look silent" in slow


def test_a_verdict_before_the_fault_is_told_as_such() -> None:
    early = FaultScore(
        kind="ecc-precursor", culprit=GPU, detected=True, verdict="attributed", named=(GPU,),
        class_right=True, culprit_right=True, wrong_blame=(), action="shrink", action_right=True,
        to_verdict_ms=-25_980, to_decision_ms=120, to_resume_ms=3_540,
    )  # fmt: skip
    score = Score(
        faults=(early,), false_alarms=(), recovered=True, steps_redone_count=0, restarts_count=0,
        world=111, broken=(),
    )  # fmt: skip
    text = "\n".join(flat(show().score(score)))
    assert "verdict 25.98 s before it, decision after 0.12 s" in text


def test_long_lines_are_wrapped_below_themselves_in_a_terminal() -> None:
    console = Console(file=StringIO(), width=60)
    for line in show().fact(fact(msgspec.structs.replace(VERDICT, reason="so " * 40))):
        console.print(line.wrapped())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    wrapped = [line for line in text.splitlines() if "so so" in line]
    assert len(wrapped) > 1
    assert all(line.startswith(" " * 20 + "so") for line in wrapped)


def test_in_a_narrow_terminal_no_word_breaks_and_a_quote_keeps_its_indent() -> None:
    quote = "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', GPU has fallen off the bus."
    said = msgspec.structs.replace(
        VERDICT, evidence=(Evidence(fact="f", says="Xid 79", text=quote),)
    )
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    for line in show().fact(fact(said)):
        console.print(line.wrapped())
    wrapped = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= 80 for line in wrapped)
    assert set(quote.split()[1:-1]) <= {word for line in wrapped for word in line.split()}
    start = next(at for at, line in enumerate(wrapped) if "NVRM" in line)
    assert [line[:22].strip() for line in wrapped[start : start + 2]] == ["", ""]
    assert not wrapped[start + 1][22].isspace()


def test_a_job_that_stands_still_says_what_it_costs() -> None:
    story = show()
    plan = planned("xid79", after_s=8.0, node="n006", gpu=4)
    story.truth(injected(plan_faults(CLUSTER, [plan], 1)[0], START))
    (line,) = flat(story.waiting(START + 44 * SECOND))
    assert line == (
        "00:44.0  WAITING    no step is finished: 112 GPUs idle for 36 s, 1.1 GPU hours (simulated)"
    )


def test_a_machine_that_does_not_keep_up_is_named() -> None:
    (line,) = flat(show().too_slow(10.0))
    assert line.strip() == "this machine is too slow for --speed 10: times below are its own"


def test_an_answer_lags_by_what_no_tick_explains() -> None:
    late = fact(VERDICT, at_s=9.5)
    assert lag_ns(late) == 1_790_000_009_500_000_000 - 1_000_000_000
    at_once = msgspec.structs.replace(late, log_time_ns=START + 9 * SECOND)
    assert lag_ns(at_once) < 0


def test_the_end_names_the_commands_that_show_more() -> None:
    text = [line.strip() for line in flat(look_further(["i-1"], cell="demo", following=False))]
    assert text[1] == "to look further: nemesis demo --follow; then, in another terminal:"
    assert text[2] == "nemesis incident --cell demo i-1"


def test_the_help_of_without_names_every_part() -> None:
    told = nemesis("demo", "--help", COLUMNS="200").stdout
    (line,) = [line for line in told.splitlines() if "--without" in line]
    assert all(part in line for part in PARTS)


def test_the_opening_says_that_all_is_synthetic_and_that_it_acts() -> None:
    text = "\n".join(
        line.plain for line in opening(CLUSTER, scenario_named("gpu-off-bus"), seed=7, speed=2.0)
    )
    assert "16 nodes x 8 GPUs" in text
    assert "on 112 ranks, 2 nodes are spare" in text
    assert "shrink before a swap" in text
    assert "synthetic" in text
    assert "on a real cluster it is shadow" in text
