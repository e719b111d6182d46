"""What today's code, other settings or another policy would have concluded from a recording.

A closed loop: observations and acts of people are fed as recorded, conclusions are those of the
run itself, each handed on right after the input it answers. What was done is fed where the run made
the decision that it answers. Sequences are stretched, so that conclusions find room between
facts; ids begin with `what-if:` and can never equal recorded ones.
"""

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.processors.catalogue import Catalogue
from nemesis.processors.emission import Emission
from nemesis.processors.fold import Fold, Input
from nemesis.replay.course import recorded_conclusion
from nemesis.replay.differences import FieldDifference, differing_fields
from nemesis.replay.reader import Recording
from nemesis.replay.versions import latest
from nemesis.schemas.decided import Decision
from nemesis.schemas.done import Attempt
from nemesis.schemas.envelope import decode_event
from nemesis.schemas.errors import MalformedFactError, NemesisError
from nemesis.schemas.facts import Record, encode_conclusion
from nemesis.schemas.operated import PolicyApplied, ProcessorActivated
from nemesis.schemas.policy import decode_policy

ID_PREFIX: Final = "what-if:"
ROOM: Final = 4096
"""Sequences between two recorded facts: what all processors may conclude from one of them."""
_PASSING: Final = frozenset({"at_ns", "job_revision"})
"""Fields that shift with the moment at which a conclusion came to be."""
_PROGRESS_EVERY: Final = 4096


class BadSettingError(NemesisError):
    """Settings or a policy that are not what was asked for."""

    exit_code = 2


class Said(msgspec.Struct, frozen=True):
    """One conclusion on one side only."""

    fact: str
    key: str
    id: str
    reason: str


class Changed(msgspec.Struct, frozen=True):
    """One conclusion that says something else."""

    fact: str
    key: str
    id: str
    fields: list[FieldDifference]


class Changes(msgspec.Struct, kw_only=True):
    """What a what-if run says differently."""

    same_count: int
    gone: list[Said]
    new: list[Said]
    changed: list[Changed]
    notes: list[str]


class _Conclusion(msgspec.Struct, frozen=True):
    id: str
    data: bytes


Conclusions = dict[tuple[str, str], list[_Conclusion]]
"""By fact and key, in the order of the log."""


def parse_settings(texts: list[str]) -> dict[str, bytes]:
    """`name=JSON` each.

    Raises:
        BadSettingError: not of this form, or no JSON object.
    """
    parsed: dict[str, bytes] = {}
    for text in texts:
        name, _, value = text.partition("=")
        parsed[name] = _json_object(value.encode(), f"--settings {name}", "NAME=JSON")
    return parsed


def parse_policy(path: Path) -> bytes:
    """The policy in a file, as JSON.

    Raises:
        BadSettingError: no such file, no JSON object in it, or no policy; says which field.
    """
    try:
        raw = _json_object(path.read_bytes(), f"--policy {path}", "a file with a JSON object")
        decode_policy(raw)
        return raw
    except MalformedFactError as error:
        hint = "`nemesis schema show policy` describes it"
        raise BadSettingError(f"--policy {path}: {error.message}", hint=hint) from error
    except OSError as error:
        raise BadSettingError(f"--policy {path}: {error.strerror or error}") from error


def _json_object(raw: bytes, where: str, expected: str) -> bytes:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSettingError(f"{where}: {error}", hint=f"expected {expected}") from error
    if not isinstance(value, dict):
        raise BadSettingError(f"{where}: got no JSON object", hint=f"expected {expected}")
    return msgspec.json.encode(value)


def compare(
    recording: Recording,
    catalogue: Catalogue,
    *,
    settings: Mapping[str, bytes] | None = None,
    policy: bytes | None = None,
    progress: Callable[[int], None] | None = None,
) -> Changes:
    """Run today's versions over what was observed and operated; list what they say differently.

    Raises:
        BadSettingError: settings of a processor that is not in the recording.
        MalformedFactError: a setting that the processor refuses.
    """
    run = _Run(recording, catalogue, settings or {}, policy)
    recorded: Conclusions = {}
    for count, record in enumerate(recording.records(), 1):
        item = Input(record)
        said = recorded_conclusion(item) if item.space == "events" else None
        if said is not None and said.name in run.folds:
            if said.input_seq > run.start_seqs[said.name] and item.token != "fact_skipped":
                _note(recorded, item.token, item.name, said.event.id, bytes(said.event.data))
        elif item.space != "cursor":
            run.feed(item)
        if progress is not None and count % _PROGRESS_EVERY == 0:
            progress(count)
    return _changes(recorded, run.concluded, run.notes)


class _Run:
    """The closed loop."""

    def __init__(
        self,
        recording: Recording,
        catalogue: Catalogue,
        settings: Mapping[str, bytes],
        policy: bytes | None,
    ) -> None:
        self.folds: Final[dict[str, Fold]] = {}
        self.start_seqs: Final[dict[str, int]] = {}
        self.concluded: Final[Conclusions] = {}
        self.notes: Final[list[str]] = []
        self._settings: Final = settings
        self._policy: Final = policy
        self._seq = 0
        self._decisions: Final[set[str]] = set()
        self._fresh: Final[set[str]] = set()
        """Processors that have not stepped yet."""
        states = recording.states()
        for plan in recording.header.processors:
            if plan.name not in catalogue:
                self.notes.append(f"{plan.name} is not in this release and was left out")
                continue
            if not plan.startable:
                self.notes.append(f"the recording holds no state of {plan.name} to start from")
                continue
            fold = Fold(catalogue[plan.name][latest(plan.name, catalogue)]())
            if plan.start_sha256:
                try:
                    fold.restore(states[plan.start_sha256])
                except Exception as error:  # a processor may raise anything on what is not its own
                    self.notes.append(f"the state of {plan.name} does not restore: {error}")
                    continue
                if plan.start_handed_over:
                    fold.take_over()
                if plan.name in settings:
                    fold.configure(settings[plan.name])
            self.folds[plan.name] = fold
            self._fresh.add(plan.name)
            self.start_seqs[plan.name] = plan.start_seq
        if unknown := sorted(set(settings) - set(self.folds)):
            raise BadSettingError(
                f"--settings {unknown[0]}: no such processor in the recording",
                hint=f"there are {', '.join(self.folds)}",
            )

    def feed(self, item: Input) -> None:
        """A recorded fact that is no processor's conclusion."""
        record = item.record
        self._seq = record.seq * ROOM
        payload = self._operated(item) if item.space == "events" else record.payload
        if payload is None:
            return
        first = Input(Record(self._seq, record.subject, record.stored_ns, payload))
        waiting = deque([first])
        while waiting:
            each = waiting.popleft()
            for name, fold in self.folds.items():
                if record.seq <= self.start_seqs[name]:
                    continue
                emissions = fold.step(self._policy_before(each)) if name in self._fresh else []
                self._fresh.discard(name)
                emissions += fold.step(each)
                waiting.extend(self._taken(said, record.stored_ns) for said in emissions)

    def _policy_before(self, item: Input) -> Input:
        """The other policy as a fact just before this one; nobody's where there is none."""
        seq, stored_ns = item.record.seq - 1, item.record.stored_ns
        if self._policy is None:
            return Input(Record(seq, "nemesis.cursor.nobody", stored_ns, b""))
        applied = PolicyApplied(
            at_ns=stored_ns, by="what-if", reason="another policy", policy=msgspec.Raw(self._policy)
        )
        event = encode_conclusion(
            id=f"{ID_PREFIX}policy", source="/what-if", at_ns=stored_ns, data=applied, key="policy"
        )
        return Input(Record(seq, event[0], stored_ns, event[1]))

    def _taken(self, emission: Emission, stored_ns: int) -> Input:
        """A conclusion of the run becomes the next fact."""
        self._seq += 1
        assert self._seq % ROOM, "more conclusions from one fact than there is room for"
        item = Input(Record(self._seq, emission.subject, stored_ns, emission.payload))
        event = decode_event(emission.payload)
        _note(self.concluded, item.token, item.name, ID_PREFIX + event.id, bytes(event.data))
        data = item.decoded()
        if isinstance(data, Decision):
            self._decisions.add(data.decision)
        return item

    def _operated(self, item: Input) -> bytes | None:
        """The event's payload as this run sees it; None: it answers what was not decided here."""
        data = item.decoded()
        match data:
            case ProcessorActivated() if data.name in self.folds:
                settings = self._settings.get(data.name, bytes(data.settings))
                version = self.folds[data.name].processor.version
                return _with(
                    item, msgspec.structs.replace(
                        data, version=version, settings=msgspec.Raw(settings)
                    )
                )  # fmt: skip
            case PolicyApplied() if self._policy is not None:
                return _with(item, msgspec.structs.replace(data, policy=msgspec.Raw(self._policy)))
            case Attempt() if data.decision not in self._decisions:
                return None
            case _:
                return item.record.payload


def _with(item: Input, data: msgspec.Struct) -> bytes:
    event = decode_event(item.record.payload)
    return encode_conclusion(
        id=event.id,
        source=event.source,
        at_ns=getattr(data, "at_ns", 0),
        data=data,
        key=item.name,
        cause=event.cause,
        job=event.job,
    )[1]


def _note(into: Conclusions, fact: str, key: str, id: str, data: bytes) -> None:
    into.setdefault((fact, key), []).append(_Conclusion(id, data))


def _changes(recorded: Conclusions, concluded: Conclusions, notes: list[str]) -> Changes:
    changes = Changes(same_count=0, gone=[], new=[], changed=[], notes=notes)
    for fact, key in [*recorded, *(pair for pair in concluded if pair not in recorded)]:
        before, after = recorded.get((fact, key), []), concluded.get((fact, key), [])
        for old, new in zip(before, after, strict=False):
            fields = differing_fields(_lasting(old.data), _lasting(new.data))
            if fields:
                changes.changed.append(Changed(fact, key, new.id, fields))
            else:
                changes.same_count += 1
        changes.gone.extend(_said(fact, key, each) for each in before[len(after) :])
        changes.new.extend(_said(fact, key, each) for each in after[len(before) :])
    return changes


def _lasting(data: bytes) -> bytes:
    value: dict[str, Any] = msgspec.json.decode(data)
    return msgspec.json.encode({k: v for k, v in value.items() if k not in _PASSING})


def _said(fact: str, key: str, each: _Conclusion) -> Said:
    data: dict[str, Any] = msgspec.json.decode(each.data)
    return Said(fact, key, each.id, str(data.get("reason", "")))
