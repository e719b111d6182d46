"""What an undisturbed run over the same log would have concluded: the judge of every fault test.

A cold open-loop fold of the whole log by the readers' rule; recorded conclusions are facts in it
like any other. It must say, in the same order, the ids and bytes that lie in the log.
"""

from collections.abc import Iterable
from typing import Any

from nemesis.processors.catalogue import Catalogue
from nemesis.processors.fold import Fold, Input
from nemesis.replay.verify import plans_of, verify_log
from nemesis.schemas.facts import Record, decode_conclusion

Said = tuple[str, str, bytes]
"""(id, subject, payload) of a conclusion."""
_OF_THE_RUNNER = (
    "processor_started",
    "processor_diverged",
    "log_shortened",
    "input_lost",
)


def recorded(records: Iterable[Record], name: str) -> list[Said]:
    """What the log says that a processor concluded, in the log's order."""
    return [
        (event.id, record.subject, record.payload)
        for record, token, event, _ in _events(records)
        if event.source == f"/processors/{name}" and token not in _OF_THE_RUNNER
    ]


def undisturbed(records: Iterable[Record], name: str, catalogue: Catalogue) -> list[Said]:
    """What a run without any fault concludes from this log."""
    records = list(records)
    versions = [
        data.version
        for _, token, _, data in _events(records)
        if token == "processor_activated" and data.name == name
    ]
    skips = {
        data.seq: data.error
        for _, token, _, data in _events(records)
        if token == "fact_skipped" and data.name == name
    }
    if not versions:
        return []
    fold = Fold(catalogue[name][versions[0]](), skips=skips)
    said: list[Said] = []
    for record in records:
        item = Input(record)
        if item.space == "cursor":
            continue
        said += [(each.id, each.subject, each.payload) for each in fold.step(item)]
        if fold.superseded_by is not None:
            following = Fold(catalogue[name][fold.superseded_by](), skips=skips)
            following.restore(fold.snapshot())
            following.take_over()
            fold = following
    return said


def judge(records: Iterable[Record], catalogue: Catalogue) -> None:
    """Nothing lost, nothing twice, order kept, bytes equal, for every processor."""
    records = list(records)
    for name in catalogue:
        there, due = recorded(records, name), undisturbed(records, name, catalogue)
        ids, due_ids = [each[0] for each in there], [each[0] for each in due]
        assert len(set(ids)) == len(ids), (
            f"{name}: twice {sorted(i for i in ids if ids.count(i) > 1)}"
        )
        assert sorted(set(due_ids) - set(ids)) == [], f"{name}: lost"
        assert sorted(set(ids) - set(due_ids)) == [], f"{name}: invented"
        assert ids == due_ids, f"{name}: order"
        for mine, theirs in zip(there, due, strict=True):
            assert mine == theirs, f"{name}: bytes of {mine[0]} differ"
    for lost in started(records, "input_lost"):
        still = [each.seq for each in records if lost.from_seq <= each.seq <= lost.to_seq]
        assert not still, f"{lost.name} says that it lost what is there: {still[:5]}"
    plans = [plan for plan in plans_of(records) if plan.name in catalogue]
    report = verify_log(records, plans, {}, lambda name, version: catalogue[name][version]())
    assert report.verdict == "equal", report.processors


def started(records: Iterable[Record], token: str) -> list[Any]:
    """The data of every event of one kind."""
    return [data for _, each, _, data in _events(records) if each == token]


def _events(records: Iterable[Record]) -> list[tuple[Record, str, Any, Any]]:
    found = []
    for record in records:
        item = Input(record)
        if item.space == "events":
            event, data = decode_conclusion(item.token, record.payload)
            found.append((record, item.token, event, data))
    return found
