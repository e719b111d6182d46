"""What holds for any log: replay says the same, garbage never crashes, order of arrival is moot."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.attribution.attribution import Attribution
from nemesis.processors.attribution.inventory import Inventory
from nemesis.processors.attribution.links import Links
from nemesis.processors.attribution.pauses import Pauses
from nemesis.processors.processor import Processor
from nemesis.schemas.channels import ABSENT, NIC_CHANNELS
from nemesis.schemas.facts import Fact, encode_conclusion
from nemesis.schemas.inferred import FaultAttributed
from nemesis.schemas.observed import (
    DeviceStateRead,
    GroupDigest,
    OperationSeen,
    PortSeen,
    SettingRead,
)
from tests.attribution_log import (
    SECOND_NS,
    Log,
    cluster,
    gpu_block,
    gpu_state_block,
    host_block,
    nic_block,
    step_block,
    wired,
    xid,
)
from tests.test_attribution import recovered

NODES = ("n1", "n2", "n3", "n4")
TEXTS = (
    xid(79),
    xid(79, "0000:1c:00"),
    xid(48),
    xid(94),
    xid(63),
    xid(31),
    xid(45, rest="Ch 1 caused by previous Xid 31"),
    xid(74, "0000:1c:00"),
    xid(145, rest="RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001)"),
    xid(149, rest="NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x0215c5c6 0x00000000)"),
    xid(154, rest="GPU recovery action changed from 0x0 (None) to 0x99 (Unheard of)"),
    xid(999),
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: installed in this system has fallen off the bus",
    "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
    "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 22003, Fatal, Link 1 Minion Halt",
    "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x",
    "nvidia 0000:1b:00.0: AER: can't recover (no error_detected callback)",
    "EDAC MC3: 1 UE memory read error on DIMM_A (channel:2)",
    "EDAC MC3: 1 UE memory read error on DIMM_B (channel:2)",
    "mlx5_core 0000:41:00.0: device's health compromised - reached miss count",
    "Out of memory: Killed process 7 (python3) total-vm:2kB",
    "usb 1-1: new high-speed USB device",
)
Act = Callable[[Log], Any]

nodes = st.sampled_from(NODES)
ranks = st.integers(0, 9)
counts = st.integers(-1, 6)


def _recovered_last(log: Log, rank: int) -> None:
    if log.verdicts:
        recovered(log, log.verdicts[-1].incident, rank)


def _group(name: str, members: str, *, done: int, more: int, op: str, p2p: bool) -> GroupDigest:
    pending = OperationSeen(seq=max(done, 0) + 1, op=op, p2p=p2p, created_ns=1)
    return GroupDigest(
        name=name,
        ranks=members,
        last_enqueued=done + more,
        last_completed=done,
        first_unfinished=pending if more else None,
        arrivals=tuple((n, n * SECOND_NS) for n in range(max(done, 0))),
    )


groups = st.builds(
    _group,
    st.sampled_from(("0", "tp", "pp")),
    st.sampled_from(("0-7", "0-6:2", "", "1,3", "garbage", "0-999999")),
    done=counts,
    more=st.integers(0, 3),
    op=st.sampled_from(("all_reduce", "broadcast", "send 0->1", "recv 1<-99", "")),
    p2p=st.booleans(),
)
evidence: st.SearchStrategy[Act] = st.one_of(
    st.builds(lambda node, text: lambda log: log.kernel(text, node), nodes, st.sampled_from(TEXTS)),
    st.builds(
        lambda node, rank, code, signal: (
            lambda log: log.exited(rank, node=node, exit_code=code, signal=signal)
        ),
        nodes,
        ranks,
        st.sampled_from((-11, 0, 1, 137)),
        st.sampled_from((0, 6, 9)),
    ),
    st.builds(
        lambda node, rank, each, gone: (
            lambda log: log.digest(rank, *each, node=node, dump_missing=gone, entry_count=len(each))
        ),
        nodes,
        ranks,
        st.lists(groups, max_size=3, unique_by=lambda group: group.name),
        st.booleans(),
    ),
)
rows = st.fixed_dictionaries(
    {
        "port_up": st.integers(0, 1),
        "link_downed_count": st.integers(0, 2),
        "symbol_error_count": st.sampled_from((0, 7, 900)),
    }
)
nics = st.lists(rows, min_size=1, max_size=2).map(lambda own: nic_block(*own))
own_times = st.sampled_from((ABSENT, 0, 900_000_000, 2_000_000_000))


@st.composite
def polls(draw: st.DrawFn) -> Act:
    """One poll of a node, whole or broken, with its NICs, a rank's step and what slows it."""
    node, block = draw(nodes), draw(st.one_of(nics, st.just(b"torn")))
    row = {
        "rank": draw(st.integers(-1, 9)),
        "step": draw(st.integers(-1, 9)),
        "step_ns": draw(own_times),
        "own_ns": draw(own_times),
    }
    reasons = draw(st.sampled_from((0, 0x1, 0x20, 0x80, ABSENT)))
    return lambda log: log.sample(
        node,
        nic_count=max(1, len(block) // (8 * len(NIC_CHANNELS))),
        nic=block,
        gpu_count=1,
        gpu=gpu_block({"clock_event_reasons": reasons, "sm_clock_mhz": 1500}),
        host=host_block(cpu_pressure_ppm=900_000),
        job="llama",
        step_count=1,
        steps=step_block(row),
        period_ns=SECOND_NS,
    )


@st.composite
def switch_polls(draw: st.DrawFn) -> Act:
    """One poll of a switch: its ports, their errors and the times in which they were paused."""
    ports = [
        PortSeen(
            port=str(number),
            peer=f"nic/n{number}/mlx5_0",
            up=draw(st.sampled_from((True, True, False))),
            crc_error_count=draw(st.sampled_from((0, 0, 500))),
            rx_pause_us=draw(st.sampled_from((0, 1_000, 900_000, 1_900_000))),
            pfc_deadlock_count=draw(st.sampled_from((0, 0, 0, 1))),
        )
        for number in draw(st.sampled_from(((1,), (1, 2), (1, 2, 3, 4))))
    ]
    return lambda log: log.fabric("leaf1", *ports)


@st.composite
def device_states(draw: st.DrawFn) -> Act:
    """The lanes of a node's GPUs."""
    node, lanes = draw(nodes), draw(st.lists(st.sampled_from((4, 16)), min_size=1, max_size=2))
    block = gpu_state_block(*({"pcie_width": each} for each in lanes))
    return lambda log: log.told(
        "device_state", DeviceStateRead, node, gpu_count=len(lanes), gpu=block
    )


@st.composite
def releases(draw: st.DrawFn) -> Act:
    """The release of a library on one node."""
    node, value = draw(nodes), draw(st.sampled_from(("2.21.5", "2.27.3")))
    return lambda log: log.told(
        "setting", SettingRead, node, component=f"node/{node}", name="nccl", value=value
    )


acts: st.SearchStrategy[Act] = st.one_of(
    evidence,
    evidence,
    polls(),
    polls(),
    switch_polls(),
    device_states(),
    releases(),
    st.builds(lambda seconds: lambda log: log.tick(seconds), st.sampled_from((0.4, 1, 2, 70))),
    st.builds(
        lambda node, value: (
            lambda log: log.sample(node, gpu_count=2, gpu=gpu_block({"dram_ue_count": value}, {}))
        ),
        nodes,
        st.integers(0, 3),
    ),
    st.builds(lambda node: lambda log: log.spooled(node), nodes),
    st.builds(lambda node: lambda log: log.inventory(node, "0000:1b:00.0"), nodes),
    st.builds(lambda: lambda log: log.submitted(*NODES)),
    st.builds(lambda rank: lambda log: _recovered_last(log, rank), ranks),
)


def written(processor: Processor, facts: Sequence[Fact]) -> list[bytes]:
    """What a processor makes of facts, as it would lie in the log."""
    return [
        encode_conclusion(
            id="x",
            source="s",
            at_ns=0,
            data=each.data,
            key=each.key,
            cause=" ".join(map(str, each.cause)),
            job=each.job,
        )[1]
        for fact in facts
        for each in processor.step(fact)
    ]


def facts_of(actions: Sequence[Act]) -> list[Fact]:
    log = wired(*NODES, nics=2)
    for act in actions:
        act(log)
    log.tick(3)
    log.tick(70)
    return log.facts


@settings(max_examples=30)
@given(st.lists(acts, max_size=20), st.data())
def test_a_copy_restored_anywhere_says_the_same_and_ends_in_the_same_state(
    actions: list[Act], data: st.DataObject
) -> None:
    facts = facts_of(actions)
    cut = data.draw(st.integers(0, len(facts)))
    whole, first, second = Attribution(), Attribution(), Attribution()
    expected = written(whole, facts)
    said = written(first, facts[:cut])
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()
    said += written(second, facts[cut:])
    assert said == expected
    assert second.snapshot() == whole.snapshot()


@settings(max_examples=30)
@given(st.lists(acts, max_size=20))
def test_every_verdict_fits_the_log_and_rests_on_facts_that_were_read(actions: list[Act]) -> None:
    facts = facts_of(actions)
    ids = {fact.id for fact in facts}
    revisions: dict[str, int] = {}
    for fact in facts:
        assert fact.seq > 0
    processor = Attribution()
    for fact in facts:
        for conclusion in processor.step(fact):
            verdict = conclusion.data
            assert isinstance(verdict, FaultAttributed)
            assert {each.fact for each in verdict.evidence} <= ids
            assert all(seq <= fact.seq for seq in conclusion.cause)
            assert (verdict.verdict == "attributed") == bool(verdict.culprits)
            assert not {each.id for each in verdict.culprits} & set(verdict.victims)
            assert verdict.revision == revisions.get(verdict.incident, 0)
            revisions[verdict.incident] = verdict.revision + 1
            assert msgspec.json.encode(verdict)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(nodes, st.sampled_from(TEXTS)), min_size=2, max_size=10),
    st.randoms(use_true_random=False),
)
def test_facts_of_different_nodes_may_arrive_in_any_order_within_the_hold_back(
    lines: list[tuple[str, str]], dice: Any
) -> None:
    def verdicts(order: Sequence[tuple[str, str]]) -> list[tuple[Any, ...]]:
        log = cluster(*NODES)
        for node, text in order:
            log.kernel(text, node)
        log.tick(3)
        last = {each.incident: each for each in log.verdicts}
        return sorted(
            (each.verdict, each.fault_class, each.signature, tuple(c.id for c in each.culprits))
            for each in last.values()
        )

    by_node = {node: [line for line in lines if line[0] == node] for node in NODES}
    turns = [node for node, _ in lines]
    dice.shuffle(turns)
    queues = {node: iter(own) for node, own in by_node.items()}
    shuffled = [next(queues[node]) for node in turns]
    assert verdicts(shuffled) == verdicts(lines)


def test_the_state_stays_small_however_long_the_log_is() -> None:
    log = cluster(*NODES)
    sizes: list[int] = []
    for _ in range(6):
        for text in TEXTS:
            for node in NODES:
                log.kernel(text, node)
        for rank in range(8):
            log.exited(rank, node=NODES[rank // 2], signal=6)
        log.tick(3)
        log.tick(700)
        sizes.append(len(log.processor.snapshot()))
    assert max(sizes[1:]) <= sizes[0] * 1.1


@settings(max_examples=30)
@given(
    st.lists(st.one_of(polls(), polls(), switch_polls(), device_states()), max_size=12),
    st.lists(st.integers(0, 11), max_size=4),
)
def test_samples_that_are_read_together_say_what_each_says_alone(
    actions: list[Act], looks: list[int]
) -> None:
    together, alone = wired(*NODES, nics=2), wired(*NODES, nics=2)
    for log in (together, alone):
        for _ in range(6):
            for at, act in enumerate(actions):
                act(log)
                if log is alone or at in looks:
                    log.processor.snapshot()
            log.tick(2)
    assert together.verdicts == alone.verdicts
    assert together.processor.snapshot() == alone.processor.snapshot()


@settings(max_examples=50)
@given(st.lists(switch_polls(), max_size=8))
def test_a_poll_on_which_nothing_changed_is_the_same_read_at_a_glance(actions: list[Act]) -> None:
    log = wired(*NODES, nics=2)
    for act in actions:
        act(log)
        log.tick(2)
    glanced: list[Links | Pauses] = [Links(), Pauses()]
    whole: list[Links | Pauses] = [Links(), Pauses()]
    inventory = Inventory()
    for fact in [fact for fact in log.facts if fact.kind == "fabric"]:
        for each, other in zip(glanced, whole, strict=True):
            if not each.take_quiet(fact):
                each.take_fabric(fact, inventory)
            other.take_fabric(fact, inventory)
    assert msgspec.msgpack.encode(glanced) == msgspec.msgpack.encode(whole)
