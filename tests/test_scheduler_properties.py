"""What holds for any queue: nodes are never shared, gangs are whole, and nobody is delayed."""

from collections.abc import Callable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.scheduler.queue import Delay, Start, decide, ground_of
from nemesis.processors.scheduler.settings import Settings
from nemesis.processors.scheduler.state import Running, State, Waiting
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.scheduled import JobPlaced, JobReleased
from tests.log_cell import SECOND_NS
from tests.scheduler_cell import START_NS, Cell

NODES = [f"n{at:03}" for at in range(1, 9)]
SPECS = ["TP8_NVL18", "TP8_NVL18+DP2", "TP8_NVL18+DP3_IB8@t1", "TP8_NVL18+DP2;spare=1",
         "TP8_NVL18+DP4_IB8@t1?5s", "TP16_NVL18", "TP8_NVL18+DP9", "TP8_"]  # fmt: skip
Act = Callable[[Cell], object]


def _submit(job: str, spec: str) -> Act:
    return lambda cell: cell.submit(job, spec)


acts: st.SearchStrategy[Act] = st.one_of(
    st.builds(_submit, st.sampled_from("abcdef"), st.sampled_from(SPECS)),
    st.builds(
        lambda job, again: lambda cell: cell.end(job, requeued=again),
        st.sampled_from("abcdef"),
        st.booleans(),
    ),
    st.builds(lambda node: lambda cell: cell.blame(f"node/{node}", node), st.sampled_from(NODES)),
    st.builds(lambda node: lambda cell: cell.close(node), st.sampled_from(NODES)),
    st.builds(lambda seconds: lambda cell: cell.tick(seconds), st.integers(1, 10)),
)


@settings(max_examples=15)
@given(st.lists(acts, max_size=12))
def test_whatever_happens_nodes_have_one_job_and_gangs_are_whole(actions: list[Act]) -> None:
    cell = Cell((3, 3, 2))
    held: dict[str, set[str]] = {}
    seen = 0
    for act in actions:
        act(cell)
        for said in cell.said[seen:]:
            if isinstance(said, JobReleased):
                held.pop(said.job, None)
            if isinstance(said, JobPlaced):
                own = {*said.submission.node_names, *said.spares}
                assert len(own) == len(said.submission.node_names) + len(said.spares)
                assert all(own.isdisjoint(others) for others in held.values())
                world = said.ranks_per_node * len(said.submission.node_names)
                assert world % (said.tp * said.pp * said.cp) == 0
                held[said.job] = own
        seen = len(cell.said)


def job(name: str, nodes: int, runtime_s: int, *, at: tuple[str, ...] = ()) -> JobSubmitted:
    return JobSubmitted(
        at_ns=START_NS, by="ann", reason="test", job=name, nodes=at,
        spec=f"TP8_NVL18+DP{nodes}", runtime_ns=runtime_s * SECOND_NS,
    )  # fmt: skip


runtimes = st.integers(1, 5).map(lambda hours: hours * 3600)


@settings(max_examples=12)
@given(st.lists(runtimes, min_size=1, max_size=4), st.lists(st.tuples(st.integers(1, 8), runtimes)))
def test_whoever_is_let_through_does_not_delay_the_first_that_waits(
    running: list[int], waiting: list[tuple[int, int]]
) -> None:
    told = Cell((4, 4)).fold.processor
    state = _state_of(told.snapshot())
    for at, runtime_s in enumerate(running):
        own = job(f"r{at}", 1, runtime_s, at=(NODES[at * 2],))
        state.running[own.job] = Running(job=own, submitted=own, since_ns=START_NS)
    for at, (nodes, runtime_s) in enumerate(waiting):
        state.queue[f"w{at}"] = Waiting(job(f"w{at}", nodes, runtime_s), at + 1, START_NS)
    now_ns = START_NS + SECOND_NS
    before = decide(state, Settings(), ground_of(state, state.told.pool()), now_ns)
    head = next((each for each in before if isinstance(each, Delay)), None)
    for each in before:
        if isinstance(each, Start):
            own = state.queue.pop(each.name).job
            placed = job(each.name, len(each.place.nodes), own.runtime_ns // SECOND_NS,
                         at=each.place.nodes)  # fmt: skip
            state.running[each.name] = Running(job=placed, submitted=own, since_ns=now_ns)
    after = decide(state, Settings(), ground_of(state, state.told.pool()), now_ns)
    if head is not None and head.reservation is not None:
        (still,) = [each for each in after if isinstance(each, Delay) and each.name == head.name]
        assert still.reservation is not None
        assert still.reservation.start_ns <= head.reservation.start_ns


def _state_of(snapshot: bytes) -> State:
    return msgspec.msgpack.decode(snapshot, type=State)
