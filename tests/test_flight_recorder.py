"""Promises of the digest of a flight-recorder dump."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nemesis.producers.flight_recorder import ENTRIES_MAX, BadDumpError, read_dump
from nemesis.producers.readers.dump_file import DUMP_BYTES_MAX, load_json, load_pickle
from nemesis.producers.recorder_digest import DIGEST_BYTES_MAX
from tests.dumps import WORLD, dump, entry, pickled


def groups(content: object) -> dict[str, Any]:
    return {group.name: group for group in read_dump(content).groups}


def test_counters_and_the_first_unfinished_operation_are_kept() -> None:
    world = groups(dump([entry(1), entry(2), entry(3, done=False), entry(4, done=False)]))["0"]
    assert (world.last_enqueued, world.last_started, world.last_completed) == (4, -1, 2)
    assert world.ranks == "0-3"
    assert world.desc == "default_pg"
    first = world.first_unfinished
    assert (first.seq, first.op, first.dtypes) == (3, "all_reduce", ("Float",))
    assert first.input_sizes == first.output_sizes == ((1024,),)
    assert [seq for seq, _ in world.arrivals] == [1, 2, 3, 4]


def test_pickle_and_json_of_one_dump_give_one_digest() -> None:
    content = dump([entry(1), entry(2, done=False)])
    as_json = json.loads(json.dumps(content))
    as_json["pg_status"]["0"] = {k: str(v) for k, v in content["pg_status"]["0"].items()}
    for each in as_json["entries"]:
        each["time_discovered_started_ns"] = each["time_discovered_completed_ns"] = 0
    assert read_dump(load_json(json.dumps(as_json).encode())) == read_dump(
        load_pickle(pickled(content))
    )


@pytest.mark.parametrize("payload", [b'{"entries": [', b'{"a": "\xff"}', b"[" * 100_000])
def test_a_dump_that_is_no_json_is_refused_in_words(payload: bytes) -> None:
    with pytest.raises(BadDumpError, match="broken JSON"):
        load_json(payload)


@pytest.mark.parametrize("load", [load_json, load_pickle])
def test_a_dump_larger_than_any_is_refused_unread(load: Callable[[bytes], object]) -> None:
    with pytest.raises(BadDumpError, match=f"a dump has at most {DUMP_BYTES_MAX}"):
        load(bytes(DUMP_BYTES_MAX + 1))


def test_the_older_format_names_its_library_otherwise_and_has_no_frames() -> None:
    content = dump([entry(1)], version="2.9", nccl_version="2.27.3")
    del content["comm_lib_version"]
    read = read_dump(content)
    assert (read.version, read.comm_lib_version) == ("2.9", "2.27.3")


def test_frames_are_ignored() -> None:
    framed = entry(1, frames=[{"name": "f", "filename": "/job/train.py", "line": 3}])
    assert read_dump(dump([framed])) == read_dump(dump([entry(1)]))


def test_on_gloo_what_is_retired_is_finished() -> None:
    operations = [
        entry(1, profiling_name="gloo:all_reduce", state="scheduled", retired=True),
        entry(2, profiling_name="gloo:all_reduce", state="scheduled", retired=False),
    ]
    assert groups(dump(operations))["0"].first_unfinished.seq == 2


def test_on_nccl_what_is_retired_and_not_completed_timed_out() -> None:
    operations = [entry(1, state="started", retired=True)]
    first = groups(dump(operations))["0"].first_unfinished
    assert first.seq == 1
    assert first.started


def test_a_collective_is_named_before_a_send_that_waits_longer() -> None:
    send = entry(1, done=False, is_p2p=True, p2p_seq_id=9, profiling_name="nccl:send 0->1")
    first = groups(dump([send, entry(2, done=False)]))["0"].first_unfinished
    assert (first.seq, first.p2p) == (2, False)
    alone = groups(dump([send]))["0"].first_unfinished
    assert (alone.seq, alone.p2p, alone.op) == (9, True, "send 0->1")


def call(record: int, number: int, name: str, **fields: Any) -> dict[str, Any]:
    """A send or receive of the world group, in no state that says anything."""
    numbers = {"record_id": record, "p2p_seq_id": number, "op_id": record}
    said = {"profiling_name": f"nccl:{name}", "is_p2p": True}
    return entry(0, done=False) | numbers | said | fields


def closing(record: int, number: int, *, done: bool, **fields: Any) -> dict[str, Any]:
    bare: dict[str, Any] = {"input_sizes": [], "output_sizes": [], "input_dtypes": []}
    state = "completed" if done else "scheduled"
    return call(record, number, "coalesced", **bare) | {"state": state, "retired": done} | fields


def test_calls_of_a_batch_are_as_far_as_the_entry_that_closes_it() -> None:
    over = [call(1, 1, "send 0->1"), call(2, 1, "recv 0<-1"), closing(3, 1, done=True)]
    assert groups(dump(over))["0"].first_unfinished is None
    waits = [call(4, 2, "send 0->3"), call(5, 2, "recv 0<-1"), closing(6, 2, done=False)]
    first = groups(dump([*over, *waits]))["0"].first_unfinished
    assert (first.seq, first.op, first.p2p, first.peers) == (2, "send 0->3", True, (3, 1))
    assert first.input_sizes == ((1024,),)


def test_peers_are_ranks_in_the_order_in_which_the_group_counts_them() -> None:
    config = {"0": WORLD | {"ranks": "[6, 2, 9, 4]"}}
    first = groups(dump([call(1, 1, "recv 0<-2")], pg_config=config))["0"].first_unfinished
    assert first.peers == (9,)


def test_older_formats_close_a_batch_with_an_entry_that_is_no_transfer() -> None:
    """Before 2.5 a batch took a number of collectives."""
    number: dict[str, Any] = {"collective_seq_id": 7}
    batch = [call(1, 0, "send 0->1", **number), closing(2, 0, done=True, is_p2p=False, **number)]
    assert groups(dump(batch, version="2.4"))["0"].first_unfinished is None


def test_coalesced_collectives_count_once_and_are_named_by_the_first_call() -> None:
    called = [
        entry(7, record_id=at, done=False, profiling_name="nccl:_broadcast_oop") for at in (1, 2)
    ]
    bare: dict[str, Any] = {"input_sizes": [], "output_sizes": []}
    ends = entry(7, record_id=3, profiling_name="nccl:ALLGATHER_coalesced", **bare)
    over = groups(dump([*called, ends]))["0"]
    assert (over.first_unfinished, [number for number, _ in over.arrivals]) == (None, [7])
    waits = groups(dump([*called, ends | {"state": "started"}]))["0"].first_unfinished
    assert (waits.seq, waits.op, waits.started) == (7, "_broadcast_oop", True)


def test_a_send_that_was_called_alone_waits_for_itself() -> None:
    done = call(1, 1, "send 0->1") | {"state": "completed", "retired": True}
    first = groups(dump([done, call(2, 2, "send 0->1")]))["0"].first_unfinished
    assert (first.seq, first.peers) == (2, (1,))


def test_counters_find_their_group_without_any_entry() -> None:
    config = {
        name: {"name": name, "desc": name, "ranks": "[0, 1]"} for name in ("0", "112", "33", "9")
    }
    status = {
        str(k): {"last_enqueued_collective": at, "last_completed_collective": at}
        for k, at in ((0, 10), (2, 20), (5, 30), (11, 40))
    }
    found = groups(dump([], pg_config=config, pg_status=status))
    assert {name: group.last_enqueued for name, group in found.items()} == {
        "0": 10,
        "9": 20,
        "33": 30,
        "112": 40,
    }


def test_a_dump_without_counters_is_counted_by_its_entries() -> None:
    older = dump([entry(6), entry(7), entry(8, done=False)], version="2.4")
    del older["pg_status"]
    world = groups(older)["0"]
    assert (world.last_enqueued, world.last_completed) == (8, 7)


def test_an_entry_that_says_otherwise_ends_the_pairing_by_order() -> None:
    config = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("0", "1")}
    status = {str(k): {"last_enqueued_collective": k + 1} for k in (0, 1)}
    swapped = entry(1, pg_id=0, process_group=("1", "tp"))
    found = groups(dump([swapped], pg_config=config, pg_status=status))
    assert found["1"].last_enqueued == 1
    assert found["0"].last_enqueued == -1


def test_a_dump_of_groups_without_options_is_read() -> None:
    nameless = {"": {"name": "", "desc": "", "ranks": "[]"}}
    read = read_dump(dump([entry(1)], pg_config=nameless))
    assert [group.name for group in read.groups] == ["0"]
    assert read.world == frozenset()


def test_the_groups_of_a_dump_tell_its_rank_where_one_has_a_single_member() -> None:
    config = {"0": WORLD, "7": {"name": "7", "desc": "EXPERT_DATA", "ranks": "[3]"}}
    assert read_dump(dump([], pg_config=config)).own_ranks == {3}


def test_a_digest_stays_within_its_bytes() -> None:
    config, status, entries = {}, {}, []
    for k in range(40):
        config[str(k)] = {"name": str(k), "desc": "D" * 60, "ranks": str(list(range(0, 512, 8)))}
        status[str(k)] = {"last_enqueued_collective": 90_000, "last_completed_collective": 89_000}
        entries += [
            entry(seq, done=False, pg_id=k, process_group=(str(k), "D" * 60), record_id=seq)
            for seq in range(30)
        ]
    read = read_dump(dump(entries, pg_config=config, pg_status=status))
    assert len(msgspec.msgpack.encode(read.groups)) < DIGEST_BYTES_MAX
    assert len(read.groups) > 10


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no flight-recorder dump"),
        ([], "no flight-recorder dump"),
        ({"version": "2.10"}, "no flight-recorder dump"),
        (dump([], version="3.0"), "version '3.0', expected 2.x"),
        (dump([], pg_config={"0": {"ranks": "[0, x]"}}), "broken"),
        (dump([], pg_status={"x": {}}), "broken"),
        (dump([]) | {"entries": [{"pg_id": 0}]}, "missing required field"),
        (dump([]) | {"entries": "no list"}, "expected a list"),
        (dump([entry(1, collective_seq_id=-5)]), "broken"),
        (dump([entry(1, done=False, profiling_name="nccl:\ud800")]), "surrogates not allowed"),
        (dump([], comm_lib_version="\ud800"), "surrogates not allowed"),
        (dump([], pg_config={str(k): {"ranks": "0" * 10**6} for k in range(60)}), "characters"),
        (dump([]) | {"entries": [None] * (ENTRIES_MAX + 1)}, "expected a list of at most"),
    ],
)
def test_what_is_no_dump_is_refused_with_a_reason(content: object, said: str) -> None:
    with pytest.raises(BadDumpError, match=said):
        read_dump(content)


def test_one_list_shared_a_million_times_costs_nothing() -> None:
    shape = [1] * 100_000
    each = entry(1) | {"input_sizes": [shape] * 100_000}
    with pytest.raises(BadDumpError, match="numbers in the sizes"):
        read_dump(dump([each] * 1000))


def test_every_public_dump_is_read(shared: Path) -> None:
    files = [
        *sorted((shared / "data" / "fr_samples").glob("*/rank_*")),
        *sorted((shared / "data" / "fr_samples").glob("*/json/*.json")),
        *sorted((shared / "data" / "nvrx_fr_traces" / "fr_traces").glob("*/_dump_*")),
    ]
    assert len(files) == 35 + 35 + 64
    for file in files:
        load = load_json if file.suffix == ".json" else load_pickle
        read = read_dump(load(file.read_bytes()))
        assert len(msgspec.msgpack.encode(read.groups)) < DIGEST_BYTES_MAX
        assert all(group.last_enqueued >= 0 for group in read.groups)
