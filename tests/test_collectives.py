"""Promises about hangs: who is waited for is named, victims never are."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from nemesis.processors.attribution.wait_graph import LISTED_MAX, Seen, groups_of
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import GroupDigest, OperationSeen
from tests.attribution_log import START_NS, Log, cluster, step_block, xid

QUIET_S = 61
MS = 1_000_000


def group(
    name: str,
    ranks: str,
    done: int,
    *,
    enqueued: int = -1,
    op: str = "all_reduce",
    sizes: tuple[int, ...] = (1024,),
    dtype: str = "Float",
    p2p: bool = False,
    created_ns: int = START_NS,
    arrivals: Sequence[tuple[int, int]] = (),
    completed: int = -2,
) -> GroupDigest:
    """A group in which `done` collectives are over; the next is pending if more are enqueued."""
    last = max(done, enqueued)
    pending = OperationSeen(
        seq=done + 1,
        op=op,
        input_sizes=(sizes,),
        output_sizes=(sizes,),
        dtypes=(dtype,),
        p2p=p2p,
        created_ns=created_ns,
    )
    return GroupDigest(
        name=name,
        desc=f"g{name}",
        ranks=ranks,
        last_enqueued=last,
        last_completed=done if completed == -2 else completed,
        first_unfinished=pending if last > done or p2p else None,
        arrivals=tuple(arrivals),
    )


def judged(digests: Mapping[int, Sequence[GroupDigest]], *gone: int) -> list[FaultAttributed]:
    """What a job's digests lead to, after a quiet minute."""
    log = Log()
    for rank, groups in digests.items():
        log.digest(rank, *groups, entry_count=5)
    for rank in gone:
        log.digest(rank, dump_missing=True)
    log.tick(QUIET_S)
    return log.verdicts


def one(digests: Mapping[int, Sequence[GroupDigest]], *gone: int) -> FaultAttributed:
    (verdict,) = judged(digests, *gone)
    return verdict


def blamed(verdict: FaultAttributed) -> list[int]:
    return [int(each.id.rsplit("/", 1)[1]) for each in verdict.culprits]


def test_a_job_in_step_has_no_fault() -> None:
    assert not judged({rank: [group("0", "0-3", 5)] for rank in range(4)})


def test_who_never_called_what_the_others_wait_in_is_named() -> None:
    waiting = {rank: [group("0", "0-3", 4, enqueued=5)] for rank in (0, 1, 3)}
    verdict = one({**waiting, 2: [group("0", "0-3", 4)]})
    assert (verdict.verdict, verdict.fault_class) == ("attributed", "app.stall")
    assert blamed(verdict) == [2]
    assert verdict.victims == ("rank/llama/0", "rank/llama/1", "rank/llama/3")
    assert len(verdict.evidence) == 4
    assert "rank 2" in verdict.evidence[0].says


@pytest.mark.parametrize(
    ("server", "culprit"), [("10.0.40.11", "storage/10.0.40.11"), ("", "rank/llama/2")]
)
def test_a_rank_that_calls_nothing_where_a_file_server_does_not_answer_waits_for_that(
    server: str, culprit: str
) -> None:
    log = cluster("n1", "n2")
    for rank in range(4):
        behind = group("0", "0-3", 4, enqueued=4 if rank == 2 else 5)
        log.digest(rank, behind, entry_count=5, node=f"n{rank // 2 + 1}")
    for node in ("n1", "n2") if server else ():
        log.kernel(f"nfs: server {server} not responding, still trying", node)
    log.tick(QUIET_S)
    log.tick(QUIET_S)
    assert [each.id for each in log.verdicts[-1].culprits] == [culprit]


def passed(
    name: str, ranks: str, done: int, enqueued: int = -1, op: str = "all_reduce"
) -> GroupDigest:
    """A group whose recorder still has what is over."""
    arrivals = [(number, START_NS + number * MS) for number in range(1, done + 1)]
    return group(name, ranks, done, enqueued=enqueued, op=op, arrivals=arrivals)


@pytest.mark.parametrize("behind", [passed("0", "0-3", 4), passed("0", "0-3", 4, 6)])
def test_recorders_that_were_read_while_the_job_went_on_blame_nobody(behind: GroupDigest) -> None:
    ahead = {rank: [passed("0", "0-3", 8, 9)] for rank in (0, 1, 3)}
    verdict = one({**ahead, 2: [behind]})
    assert (verdict.verdict, verdict.culprits) == ("insufficient", ())
    assert "different moments" in verdict.reason
    assert verdict.missing


def test_the_root_of_a_broadcast_does_not_wait_for_the_rank_that_never_called_it() -> None:
    waiting = {rank: [passed("0", "0-3", 4, 5, op="broadcast")] for rank in (1, 3)}
    verdict = one({**waiting, 0: [passed("0", "0-3", 5, 6)], 2: [passed("0", "0-3", 4)]})
    assert (verdict.fault_class, blamed(verdict)) == ("app.stall", [2])


def test_an_operation_that_peers_just_completed_is_no_stall_until_it_is_old() -> None:
    done = {rank: [passed("0", "0-3", 5)] for rank in (0, 1, 3)}
    verdict = one({**done, 2: [passed("0", "0-3", 4, 5)]})
    assert (verdict.verdict, verdict.culprits) == ("insufficient", ())
    old = group("0", "0-3", 4, enqueued=5, created_ns=START_NS - 11_000 * MS)
    assert blamed(one({**done, 2: [old]})) == [2]


def test_who_completed_less_than_its_peers_is_stalled_itself() -> None:
    ahead = {rank: [group("0", "0-3", 9, enqueued=12)] for rank in (0, 1, 3)}
    verdict = one({**ahead, 2: [group("0", "0-3", 4, enqueued=9)]})
    assert (verdict.fault_class, blamed(verdict)) == ("gpu.stall", [2])


def test_two_culprits_of_one_group_are_both_named() -> None:
    ahead = {rank: [group("0", "0-7", 9, enqueued=12)] for rank in (0, 1, 3, 4, 5, 7)}
    stuck = {rank: [group("0", "0-7", 4, enqueued=9)] for rank in (2, 6)}
    assert blamed(one({**ahead, **stuck})) == [2, 6]


def test_a_victim_of_another_group_is_spared() -> None:
    verdict = one(
        {
            0: [group("0", "0-3", 4, enqueued=5)],
            1: [group("0", "0-3", 4, enqueued=5)],
            2: [group("0", "0-3", 4), group("2", "2-3", 4)],
            3: [group("0", "0-3", 4), group("2", "2-3", 4, enqueued=5)],
        }
    )
    assert blamed(verdict) == [2]


def test_a_culprit_behind_another_culprit_is_named_too() -> None:
    # 1 stalls on its GPU in the pair of 0 and 1; 3 never comes to the pair of 2 and 3
    verdict = one(
        {
            0: [group("a", "0-1", 9, enqueued=10), group("w", "0-3", 2)],
            1: [group("a", "0-1", 7, enqueued=9), group("w", "0-3", 2)],
            2: [group("b", "2-3", 9, enqueued=10), group("w", "0-3", 2)],
            3: [group("b", "2-3", 9), group("w", "0-3", 2)],
        }
    )
    assert blamed(verdict) == [1, 3]


def test_a_dump_missing_beside_the_others_names_its_rank() -> None:
    waiting = {rank: [group("0", "0-3", 4, enqueued=5)] for rank in (0, 1, 3)}
    verdict = one(waiting, 2)
    assert (verdict.fault_class, blamed(verdict)) == ("unknown", [2])


def test_a_failed_operation_that_counts_as_completed_blames_no_victim() -> None:
    # gloo: a peer died, and ranks whose operation failed count it as completed
    failed = {rank: [group("0", "0-3", 5)] for rank in (1, 3)}
    verdict = one({0: [group("0", "0-3", 4, enqueued=5)], **failed}, 2)
    assert blamed(verdict) == [2]


def test_a_rank_of_whom_nothing_was_read_is_asked_for_and_not_blamed() -> None:
    waiting = {rank: [group("0", "0-3", 4, enqueued=5)] for rank in (0, 1, 3)}
    verdict = one(waiting)
    assert (verdict.verdict, blamed(verdict)) == ("insufficient", [])
    assert verdict.missing == ("the flight-recorder dump of rank 2",)


@pytest.mark.parametrize(
    "odd", [{"op": "broadcast"}, {"sizes": (512,)}, {"dtype": "Half"}], ids=["op", "size", "dtype"]
)
def test_the_rank_that_calls_another_operation_is_named_and_hardware_is_innocent(
    odd: dict[str, str],
) -> None:
    same = {rank: [group("0", "0-3", 4, enqueued=5)] for rank in (0, 1, 3)}
    verdict = one({**same, 2: [group("0", "0-3", 4, enqueued=5, **odd)]})  # type: ignore[arg-type]
    assert (verdict.fault_class, blamed(verdict)) == ("desync", [2])


def test_of_two_ranks_that_differ_neither_is_the_odd_one() -> None:
    verdict = one(
        {
            0: [group("0", "0-1", 4, enqueued=5)],
            1: [group("0", "0-1", 4, enqueued=5, sizes=(9,))],
        }
    )
    assert (verdict.verdict, verdict.fault_class) == ("class-only", "desync")


def test_of_two_ranks_that_differ_the_odd_one_is_who_differs_from_groups_of_the_same_kind() -> None:
    def half(name: str, ranks: str, *sizes: int) -> GroupDigest:
        return replace(group(name, ranks, 4, enqueued=5, sizes=sizes), desc="tensor parallel")

    verdict = one(
        {
            0: [half("0", "0-1", 8)],
            1: [half("0", "0-1", 9)],
            2: [half("1", "2-3", 8)],
            3: [half("1", "2-3", 8)],
        }
    )
    assert (verdict.fault_class, blamed(verdict)) == ("desync", [1])


def test_sizes_may_differ_where_the_operation_allows_it() -> None:
    verdict = one(
        {
            rank: [group("0", "0-3", 4, enqueued=5, op="all_to_all", sizes=(rank + 1,))]
            for rank in range(4)
        }
    )
    assert verdict.verdict == "insufficient"


def test_when_all_arrived_and_nobody_got_on_nobody_is_blamed() -> None:
    verdict = one({rank: [group("0", "0-3", 4, enqueued=5)] for rank in range(4)})
    assert (verdict.verdict, blamed(verdict)) == ("insufficient", [])
    assert verdict.missing


def test_a_few_ahead_of_all_others_are_a_desync_of_the_program() -> None:
    behind = {rank: [group("0", "0-7", 4)] for rank in range(1, 8)}
    verdict = one({0: [group("0", "0-7", 4, enqueued=5)], **behind})
    assert (verdict.verdict, verdict.fault_class) == ("class-only", "desync")


def steps(world: str, pair: str, count: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Arrivals of `count` steps: the pair first, then the world."""
    pairs = [(step, START_NS + step * 10 * MS) for step in range(1, count + 1)]
    worlds = [(step, at_ns + 5 * MS) for step, at_ns in pairs]
    return pairs, worlds


def test_of_ranks_that_wait_for_each_other_the_one_that_broke_its_order_is_named() -> None:
    pairs, worlds = steps("0", "2", 4)
    next_ns = START_NS + 50 * MS
    world_now, pair_now = [*worlds, (5, next_ns)], [*pairs, (5, next_ns)]
    verdict = one(
        {
            0: [group("0", "0-3", 4, enqueued=5, arrivals=world_now)],
            1: [group("0", "0-3", 4, enqueued=5, arrivals=world_now)],
            2: [
                group("0", "0-3", 4, enqueued=5, arrivals=world_now),
                group("2", "2-3", 4, arrivals=pairs),
            ],
            3: [
                group("0", "0-3", 4, arrivals=worlds),
                group("2", "2-3", 4, enqueued=5, arrivals=pair_now),
            ],
        }
    )
    assert (verdict.fault_class, blamed(verdict)) == ("desync", [2])
    assert "ranks 2, 3" in verdict.reason


def test_of_a_ring_without_history_nobody_is_named() -> None:
    verdict = one(
        {
            2: [group("0", "2-3", 4, enqueued=5), group("2", "2-3", 4)],
            3: [group("0", "2-3", 4), group("2", "2-3", 4, enqueued=5)],
        }
    )
    assert (verdict.verdict, verdict.fault_class) == ("class-only", "desync")


def test_a_receive_leads_to_its_sender_where_no_collective_explains_it() -> None:
    def stage(rank: int, op: str) -> list[GroupDigest]:
        return [group("p", "0-3", 7, op=op, p2p=True)]

    verdict = one(
        {
            0: stage(0, "recv 0<-1"),
            1: [*stage(1, "recv 1<-2"), group("t", "1,3", 3)],
            2: [group("p", "0-3", 7), group("t", "2", 3)],
            3: [group("p", "0-3", 7)],
        }
    )
    assert blamed(verdict) == [2]


def test_a_matched_send_and_receive_lead_nowhere() -> None:
    verdict = one(
        {
            0: [group("p", "0-1", 7, op="send 0->1", p2p=True)],
            1: [group("p", "0-1", 7, op="recv 1<-0", p2p=True)],
        }
    )
    assert verdict.verdict == "insufficient"


def test_counters_without_entries_are_enough() -> None:
    log = Log()
    for rank in range(4):
        behind = rank == 2
        log.digest(
            rank,
            GroupDigest(name="0", ranks="0-3", last_enqueued=4 if behind else 5, last_completed=4),
        )
    log.tick(QUIET_S)
    assert blamed(log.last) == [2]


def test_a_running_job_is_never_stuck_however_its_digests_are_interleaved() -> None:
    log = Log()
    for step in range(120):
        for rank in range(4):
            done = step + rank  # somebody is always ahead
            pending = [group("0", "0-3", done, enqueued=done + 1, created_ns=log.now_ns)]
            log.digest(rank, *pending, entry_count=5)
        log.tick(1)
    assert not log.verdicts


def test_a_recorder_read_before_the_operation_began_proves_nothing() -> None:
    log = Log()
    log.digest(2, group("0", "0-3", 4), entry_count=5)
    log.tick(10)
    for rank in (0, 1, 3):
        pending = group("0", "0-3", 4, enqueued=5, created_ns=log.now_ns)
        log.digest(rank, pending, entry_count=5)
    log.tick(QUIET_S)
    assert not blamed(log.last)


def test_an_operation_pending_for_a_minute_is_judged_at_once() -> None:
    log = Log()
    log.tick(100)
    for rank in range(4):
        enqueued = -1 if rank == 2 else 5
        log.digest(rank, group("0", "0-3", 4, enqueued=enqueued), entry_count=5)
    log.tick(2)
    assert blamed(log.last) == [2]


def test_a_hang_that_resolves_is_taken_back() -> None:
    log = Log()
    for rank in range(4):
        log.digest(rank, group("0", "0-3", 4, enqueued=-1 if rank == 2 else 5), entry_count=5)
    log.tick(QUIET_S)
    assert blamed(log.last) == [2]
    for rank in range(4):
        log.digest(rank, group("0", "0-3", 900), entry_count=5)
    log.tick(QUIET_S)
    assert log.last.verdict == "no-fault"


def test_a_stuck_rank_on_a_lost_gpu_is_one_incident_whose_culprit_is_the_gpu() -> None:
    log = cluster("n1", "n2")
    for rank in range(4):
        node = f"n{1 + rank // 2}"
        enqueued = -1 if rank == 2 else 5
        log.digest(rank, group("0", "0-3", 4, enqueued=enqueued), node=node, entry_count=5)
    log.tick(QUIET_S)
    assert blamed(log.last) == [2]
    log.kernel(xid(79), "n2")
    assert [each.id for each in log.last.culprits] == ["gpu/n2/0000:1b:00.0"]
    assert log.last.ranks == (2,)
    assert "rank/llama/2" not in log.last.victims


def test_a_rank_that_arrives_last_time_after_time_is_a_straggler() -> None:
    def arrivals(lag_ms: int) -> list[tuple[int, int]]:
        return [(n, START_NS + n * 300 * MS + lag_ms * MS) for n in range(1, 13)]

    def digest(rank: int, lag_ms: int) -> list[GroupDigest]:
        return [group("0", "0-3", 12, arrivals=arrivals(lag_ms))]

    verdict = one({rank: digest(rank, 150 if rank == 2 else rank) for rank in range(4)})
    assert (verdict.fault_class, blamed(verdict)) == ("straggler.host", [2])
    assert "150 ms" in verdict.reason or "147 ms" in verdict.reason
    assert not judged({rank: digest(rank, 30 if rank == 2 else 0) for rank in range(4)})


def test_a_rank_that_is_late_once_is_none() -> None:
    even = [(n, START_NS + n * 300 * MS) for n in range(1, 13)]
    once = [*even[:-1], (12, even[-1][1] + 200 * MS)]
    digests = {rank: [group("0", "0-3", 12, arrivals=even)] for rank in range(3)}
    assert not judged({**digests, 3: [group("0", "0-3", 12, arrivals=once)]})


def test_an_older_digest_does_not_replace_a_newer_one() -> None:
    log = Log()
    log.tick(5)
    for rank in range(4):
        log.digest(rank, group("0", "0-3", 9), entry_count=5)
    log.digest(2, group("0", "0-3", 4), entry_count=5, at_ns=log.now_ns - 2_000_000_000)
    log.tick(QUIET_S)
    assert not log.verdicts


def begun_or_not(stuck: GroupDigest, *, started: bool) -> GroupDigest:
    """The group with its pending operation begun, or only given to the GPU."""
    assert stuck.first_unfinished is not None
    return replace(stuck, first_unfinished=replace(stuck.first_unfinished, started=started))


def test_a_gpu_that_did_not_begin_what_its_peers_are_in_is_stalled() -> None:
    def at(*, started: bool) -> GroupDigest:
        return begun_or_not(group("0", "0-3", 4, enqueued=6), started=started)

    begun = {rank: [at(started=True)] for rank in (0, 1, 3)}
    verdict = one({**begun, 2: [at(started=False)]})
    assert (verdict.verdict, verdict.fault_class) == ("attributed", "gpu.stall")
    assert blamed(verdict) == [2]
    nobody = one({rank: [at(started=False)] for rank in range(4)})
    assert (nobody.verdict, nobody.culprits) == ("insufficient", ())


def test_a_rank_whose_gpu_is_in_another_group_is_not_behind_in_this_one() -> None:
    def in_group(name: str, ranks: str, created_ns: int, *, started: bool) -> GroupDigest:
        stuck = group(name, ranks, 4, enqueued=5, created_ns=created_ns)
        return begun_or_not(stuck, started=started)

    later = START_NS + MS
    verdict = one(
        {
            0: [in_group("0", "0-2", later, started=True)],
            1: [
                in_group("0", "0-2", later, started=False),
                in_group("1", "1,2", START_NS, started=True),
            ],
            2: [
                in_group("0", "0-2", later, started=False),
                in_group("1", "1,2", START_NS, started=False),
            ],
        }
    )
    assert (verdict.fault_class, blamed(verdict)) == ("gpu.stall", [2])


def test_a_rank_whose_last_call_was_with_a_rank_that_is_gone_fell_with_it() -> None:
    """Of gloo: a collective that failed because a member died counts as completed."""
    pair = GroupDigest(
        name="1", ranks="1,3", last_enqueued=5, last_completed=5, arrivals=((5, START_NS + 6 * MS),)
    )
    verdict = one(
        {
            0: [passed("0", "0-3", 4, 5)],
            1: [passed("0", "0-3", 4), pair],
            2: [passed("0", "0-3", 4, 5)],
        },
        3,
    )
    assert blamed(verdict) == [3]


def test_what_failed_because_a_rank_died_is_no_progress() -> None:
    """Of gloo: 1 and 3 saw the last collective fail, 0 still waits, 2 is gone."""
    failed = [passed("0", "0-3", 5)]
    verdict = one({0: [passed("0", "0-3", 4, 5)], 1: failed, 3: failed}, 2)
    assert blamed(verdict) == [2]


def test_broken_digests_that_state_millions_of_ranks_cost_no_more_than_a_large_job() -> None:
    hostile = tuple(group(f"a{at}", "0-999999", 3, enqueued=4) for at in range(12))
    honest = group("z", "0-3", 3, enqueued=4)
    seen = {
        rank: Seen("fact", rank + 1, "n1", START_NS, 0, 5, False, (*hostile, honest))
        for rank in range(3)
    }
    groups = groups_of(seen)
    assert [each.name for each in groups] == sorted(each.name for each in (*hostile, honest))
    assert groups[-1].listed == (0, 1, 2, 3)
    assert sum(len(each.listed) for each in groups) <= LISTED_MAX
    assert {each.listed for each in groups if len(each.listed) < 1_000_000} == {
        (0, 1, 2),
        (0, 1, 2, 3),
    }


def stuck_beside_unseen(*, started: bool) -> Mapping[int, Sequence[GroupDigest]]:
    """Of eight ranks two were not read; 2 has not completed what 0, 1 and 3 have."""
    done = [group("0", "0-7", 5), group("1", "0-3", 6, enqueued=7, created_ns=START_NS - 10**9)]
    behind = group("0", "0-7", 4, enqueued=5, created_ns=START_NS - 2 * 10**9)
    operation = behind.first_unfinished
    assert operation is not None
    behind = replace(behind, first_unfinished=replace(operation, started=started))
    whole = [group("0", "0-7", 5)]
    return {**dict.fromkeys((0, 1, 3), done), 4: whole, 5: whole, 2: [behind, group("1", "0-3", 6)]}


@pytest.mark.parametrize(("started", "named"), [(True, [2]), (False, [])])
def test_what_some_completed_and_went_on_from_nobody_is_missing_in(
    started: bool, named: list[int]
) -> None:
    assert blamed(one(stuck_beside_unseen(started=started))) == named


def standing(seconds: int, digests: Mapping[int, Sequence[GroupDigest]]) -> Log:
    """A job of eight nodes that took steps of a second, then stands and is read once."""
    log = cluster(*(f"n{number}" for number in range(1, 9)))
    log.submitted(*(f"n{number}" for number in range(1, 9)), ranks_per_node=1)
    for second in range(20 + seconds):
        for rank in range(8):
            row = {"rank": rank, "step": min(second, 12), "step_ns": 10**9, "own_ns": 9}
            fields = {"step_count": 1, "steps": step_block(row), "period_ns": 10**9}
            log.sample(f"n{rank + 1}", job="llama", **fields)
        if second == 20:
            for rank, groups in digests.items():
                log.digest(rank, *groups, node=f"n{rank + 1}", entry_count=5)
        log.tick(1)
    return log


def test_who_has_not_completed_what_its_peers_have_is_named_before_a_save_would_be_over() -> None:
    assert blamed(standing(12, stuck_beside_unseen(started=True)).last) == [2]


def test_who_never_called_is_not_named_before_a_save_would_be_over() -> None:
    waiting = {rank: [group("0", "0-7", 4, enqueued=5)] for rank in range(8) if rank != 2}
    digests = {**waiting, 2: [group("0", "0-7", 4)]}
    assert not standing(50, digests).verdicts
    assert blamed(standing(70, digests).last) == [2]


def test_a_recorder_that_is_older_than_the_latest_step_says_nothing_of_the_next_stall() -> None:
    log = standing(0, {})
    log.digest(7, group("0", "0-7", 1), node="n8", entry_count=5, at_ns=START_NS + 5 * 10**9)
    for rank in range(7):
        log.digest(rank, group("0", "0-7", 4, enqueued=5), node=f"n{rank + 1}", entry_count=5)
    for _ in range(62):
        log.tick(1)
    assert "of whom no recorder was read" in log.last.reason
