"""Promises of facts: every one comes back whole, a wrong one is refused with field and value."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.schemas import plans
from nemesis.schemas.envelope import EVENT_BYTES_MAX, Event, decode_event, encode_event, rfc3339
from nemesis.schemas.errors import BadNameError, MalformedFactError, UnknownFactError
from nemesis.schemas.facts import (
    check_writer,
    cursor_subject,
    decode_conclusion,
    decode_observation,
    encode_conclusion,
    encode_observation,
    event_subject,
    observation_id,
    snapshot_subject,
    split_subject,
    telemetry_subject,
)
from nemesis.schemas.inferred import FaultAttributed, InputRejected
from nemesis.schemas.kept import ProcessorAdvanced, SnapshotTaken
from nemesis.schemas.observed import ClockTicked, KernelLineLogged, Observation, SampleTaken
from nemesis.schemas.operated import NoteAdded, ProcessorActivated
from nemesis.schemas.plans import Report, decode_message
from nemesis.schemas.policy import decode_policy
from nemesis.schemas.registry import BY_STRUCT, EVENTS, SCHEMA, TELEMETRY
from nemesis.schemas.tokens import NAME_BYTES_MAX
from tests.strategies import any_of

NAMES = st.text(min_size=1).filter(
    lambda s: len(s.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX
)


@pytest.mark.parametrize("token", TELEMETRY)
@given(data=st.data())
@settings(max_examples=25)
def test_every_observation_comes_back_whole(token: str, data: st.DataObject) -> None:
    observation = data.draw(any_of(TELEMETRY[token].struct))
    assert isinstance(observation, Observation)
    payload = encode_observation(observation)
    assert decode_observation(token, payload) == observation
    assert encode_observation(decode_observation(token, payload)) == payload


@pytest.mark.parametrize("token", EVENTS)
@given(data=st.data(), key=NAMES)
@settings(max_examples=25)
def test_every_event_comes_back_whole(token: str, data: st.DataObject, key: str) -> None:
    fact = data.draw(any_of(EVENTS[token].struct))
    subject, payload = encode_conclusion(
        id="p/7/0", source="/x", at_ns=1, data=fact, key=key, cause="3 4", job="j"
    )
    event, decoded = decode_conclusion(token, payload)
    again = encode_conclusion(
        id=event.id, source=event.source, at_ns=1, data=decoded, key=key, cause="3 4", job=event.job
    )
    assert again == (subject, payload)
    assert split_subject(subject) == ("events", token, key)
    assert event.causes == (3, 4)
    assert (event.subject, event.type) == (key, f"dev.nemesis.{token}.v1")


@pytest.mark.parametrize("struct", [ProcessorAdvanced, SnapshotTaken])
@given(data=st.data())
def test_every_position_comes_back_whole(struct: type[msgspec.Struct], data: st.DataObject) -> None:
    value = data.draw(any_of(struct))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=struct) == value


@pytest.mark.parametrize(
    "struct", [plans.Plan, plans.PlanAnswer, plans.Report, plans.Hello, plans.Plans]
)
@given(data=st.data())
@settings(max_examples=25)
def test_every_message_to_an_agent_comes_back_whole(
    struct: type[plans.Plan], data: st.DataObject
) -> None:
    message = data.draw(any_of(struct))
    assert plans.decode_message(struct, plans.encode_message(message)) == message


def test_the_table_holds_each_struct_once_under_its_own_name() -> None:
    kinds = [*TELEMETRY.values(), *EVENTS.values()]
    assert len(BY_STRUCT) == len(kinds)
    for kind in EVENTS.values():
        assert kind.token == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.struct.__name__).lower()
        assert kind.kept_for_ever
    assert not set(TELEMETRY) & set(EVENTS)
    assert max(kind.since for kind in kinds) == SCHEMA


# Subjects


@given(NAMES)
def test_a_subject_says_what_it_was_made_from(name: str) -> None:
    assert split_subject(telemetry_subject(name, "sample")) == ("telemetry", "sample", name)
    assert split_subject(event_subject("note_added", name)) == ("events", "note_added", name)
    assert split_subject(cursor_subject(name)) == ("cursor", "", name)
    assert split_subject(snapshot_subject(name)) == ("cursor", "snapshot", name)


@pytest.mark.parametrize(
    "subject",
    ["", "nemesis", "other.telemetry.n.sample", "nemesis.telemetry.n", "nemesis.events.a",
     "nemesis.plan.n", "nemesis.events.a.b.c", "nemesis.telemetry._.sample"],
)  # fmt: skip
def test_what_is_no_subject_of_the_log_is_refused(subject: str) -> None:
    with pytest.raises(BadNameError, match=r"not a (subject|token)"):
        split_subject(subject)


# What does not fit


def kernel(**changes: object) -> bytes:
    fields = {"node": "n1", "start_ns": 1, "n": 1, "at_ns": 1, "text": "x"}
    return msgspec.msgpack.encode(fields | changes)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (kernel(at_ns="soon"), "kernel.at_ns: Expected `int`, got `str`, got 'soon'"),
        (kernel(at_ns=-5), "kernel.at_ns: Expected `int` >= 0, got '-5'"),
        (kernel(n=0), "kernel.n: Expected `int` >= 1, got '0'"),
        (kernel(text=7), "kernel.text: Expected `str`, got `int`, got '7'"),
        (kernel(n="z" * 500), f"kernel.n: Expected `int`, got `str`, got '{'z' * 80}'"),
        (b"\x81\xa4node\xa1n", "kernel: Object missing required field `start_ns`"),
        (b"\xc1", "kernel: MessagePack data is malformed"),
        (b"", "kernel: Input data was truncated"),
        (msgspec.msgpack.encode([1]), "kernel: Expected `object`, got `array`"),
    ],
)  # fmt: skip
def test_a_wrong_observation_is_refused_with_field_and_value(payload: bytes, says: str) -> None:
    with pytest.raises(MalformedFactError) as caught:
        decode_observation("kernel", payload)
    assert caught.value.message.startswith(says)


def test_a_wrong_element_is_named_by_its_place() -> None:
    payload = msgspec.msgpack.encode(
        {
            "node": "n",
            "start_ns": 1,
            "n": 1,
            "at_ns": 1,
            "gpus": [{"pci": "0000:1b:00.0"}, {"pci": 3}],
        }
    )
    with pytest.raises(MalformedFactError, match=r"inventory\.gpus\[1\]\.pci: .* got '3'"):
        decode_observation("inventory", payload)


def event(**changes: object) -> bytes:
    fields = {
        "specversion": "1.0", "id": "a/1/0", "source": "/x", "type": "dev.nemesis.note_added.v1",
        "subject": "i", "time": "", "datacontenttype": "application/json",
        "data": {"at_ns": 1, "by": "me", "reason": "r", "incident": "i", "text": "t"},
    }  # fmt: skip
    return msgspec.json.encode(fields | changes)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (event(id=7), "note_added.id: Expected `str`, got `int`, got '7'"),
        (event(cause="12 x"), "note_added.cause: Expected `str` matching regex"),
        (event(cause="9" * 5000), "note_added.cause: Expected `str` matching regex"),
        (event(data={"at_ns": 1}), "note_added: Object missing required field `by`"),
        (b"{", "note_added: Input data was truncated"),
        (b"\xff", "note_added: "),
        (
            event(data={"at_ns": 2.5, "by": "", "reason": "", "incident": "", "text": ""}),
            "note_added.at_ns: Expected `int`, got `float`, got '2.5'",
        ),
    ],
)
def test_a_wrong_event_is_refused_with_field_and_value(payload: bytes, says: str) -> None:
    with pytest.raises(MalformedFactError) as caught:
        decode_conclusion("note_added", payload)
    assert caught.value.message.startswith(says)


def test_what_a_later_release_added_to_a_fact_is_passed_over() -> None:
    assert isinstance(decode_observation("kernel", kernel(colour="red")), KernelLineLogged)
    data = {"at_ns": 1, "by": "me", "reason": "r", "incident": "i", "text": "t", "tone": 3}
    assert decode_conclusion("note_added", event(data=data, mood="x"))[1].text == "t"


def test_a_field_that_an_older_release_did_not_write_means_as_before() -> None:
    sample = decode_observation("sample", msgspec.msgpack.encode(
        {"node": "n", "start_ns": 1, "n": 1, "at_ns": 1}
    ))  # fmt: skip
    assert sample == SampleTaken(node="n", start_ns=1, n=1, at_ns=1)
    assert encode_observation(sample) == msgspec.msgpack.encode(
        {"node": "n", "start_ns": 1, "n": 1, "at_ns": 1}
    )


def test_facts_of_a_later_release_are_unknown_not_malformed() -> None:
    with pytest.raises(UnknownFactError, match="unknown kind of telemetry: 'optics'"):
        decode_observation("optics", b"")
    with pytest.raises(UnknownFactError, match="unknown fact: 'dimm_suspected'") as caught:
        decode_conclusion("dimm_suspected", event())
    assert caught.value.hint == "read it with a newer release"
    with pytest.raises(UnknownFactError, match="unknown version of note_added"):
        decode_conclusion("note_added", event(type="dev.nemesis.note_added.v2"))


def test_a_fact_is_at_most_64_kib() -> None:
    def note(size: int) -> tuple[str, bytes]:
        data = NoteAdded(at_ns=1, by="me", reason="r", incident="i", text="x" * size)
        return encode_conclusion(id="a/1/0", source="/x", at_ns=1, data=data, key="i")

    spare = EVENT_BYTES_MAX - len(note(0)[1])
    assert len(note(spare)[1]) == 65_536
    with pytest.raises(MalformedFactError, match="note_added a/1/0 has 65537 bytes, at most 65536"):
        note(spare + 1)


def test_a_node_speaks_for_itself_only() -> None:
    tick = ClockTicked(node="n1", start_ns=1, n=4, at_ns=1)
    check_writer("n1", tick)
    with pytest.raises(MalformedFactError, match=r"\.node: expected the subject's 'n2', got 'n1'"):
        check_writer("n2", tick)
    assert observation_id("tick", tick) == "n1/tick/1/4"


# The envelope


def test_an_event_is_a_cloud_event_in_one_order_of_fields() -> None:
    data = InputRejected(at_ns=2, reason="r", subject="s", sha256="0", head=b"\x00")
    _, payload = encode_conclusion(
        id="intake/7/0", source="/processors/intake", at_ns=1_700_000_000_123_456_789, data=data,
        key="n1", cause="7",
    )  # fmt: skip
    assert payload == (
        b'{"specversion":"1.0","id":"intake/7/0","source":"/processors/intake",'
        b'"type":"dev.nemesis.input_rejected.v1","subject":"n1","time":"2023-11-14T22:13:20.123Z",'
        b'"datacontenttype":"application/json","cause":"7",'
        b'"data":{"at_ns":2,"reason":"r","subject":"s","sha256":"0","head":"AA=="}}'
    )


@given(any_of(Event).map(lambda e: msgspec.structs.replace(e, data=msgspec.Raw(b"{}"))))
def test_an_envelope_comes_back_byte_for_byte(value: Event) -> None:
    payload = encode_event(value)
    assert encode_event(decode_event(payload)) == payload


@pytest.mark.parametrize(
    ("at_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999_999, "1970-01-01T00:00:00.000Z"),
        (1_000_000, "1970-01-01T00:00:00.001Z"),
        (253_402_300_799_999_999_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_time_for_people_is_rfc_3339_in_utc(at_ns: int, text: str) -> None:
    assert rfc3339(at_ns) == text


def test_an_event_without_causes_has_none() -> None:
    data = ProcessorActivated(at_ns=1, by="me", reason="r", name="healer", version=1)
    _, payload = encode_conclusion(id="o/1", source="/x", at_ns=1, data=data, key="healer")
    decoded, activated = decode_conclusion("processor_activated", payload)
    assert decoded.causes == ()
    assert bytes(activated.settings) == b"{}"
    assert b"settings" not in payload


def test_a_verdict_without_evidence_is_small() -> None:
    data = FaultAttributed(
        at_ns=1, reason="r", incident="i", revision=0, verdict="insufficient", fault_class="unknown"
    )
    _, payload = encode_conclusion(id="a/1/0", source="/x", at_ns=1, data=data, key="i")
    assert len(payload) < 400


@pytest.mark.parametrize("depth", [1_000, 60_000])
@pytest.mark.parametrize("open_", [b"\x91", b"\x81\xa1a"])
def test_an_observation_that_nests_without_end_is_malformed_and_crashes_nobody(
    depth: int, open_: bytes
) -> None:
    line = KernelLineLogged(node="n1", start_ns=1, n=1, at_ns=1, text="x")
    whole = encode_observation(line)
    unknown_field = b"\xa2zz" + open_ * depth + b"\x01"
    with pytest.raises(MalformedFactError, match="kernel: maximum recursion"):
        decode_observation("kernel", bytes([whole[0] + 1]) + whole[1:] + unknown_field)
    with pytest.raises(MalformedFactError):
        decode_observation("kernel", open_ * depth)


def test_an_event_or_plan_that_nests_without_end_is_malformed() -> None:
    deep = b'{"z":' + b"[" * 60_000
    with pytest.raises(MalformedFactError, match="maximum recursion"):
        decode_conclusion("note_added", deep)
    with pytest.raises(MalformedFactError, match="maximum recursion"):
        decode_message(Report, deep)
    with pytest.raises(MalformedFactError):
        decode_policy(deep)


def test_a_policy_whose_deadlines_fit_into_no_fact_is_refused() -> None:
    with pytest.raises(MalformedFactError, match="decision_timeout_ns must be at most a year"):
        decode_policy(b'{"decision_timeout_ns":%d}' % (2**63 - 1))


@pytest.mark.parametrize("pci", ["", "0000:1b:00", "0000:1B:00.0", "gpu7", "0000:1b:00.0/14"])
def test_a_gpu_is_described_by_its_address_or_not_at_all(pci: str) -> None:
    fields = {"node": "n", "start_ns": 1, "n": 1, "at_ns": 1, "gpus": [{"pci": pci}]}
    with pytest.raises(MalformedFactError, match=r"gpus\[0\]\.pci: .* matching regex"):
        decode_observation("inventory", msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("ranks", [0, -1, 1025, 2**31 - 1])
def test_a_job_has_as_many_ranks_on_a_node_as_a_node_can_have(ranks: int) -> None:
    job = {"at_ns": 1, "by": "me", "reason": "r", "job": "j", "nodes": [], "ranks_per_node": ranks}
    submitted = event(type="dev.nemesis.job_submitted.v1", data=job)
    with pytest.raises(MalformedFactError, match=r"ranks_per_node: Expected `int`"):
        decode_conclusion("job_submitted", submitted)
