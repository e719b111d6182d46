"""Promises of incidents for people: what belongs together, how it ended, its story."""

from pathlib import Path

import msgspec
import pytest

from nemesis.processors.fold import Input
from nemesis.processors.incident.names import incident_of
from nemesis.replay.reader import Recording
from nemesis.schemas import decided, done, inferred, operated
from nemesis.schemas.channels import (
    ABSENT,
    GPU_CHANNELS,
    HOST_CHANNELS,
    NIC_CHANNELS,
    STEP_CHANNELS,
)
from nemesis.schemas.facts import Record, encode_observation
from nemesis.schemas.inferred import Culprit, Evidence, FaultAttributed
from nemesis.schemas.observed import SampleTaken
from nemesis.views.incidents import Incident, Incidents, NoIncidentError, first_seen, found
from nemesis.views.shown import as_document, blocks_of, event_line, telemetry_line
from nemesis.views.stories import as_document as incident_document
from nemesis.views.stories import headline, story, verdict_text
from tests.replay_logs import START_NS, Log

RECORDINGS = Path(__file__).parent / "recordings"


def verdict(**fields: object) -> FaultAttributed:
    known: dict[str, object] = {
        "at_ns": START_NS, "reason": "the GPU is gone", "incident": "i-1", "revision": 0,
        "verdict": "attributed", "fault_class": "gpu.off_bus", "jobs": ("llama",),
        "culprits": (Culprit(kind="gpu", id="gpu/n1/0000:1b:00.0"),), "confidence_ppm": 980_000,
        "claimed_ppm": 850_000,
        "evidence": (Evidence(fact="n1/kernel/1/1", says="Xid 79", text="NVRM: Xid 79"),),
        "victims": ("rank/llama/1",),
    }  # fmt: skip
    return msgspec.convert(known | fields, FaultAttributed)


def recovery(**fields: object) -> decided.RecoveryDecided:
    known: dict[str, object] = {
        "at_ns": START_NS + 10**9, "reason": "a rank is lost", "decision": "llama/1",
        "incident": "i-1", "mode": "act", "deadline_ns": 1, "job": "llama", "action": "shrink",
        "target": "job/llama",
    }  # fmt: skip
    return msgspec.convert(known | fields, decided.RecoveryDecided)


def attempt(struct: type[done.Attempt]) -> done.Attempt:
    return struct(at_ns=START_NS + 2 * 10**9, reason="tried", decision="llama/1", actor="a1")


def of(*facts: msgspec.Struct) -> Incident:
    """The one incident in a log of these facts, a second apart, whatever they say of the time."""
    log = Log()
    log.kernel()
    for number, data in enumerate(facts):
        log.event(data, key=f"k{number}")
        log.second += 1
    (incident,) = Incidents(log.records).by_id.values()
    return incident


VETO = operated.DecisionVetoed(at_ns=START_NS, by="bob", reason="not now", decision="llama/1")
APPROVAL = operated.DecisionApproved(at_ns=START_NS, by="bob", reason="yes", decision="llama/1")
ASKED = msgspec.structs.replace(recovery(), mode="approve", members="0-2")
WITHHELD = decided.RecoveryWithheld(
    at_ns=START_NS, reason="too many", incident="i-1", action="drain_node", target="node/n1",
    limit="nodes_out_max",
)  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ([verdict()], "no action"),
        ([verdict(), recovery()], "open"),
        ([verdict(), recovery(), attempt(done.AttemptStarted)], "open"),
        ([verdict(), recovery(), attempt(done.AttemptCompleted)], "recovered"),
        ([verdict(), recovery(), attempt(done.AttemptFailed)], "failed"),
        ([verdict(), recovery(), attempt(done.AttemptOutcomeUnknown)], "unknown"),
        ([verdict(), recovery(), VETO], "vetoed"),
        ([verdict(), WITHHELD], "withheld"),
        ([verdict(), msgspec.structs.replace(WITHHELD, limit="expired")], "expired"),
        ([verdict(), ASKED], "waits for approval"),
        ([verdict(), ASKED, VETO, ASKED], "waits for approval"),
        ([verdict(), ASKED, APPROVAL], "open"),
        ([verdict(), ASKED, attempt(done.AttemptStarted)], "open"),
    ],
)
def test_an_incident_ends_as_its_last_deed_says(facts: list[msgspec.Struct], outcome: str) -> None:
    incident = of(*facts)
    assert incident.outcome == outcome
    assert headline(incident).endswith(f"i-1  gpu/n1/0000:1b:00.0: gpu.off_bus  {outcome}")
    assert len(incident.entries) == len(facts)


def test_the_story_tells_verdict_evidence_innocents_and_each_deed_with_its_time() -> None:
    hold = decided.QuiesceDecided(
        at_ns=START_NS + 10**9, reason="wait", decision="llama/0", incident="i-1", mode="act",
        deadline_ns=1, job="llama", epoch=0,
    )  # fmt: skip
    note = operated.NoteAdded(at_ns=START_NS, by="al", reason="r", incident="i-1", text="swap it")
    incident = of(
        verdict(), hold, recovery(), attempt(done.AttemptStarted), attempt(done.AttemptCompleted),
        WITHHELD, VETO, note,
    )  # fmt: skip
    lines = story(incident)
    assert lines[:8] == [
        "incident i-1",
        "verdict  gpu/n1/0000:1b:00.0: gpu.off_bus",
        "         the GPU is gone",
        "         confidence 98 %; its rule claims 85 %",
        "evidence Xid 79 (n1/kernel/1/1)",
        "         > NVRM: Xid 79",
        "innocent rank/llama/1",
        "outcome  vetoed",
    ]
    assert lines[8] == "job      llama"
    assert (
        lines[10] == "from 2023-11-14T22:13:20.000Z, by the time at which the server stored each:"
    )
    deeds = "\n".join(lines[11:])
    assert "   +0.000 s         2 fault_attributed       the GPU is gone" in deeds
    assert "   +1.000 s         3 quiesce_decided        hold llama in epoch 0 (act): wait" in deeds
    assert "shrink on job/llama (act): a rank is lost" in deeds
    assert "llama/1 by a1, world 0: tried" in deeds
    assert "drain_node on node/n1 withheld by nodes_out_max: too many" in deeds
    assert "bob: not now" in deeds
    assert "al: swap it" in deeds


def test_effect_never_comes_before_cause_though_conclusions_carry_whole_ticks() -> None:
    log = Log()
    log.kernel()
    log.records[-1] = msgspec.structs.replace(log.records[-1], stored_ns=START_NS + 200_000_000)
    said = [verdict(at_ns=START_NS), recovery(at_ns=START_NS), attempt(done.AttemptCompleted)]
    for number, data in enumerate(said):
        seq = log.event(data, key=f"k{number}")
        stored_ns = START_NS + 300_000_000 * (number + 1)
        log.records[seq - 1] = msgspec.structs.replace(log.records[seq - 1], stored_ns=stored_ns)
    (incident,) = Incidents(log.records).by_id.values()
    assert incident.duration_ns == 600_000_000
    incident.first_seen = first_seen(log.records[0])
    times = [line.split(" s ")[0].strip() for line in story(incident) if " s  " in line]
    assert times == ["+0.000", "+0.300", "+0.600", "+0.900"]
    document = incident_document(incident)
    assert (document["began_ns"], document["duration_ns"]) == (START_NS, 900_000_000)
    assert [each["log_time_ns"] - START_NS for each in document["events"]] == [0, 0, 2 * 10**9]
    assert [each["stored_ns"] - START_NS for each in document["events"]] == [
        300_000_000, 600_000_000, 900_000_000,
    ]  # fmt: skip


def test_a_producer_whose_clock_is_ahead_saw_it_no_later_than_it_was_stored() -> None:
    log = Log()
    log.second = 5
    log.kernel()
    early = msgspec.structs.replace(log.records[-1], stored_ns=START_NS)
    seen = first_seen(early)
    assert seen is not None
    assert (seen.at_ns, seen.node, seen.fact) == (START_NS, "n1", "kernel")
    log.event(verdict(), key="k")
    assert first_seen(log.records[-1]) is None


def test_who_cannot_be_named_is_not_named() -> None:
    incident = of(
        verdict(verdict="insufficient", fault_class="unknown", culprits=(), missing=("the dumps",))
    )
    assert verdict_text(incident) == "insufficient: unknown"
    assert "collect  the dumps" in story(incident)


def test_a_later_verdict_replaces_an_earlier_one() -> None:
    incident = of(verdict(), verdict(revision=1, fault_class="nvlink"))
    assert incident.verdict is not None
    assert incident.verdict.fault_class == "nvlink"


def test_an_incident_without_a_verdict_says_so() -> None:
    assert verdict_text(of(WITHHELD)) == "no verdict"


def test_a_decision_before_the_verdict_belongs_to_the_incident_of_the_fact_it_answers() -> None:
    early = recovery(incident="n1/process/1/1", decision="llama/0")
    cites = verdict(evidence=(Evidence(fact="n1/process/1/1", says="rank 8 exited"),))
    late = recovery(incident="n1/process/1/1")
    log = Log()
    for number, data in enumerate((early, verdict(incident="i-9"), cites, late)):
        log.event(data, key=f"k{number}")
    incidents = Incidents(log.records)
    first = incident_of("n1/process/1/1")
    assert list(incidents.by_id) == [first, "i-9"]
    joined = found(incidents, "n1/process/1/1")
    assert joined is found(incidents, "i-1")
    assert joined.id == first
    assert [entry.seq for entry in joined.entries] == [1, 3, 4]


def test_an_incident_holds_what_was_grouped_with_it_and_ends_as_it_was_closed() -> None:
    log = Log()
    grouped = inferred.IncidentGrouped(
        at_ns=START_NS, reason="r", incident="i-1", member="i-2", rule="victim"
    )
    closed = inferred.IncidentClosed(
        at_ns=START_NS, reason="r", incident="i-1", outcome="no_action"
    )
    for number, data in enumerate(
        (verdict(incident="i-1"), verdict(incident="i-2"), grouped, closed, verdict(incident="i-2"))
    ):
        log.event(data, key=f"k{number}")
    incidents = Incidents(log.records)
    assert list(incidents.by_id) == ["i-1"]
    assert found(incidents, "i-2").outcome == "no action"
    assert [entry.seq for entry in found(incidents, "i-1").entries] == [1, 2, 3, 4, 5]


def test_a_prediction_for_the_record_opens_no_incident() -> None:
    log = Log()
    for band in ("record", "clear", "watch", "clear"):
        predicted = inferred.FailurePredicted(
            at_ns=START_NS, reason="r", component="gpu/n1/0000:1b:00.0", band=band,
            fault_class="gpu.memory", incident="i-1",
        )  # fmt: skip
        log.event(predicted, key="i-1")
    (incident,) = Incidents(log.records).by_id.values()
    assert [entry.data.band for entry in incident.entries] == ["watch", "clear"]


def test_facts_that_name_no_incident_belong_to_none() -> None:
    log = Log()
    log.activate()
    log.event(VETO, key="llama/1")
    log.add("nemesis.events.note_added.i", b"broken")
    assert Incidents(log.records).by_id == {}


def test_an_incident_is_found_by_the_beginning_of_its_id() -> None:
    log = Log()
    for name in ("i-abc", "i-abd", "j-1"):
        log.event(verdict(incident=name), key=name)
    incidents = Incidents(log.records)
    assert found(incidents, "j").id == "j-1"
    assert found(incidents, "i-abd").id == "i-abd"
    with pytest.raises(NoIncidentError, match="2 incidents begin with 'i-ab'"):
        found(incidents, "i-ab")
    with pytest.raises(NoIncidentError, match="no incident 'x'"):
        found(incidents, "x")


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.zst")), ids=lambda path: path.stem)
def test_an_incident_of_each_recording_was_recovered(path: Path) -> None:
    incidents = Incidents(Recording(path).records()).by_id.values()
    (recovered,) = [incident for incident in incidents if incident.outcome == "recovered"]
    assert recovered.job == "llama"
    assert recovered.verdict is not None
    assert 0 < recovered.first_seq < recovered.last_seq


# One line each


def test_blocks_of_a_sample_have_names_and_say_what_was_not_read() -> None:
    gpu = b"".join(value.to_bytes(8, "little", signed=True) for value in (5, ABSENT, 7, 0))
    sample = SampleTaken(node="n1", start_ns=1, n=1, at_ns=START_NS, gpu_count=2, gpu=gpu)
    assert blocks_of(sample)["gpu"] == [
        {"dram_ce_count": 5, "dram_ue_count": None},
        {"dram_ce_count": 7, "dram_ue_count": 0},
    ]
    item = Input(Record(9, "nemesis.telemetry.n1.sample", START_NS, encode_observation(sample)))
    assert telemetry_line(item) == (
        "22:13:20.000         9 n1         sample     "
        "2 GPUs       - W     - C      - %  ECC 12 corrected 0 not"
    )


def test_a_sample_is_one_line_of_ranges_and_sums() -> None:
    def row(known: dict[str, int], channels: tuple[str, ...]) -> bytes:
        values = (known.get(channel, 0) for channel in channels)
        return b"".join(value.to_bytes(8, "little", signed=True) for value in values)

    gpus = ({"power_mw": 650_400, "temp_c": 61, "utilization_ppm": 990_000, "sram_ce_count": 2},
            {"power_mw": 71_000, "temp_c": 34, "dram_ue_count": 1})  # fmt: skip
    sample = SampleTaken(
        node="n1", start_ns=1, n=1, at_ns=START_NS, gpu_count=2, nic_count=2, step_count=1,
        gpu=b"".join(row(each, GPU_CHANNELS) for each in gpus),
        nic=row({"port_up": 1}, NIC_CHANNELS) + row({}, NIC_CHANNELS),
        steps=row({"rank": 3, "step": 7}, STEP_CHANNELS),
    )  # fmt: skip
    item = Input(Record(9, "nemesis.telemetry.n1.sample", START_NS, encode_observation(sample)))
    assert telemetry_line(item).split("sample     ")[1] == (
        "2 GPUs  71-650 W 34-61 C   0-99 %  ECC 2 corrected 1 not  NICs up 1/2  step 7"
    )


def test_a_refused_policy_is_shown_with_what_is_wrong_in_it() -> None:
    log = Log()
    refused = decided.PolicyRefused(at_ns=START_NS, reason="It is not one.", broken="`$.mode`")
    log.event(refused, key="policy")
    assert event_line(Input(log.records[0])).endswith("policy         It is not one. `$.mode`")


def test_channels_of_a_newer_producer_are_numbered_and_a_broken_block_is_left_out() -> None:
    known = len(HOST_CHANNELS)
    names = [f"channel_{known}", f"channel_{known + 1}"]
    wide = SampleTaken(node="n1", start_ns=1, n=1, at_ns=1, host=bytes(8 * (known + 2)))
    assert list(blocks_of(wide)["host"][0])[-2:] == names
    torn = SampleTaken(node="n1", start_ns=1, n=1, at_ns=1, gpu_count=3, gpu=bytes(20))
    assert blocks_of(torn)["gpu"] == []
    none = SampleTaken(node="n1", start_ns=1, n=1, at_ns=1, gpu_count=2**31 - 1)
    assert blocks_of(none)["gpu"] == []


@pytest.mark.parametrize("space", ["telemetry.n1.sample", "events.note_added.i"])
def test_what_does_not_decode_is_shown_with_its_error(space: str) -> None:
    item = Input(Record(9, f"nemesis.{space}", START_NS, b"\xc1"))
    line = telemetry_line(item) if "telemetry" in space else event_line(item)
    assert " ? " in line
    assert as_document(item)["error"]
