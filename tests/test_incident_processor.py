"""Promises of the incident processor: what opens, joins, closes and opens again, and why."""

from typing import Any

import pytest

from nemesis.processors.incident.case import CLOSED_MAX
from nemesis.processors.incident.incident import Incident
from nemesis.processors.incident.names import incident_of
from nemesis.schemas.decided import QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import AttemptCompleted, AttemptFailed
from nemesis.schemas.errors import MalformedFactError
from nemesis.schemas.inferred import (
    Culprit,
    Evidence,
    FailurePredicted,
    FaultAttributed,
    IncidentClosed,
    IncidentGrouped,
    IncidentOpened,
    JobResumed,
)
from nemesis.schemas.observed import NicDescribed
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed
from tests.attribution_log import SECOND_NS, Log

GPU = "gpu/n1/0000:1b:00.0"
EXIT = "n1/process/1/7"


class Story:
    """An incident processor and what happens around it."""

    def __init__(self) -> None:
        self.log = Log(Incident())

    @property
    def said(self) -> list[Any]:
        return [each.data for each in self.log.conclusions]

    @property
    def shape(self) -> list[tuple[str, ...]]:
        """What was said, in short."""
        short: list[tuple[str, ...]] = []
        for data in self.said:
            match data:
                case IncidentOpened():
                    short.append(("opened", data.incident, data.trigger))
                case IncidentGrouped():
                    short.append(("grouped", data.incident, data.member, data.rule))
                case IncidentClosed():
                    short.append(("closed", data.incident, data.outcome))
        return short

    def verdict(
        self, incident: str = "i-1", *culprits: str, verdict: Any = "attributed", **fields: Any
    ) -> None:
        named = tuple(Culprit(kind="gpu", id=name) for name in culprits or (GPU,))
        given: dict[str, Any] = {
            "fault_class": "gpu.off_bus",
            "revision": 0,
            "jobs": ("llama",),
            "culprits": () if verdict == "no-fault" else named,
        } | fields
        data = FaultAttributed(
            at_ns=self.log.now_ns, reason="r", incident=incident, verdict=verdict, **given
        )
        self.log.event("fault_attributed", data)

    def predicted(self, band: Any, incident: str = "i-p", component: str = GPU) -> None:
        data = FailurePredicted(
            at_ns=self.log.now_ns, reason="r", component=component, band=band,
            fault_class="gpu.memory", incident=incident, jobs=("llama",),
        )  # fmt: skip
        self.log.event("failure_predicted", data)

    def held(self, decision: str = "llama/1", incident: str = "i-1") -> None:
        data = QuiesceDecided(
            at_ns=self.log.now_ns, reason="r", decision=decision, incident=incident, mode="act",
            deadline_ns=self.log.now_ns + 5 * SECOND_NS, job="llama", epoch=0,
        )  # fmt: skip
        self.log.event("quiesce_decided", data)

    def decided(self, decision: str = "llama/2", incident: str = "i-1", **fields: Any) -> None:
        given: dict[str, Any] = {
            "mode": "act",
            "action": "shrink",
            "members": "0-6",
            "job": "llama",
        } | fields
        data = RecoveryDecided(
            at_ns=self.log.now_ns, reason="r", decision=decision, incident=incident,
            deadline_ns=self.log.now_ns + 60 * SECOND_NS, target=GPU, **given,
        )  # fmt: skip
        self.log.event("recovery_decided", data)

    def completed(self, decision: str = "llama/2", job: str = "llama") -> None:
        data = AttemptCompleted(
            at_ns=self.log.now_ns, reason="r", decision=decision, actor="a", job=job
        )
        self.log.event("attempt_completed", data)

    def failed(self, decision: str = "llama/2") -> None:
        data = AttemptFailed(
            at_ns=self.log.now_ns, reason="r", decision=decision, actor="a", job="llama"
        )
        self.log.event("attempt_failed", data)

    def withheld(self, limit: str, incident: str = "i-1") -> None:
        data = RecoveryWithheld(
            at_ns=self.log.now_ns, reason="r", incident=incident, action="shrink", target=GPU,
            job="llama", limit=limit,
        )  # fmt: skip
        self.log.event("recovery_withheld", data)

    def resumed(self, decision: str = "llama/2", job: str = "llama") -> None:
        data = JobResumed(at_ns=self.log.now_ns, reason="r", job=job, step=9, decision=decision)
        self.log.event("job_resumed", data)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.log.tick(1)


def test_a_recovery_is_one_incident_that_closes_when_the_job_goes_on() -> None:
    story = Story()
    story.verdict()
    story.held()
    story.completed("llama/1")
    story.decided()
    story.completed()
    story.wait(30)
    assert story.shape == [
        ("opened", "i-1", "verdict"),
        ("grouped", "i-1", "llama/1", "named"),
        ("grouped", "i-1", "llama/2", "named"),
    ]
    story.resumed()
    closed = story.said[-1]
    assert isinstance(closed, IncidentClosed)
    assert (closed.outcome, closed.confirmed) == ("recovered", True)
    assert (closed.culprits, closed.jobs) == ((GPU,), ("llama",))
    assert closed.members == ("llama/1", "llama/2")
    story.wait(2000)
    assert story.said[-1] is closed


def test_an_incident_begins_with_the_earliest_fact_that_its_verdict_cites() -> None:
    story = Story()
    story.wait(10)
    log = story.log
    verdict = FaultAttributed(
        at_ns=log.now_ns, reason="r", incident="i-1", revision=0, verdict="attributed",
        fault_class="nic",
    )  # fmt: skip
    log.event("fault_attributed", verdict)
    (opened,) = story.said
    assert opened.began_ns == log.now_ns
    assert log.conclusions[0].key == "i-1"


def test_a_decision_that_came_before_the_verdict_belongs_to_the_same_incident() -> None:
    story = Story()
    story.held(incident=EXIT)
    story.verdict("i-1", evidence=(Evidence(fact=EXIT, says="it ended"),))
    story.decided(incident="i-1")
    first = incident_of(EXIT)
    assert story.shape == [
        ("opened", first, "decision"),
        ("grouped", first, "llama/1", "named"),
        ("grouped", first, "i-1", "cited"),
        ("grouped", first, "llama/2", "named"),
    ]


def test_what_is_named_after_a_fact_that_the_verdict_cites_is_told_to_belong_to_it() -> None:
    story = Story()
    story.verdict("i-1", evidence=(Evidence(fact=EXIT, says="it ended"),))
    story.predicted("watch", incident=incident_of(EXIT))
    story.decided("llama/1", incident=EXIT)
    assert story.shape[1:] == [
        ("grouped", "i-1", incident_of(EXIT), "cited"),
        ("grouped", "i-1", "llama/1", "named"),
    ]


def test_two_verdicts_that_cite_one_fact_are_not_one_incident_for_it() -> None:
    story = Story()
    shared = (Evidence(fact="clock/tick/1/9", says="it fell silent"),)
    story.verdict("i-1", "node/n1", evidence=shared)
    story.verdict("i-2", "node/n2", evidence=shared)
    assert [each[0] for each in story.shape] == ["opened", "opened"]


def test_a_decision_named_after_the_very_fact_that_opened_the_verdict_needs_no_grouping() -> None:
    story = Story()
    story.held(incident=EXIT)
    story.verdict(incident_of(EXIT))
    assert [each[0] for each in story.shape] == ["opened", "grouped"]
    assert story.shape[0][1] == incident_of(EXIT)


def test_a_verdict_without_a_decision_closes_after_quiet_and_each_revision_delays_it() -> None:
    story = Story()
    story.verdict()
    story.wait(599)
    story.verdict(revision=1)
    story.wait(599)
    assert [each[0] for each in story.shape] == ["opened"]
    story.wait(2)
    assert story.shape[-1] == ("closed", "i-1", "quiet")


@pytest.mark.parametrize(
    ("limit", "outcome"), [("nodes_out_max", "withheld"), ("unanswered", "expired")]
)
def test_what_was_withheld_waits_for_a_person_and_then_closes_as_such(
    limit: str, outcome: str
) -> None:
    story = Story()
    story.verdict()
    story.withheld(limit)
    story.wait(590)
    assert story.shape[-1][0] == "opened"
    story.wait(20)
    assert story.shape[-1] == ("closed", "i-1", outcome)


def test_a_veto_closes_as_vetoed_and_a_failed_attempt_as_failed() -> None:
    for act, outcome in (("veto", "vetoed"), ("fail", "failed")):
        story = Story()
        story.verdict()
        story.decided(mode="approve")
        if act == "veto":
            data = DecisionVetoed(
                at_ns=story.log.now_ns, by="alice", reason="r", decision="llama/2"
            )
            story.log.event("decision_vetoed", data)
        else:
            story.failed()
        story.wait(620)
        assert story.shape[-1] == ("closed", "i-1", outcome)


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"mode": "shadow"}, "advised"),
        ({"mode": "shadow", "action": "watch", "members": ""}, "no_action"),
    ],
)
def test_what_was_only_advised_closes_when_calm(fields: dict[str, str], outcome: str) -> None:
    story = Story()
    story.verdict()
    story.decided(**fields)
    story.wait(118)
    assert story.shape[-1][0] == "grouped"
    story.wait(5)
    assert story.shape[-1] == ("closed", "i-1", outcome)


def test_a_recovery_whose_job_reports_no_steps_closes_unconfirmed() -> None:
    story = Story()
    story.verdict()
    story.decided()
    story.completed()
    story.wait(890)
    assert story.shape[-1][0] == "grouped"
    story.wait(15)
    closed = story.said[-1]
    assert isinstance(closed, IncidentClosed)
    assert (closed.outcome, closed.confirmed) == ("recovered", False)


def test_a_verdict_that_is_taken_back_closes_as_refuted() -> None:
    story = Story()
    story.verdict()
    story.verdict(verdict="no-fault", fault_class="none", revision=1)
    story.wait(125)
    assert story.shape == [("opened", "i-1", "verdict"), ("closed", "i-1", "refuted")]
    assert story.said[-1].culprits == ()


def test_a_later_fact_opens_a_closed_incident_again_under_its_name() -> None:
    story = Story()
    story.verdict()
    story.wait(610)
    story.verdict(revision=1)
    story.wait(610)
    assert story.shape == [
        ("opened", "i-1", "verdict"),
        ("closed", "i-1", "quiet"),
        ("opened", "i-1", "reopened"),
        ("closed", "i-1", "quiet"),
    ]
    assert [data.revision for data in story.said] == [0, 0, 1, 1]


def test_a_prediction_stays_open_while_it_is_in_force_and_a_record_opens_nothing() -> None:
    story = Story()
    story.predicted("record")
    assert story.said == []
    story.predicted("watch")
    story.wait(2000)
    story.predicted("clear")
    assert story.shape == [("opened", "i-p", "prediction"), ("closed", "i-p", "cleared")]


def test_the_failure_of_what_was_predicted_belongs_to_the_prediction() -> None:
    story = Story()
    story.predicted("watch")
    story.wait(3000)
    story.verdict("i-1", fault_class="gpu.memory")
    assert story.shape[1:] == [("grouped", "i-p", "i-1", "predicted")]
    story.decided(incident="i-1")
    story.completed()
    story.resumed()
    assert story.shape[-1] == ("closed", "i-p", "recovered")
    assert story.said[-1].culprits == (GPU,)


def test_a_prediction_about_what_is_known_to_be_at_fault_opens_nothing() -> None:
    story = Story()
    story.verdict("i-1")
    story.predicted("act")
    assert story.shape[1:] == [("grouped", "i-1", "i-p", "component")]


def test_a_culprit_that_explains_what_was_heard_before_takes_the_lead() -> None:
    story = Story()
    story.verdict("i-1", "rank/llama/4", fault_class="unknown")
    story.verdict("i-2", "nic/n1/mlx5_0", fault_class="nic", victims=("rank/llama/4",))
    assert story.shape[1:] == [("grouped", "i-1", "i-2", "victim")]
    story.verdict("i-1", "rank/llama/4", fault_class="unknown", revision=1)
    story.wait(700)
    assert story.said[-1].culprits == ("nic/n1/mlx5_0",)
    assert story.said[-1].fault_class == "nic"


def test_victims_of_an_open_incident_do_not_become_its_culprits() -> None:
    story = Story()
    story.verdict("i-1", "nic/n1/mlx5_0", fault_class="nic", victims=("rank/llama/4",))
    story.verdict("i-2", "rank/llama/4", fault_class="unknown")
    assert story.shape[1:] == [("grouped", "i-1", "i-2", "victim")]
    story.wait(700)
    assert story.said[-1].culprits == ("nic/n1/mlx5_0",)


def test_links_of_one_leaf_within_two_minutes_are_one_incident_and_later_ones_are_not() -> None:
    story = Story()
    for node in ("n1", "n2", "n3"):
        story.log.inventory(node, nics=(NicDescribed(name="mlx5_0", switch_port="port/leaf1/1"),))
    story.verdict("i-1", "link/n1/mlx5_0", fault_class="network.link")
    story.verdict("i-2", "nic/n2/mlx5_0", fault_class="nic")
    story.verdict("i-3", "gpu/n3/0000:1b:00.0")
    story.wait(130)
    story.verdict("i-4", "link/n3/mlx5_0", fault_class="network.link")
    assert story.shape == [
        ("opened", "i-1", "verdict"),
        ("grouped", "i-1", "i-2", "leaf"),
        ("opened", "i-3", "verdict"),
        ("opened", "i-4", "verdict"),
    ]


def test_two_open_incidents_that_turn_out_to_be_one_become_the_older_one() -> None:
    story = Story()
    story.verdict("i-1", GPU)
    story.verdict("i-2", "rank/other/3", fault_class="unknown", jobs=("other",))
    story.decided("other/1", incident="i-2")
    story.verdict("i-2", GPU, revision=1, jobs=("llama", "other"))
    assert story.shape[-1] == ("grouped", "i-1", "i-2", "component")
    story.completed("other/1")
    story.resumed("other/1")
    closed = story.said[-1]
    assert closed.incident == "i-1"
    assert set(closed.members) == {"other/1", "i-2"}


def test_two_faults_of_two_nodes_stay_two_incidents() -> None:
    story = Story()
    story.verdict("i-1", GPU)
    story.verdict("i-2", "gpu/n2/0000:1b:00.0")
    assert [each[0] for each in story.shape] == ["opened", "opened"]


def test_a_leap_of_log_time_is_no_quiet() -> None:
    story = Story()
    story.verdict()
    story.wait(100)
    story.log.tick(5000)
    story.wait(400)
    assert [each[0] for each in story.shape] == ["opened"]


def test_what_nobody_knows_is_borne_and_says_nothing() -> None:
    story = Story()
    story.completed("llama/99")
    story.resumed("llama/99")
    story.verdict("i-9", verdict="no-fault", fault_class="none")
    story.predicted("clear")
    assert story.said == []
    with pytest.raises(MalformedFactError):
        Incident().configure(b'{"x": 1}')


def test_what_names_no_incident_opens_none() -> None:
    story = Story()
    story.held(incident="")
    story.decided(incident="")
    story.withheld("calm", incident="")
    assert story.said == []


def test_a_prediction_that_is_taken_back_after_the_failure_closes_nothing() -> None:
    story = Story()
    story.predicted("watch")
    story.verdict("i-1", fault_class="gpu.memory")
    story.predicted("clear")
    assert story.shape[-1] == ("grouped", "i-p", "i-1", "predicted")


def test_a_recovery_that_is_given_up_leaves_the_incident_to_a_person() -> None:
    story = Story()
    story.verdict()
    story.decided(mode="approve")
    story.withheld("calm")
    story.wait(590)
    assert story.shape[-1][0] == "grouped"
    story.wait(15)
    assert story.shape[-1] == ("closed", "i-1", "withheld")


def test_a_decision_that_a_person_approved_and_nobody_carried_out_expires() -> None:
    story = Story()
    story.verdict()
    story.decided(mode="approve")
    story.wait(50)
    approved = DecisionApproved(at_ns=story.log.now_ns, by="a", reason="r", decision="llama/2")
    story.log.event("decision_approved", approved)
    story.wait(590)
    assert story.shape[-1][0] == "grouped"
    story.wait(15)
    assert story.shape[-1] == ("closed", "i-1", "expired")


def test_a_hold_that_fails_is_no_failed_recovery() -> None:
    story = Story()
    story.verdict()
    story.held()
    story.failed("llama/1")
    story.wait(605)
    assert story.shape[-1] == ("closed", "i-1", "advised")


def test_an_incident_of_two_jobs_is_over_when_both_go_on() -> None:
    story = Story()
    story.verdict(jobs=("llama", "other"))
    for job in ("llama", "other"):
        story.decided(f"{job}/2", job=job)
        story.completed(f"{job}/2", job=job)
    story.resumed("llama/2")
    assert story.shape[-1][0] == "grouped"
    story.resumed("nobody/2", job="nobody")
    assert story.shape[-1][0] == "grouped"
    story.resumed("other/2", job="other")
    assert story.shape[-1] == ("closed", "i-1", "recovered")


def test_the_state_stays_small_however_many_incidents_there_were() -> None:
    story = Story()
    sizes = []
    for round_ in range(3):
        for number in range(CLOSED_MAX):
            story.verdict(f"i-{round_}-{number:04d}", f"gpu/n{number}/0000:1b:00.0")
        story.wait(1)
        for _ in range(650):
            story.log.tick(1)
        sizes.append(len(story.log.processor.snapshot()))
    assert sizes[2] <= sizes[1] * 1.05
