"""Promises of the simulator's own judgement: what reaches the log decides, and nothing else."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nemesis.sim.dry_run import weighed
from nemesis.sim.faults.causal import Cause, Expected
from nemesis.sim.faults.courses import plan_faults
from nemesis.sim.faults.scenario import scenario_named
from nemesis.sim.faults.symptoms import (
    DevicesReadOnce,
    Fault,
    MissedPolls,
    NoDump,
    NoKernelLog,
    SamplesLate,
    Symptom,
)
from nemesis.sim.offline import START_NS
from nemesis.sim.params import load_params
from nemesis.sim.topology.cluster_file import load_cluster
from nemesis.sim.truth.consistency import contradictions
from nemesis.sim.truth.defects import draw_defects, told
from nemesis.sim.truth.ledger import MembershipFormed, Truth, injected
from nemesis.sim.truth.ledger_file import Ledger, ledger_of, opening
from nemesis.sim.truth.oracle import ceiling
from tests.planned import planned

CLUSTER = load_cluster()
PARAMS = load_params()
NODE = "n006"
SECOND = 1_000_000_000


def fault(kind: str, *evidence: Expected, **fields: object) -> Fault:
    plan = planned(kind, after_s=6.0, node=NODE, gpu=4, nic=4, **fields)
    return replace(plan_faults(CLUSTER, [plan], 1)[0], evidence=evidence)


def expected(told: str, sign: str, **fields: object) -> Expected:
    return Expected(told=told, by=NODE, component="x", sign=sign, **fields)  # type: ignore[arg-type]


def weigh(fault: Fault, folder: Path, *defects: object) -> Fault:
    symptoms = [Symptom(0, NODE, each) for each in defects]  # type: ignore[arg-type]
    (found,) = weighed(
        CLUSTER,
        [fault],
        symptoms,
        PARAMS,
        seed=1,
        folder=folder,
        start_ns=START_NS,
        quantum_ns=SECOND,
    )
    return found


LINE = expected("kernel", "GPU has fallen off the bus")
LOST = expected("sample", "gpu.temp_c", shows="unreadable", row=4)
NONE = expected("kernel", "GPU has fallen into the sea")
HINT = expected("kernel", "SXid", decisive=False)


@pytest.mark.parametrize(
    ("evidence", "defects", "delivered"),
    [
        ((LINE, LOST), (), (0, 1)),
        ((LINE, LOST), (NoKernelLog(),), (1,)),
        ((LINE, LOST), (MissedPolls(1_000),), (0,)),
        ((LINE, LOST), (DevicesReadOnce(),), (0,)),
        ((LINE, LOST), (NoKernelLog(), MissedPolls(1_000)), ()),
        ((LINE,), (SamplesLate(600 * SECOND),), ()),
        ((NONE, HINT), (), (1,)),
    ],
)
def test_a_fault_is_attributable_if_what_decides_is_delivered_in_time(
    tmp_path: Path, evidence: tuple[Expected, ...], defects: tuple[object, ...], delivered: object
) -> None:
    found = weigh(fault("xid79", *evidence), tmp_path, *defects)
    assert found.delivered == delivered
    assert found.attributable is any(evidence[place].decisive for place in found.delivered)


@pytest.mark.parametrize(
    ("kind", "evidence"),
    [
        ("xid48", expected("sample", "gpu.dram_ue_count", shows="rises", value=1, row=4)),
        ("gpu-throttle", expected("sample", "gpu.temp_c", shows="at_least", value=80, row=4)),
        ("gpu-throttle", expected("sample", "gpu.sm_clock_mhz", shows="at_most", value=1_800)),
        ("gpu-throttle", expected("sample", "steps.own_ns", shows="above_others", value=100)),
        ("nic-flap", expected("sample", "nic.port_up", shows="at_most", value=0, row=4)),
        ("rank-exit", expected("process", "rank", row=44, value=44)),
        ("desync", expected("collective", "op", shows="differs", row=44)),
        ("node-lost", expected("sample", "", shows="silent")),
    ],
)
def test_every_way_in_which_a_fact_can_show_something_is_seen(
    tmp_path: Path, kind: str, evidence: Expected
) -> None:
    fields = {"differs_in": "operation", "ramp_s": 5.0}
    assert weigh(fault(kind, evidence, **fields), tmp_path / "broken").attributable is True
    elsewhere = replace(evidence, by="n002", row=12 if evidence.row == 44 else evidence.row)
    assert weigh(fault(kind, elsewhere, **fields), tmp_path / "else").attributable is False


LATE = expected("sample", "steps.own_ns", shows="above_others", value=100, row=44, decisive=False)
HOT = expected("sample", "gpu.temp_c", shows="at_least", value=80, row=4, explains=True)


@pytest.mark.parametrize(("stops_after_s", "is_slow"), [(30.0, True), (4.0, False)])
def test_what_explains_slowness_counts_where_the_rank_is_late_in_five_rounds(
    tmp_path: Path, stops_after_s: float, is_slow: bool
) -> None:
    slow = fault("gpu-throttle", LATE, HOT, ramp_s=0.0, slowdown_per_mille=500)
    stop = plan_faults(CLUSTER, [planned("rank-exit", after_s=6.0 + stops_after_s, rank=0)], 1)[0]
    # polled three times a step: five late readings are two rounds
    often = replace(CLUSTER, cluster=replace(CLUSTER.cluster, sample_period_ms=300))
    found, _ = weighed(
        often,
        [slow, replace(stop, evidence=())],
        (),
        PARAMS,
        seed=1,
        folder=tmp_path,
        start_ns=START_NS,
        quantum_ns=SECOND // 10,
    )
    assert found.delivered == ((0, 1) if is_slow else ())
    assert found.attributable is is_slow


def test_a_dump_that_nobody_wrote_shows_nothing(tmp_path: Path) -> None:
    evidence = expected("collective", "op", shows="differs", row=44)
    found = weigh(fault("desync", evidence, differs_in="operation"), tmp_path, NoDump())
    assert found.attributable is False


@pytest.mark.parametrize("differs_in", ["operation", "size", "order", "absent"])
def test_every_way_to_call_otherwise_shows_in_the_recorder_of_the_rank(
    tmp_path: Path, differs_in: str
) -> None:
    plan = planned("desync", after_s=6.0, node=NODE, gpu=4, differs_in=differs_in)
    (strays,) = plan_faults(CLUSTER, [plan], 1)
    found = weigh(strays, tmp_path / "strays")
    assert found.delivered == (0,)
    healthy = fault("slow-step", *strays.evidence, delay_ms=1)
    assert weigh(healthy, tmp_path / "healthy").delivered == ()


def test_an_order_of_calls_inverted_between_two_groups_can_be_known_and_acquits_the_peers(
    tmp_path: Path,
) -> None:
    job = replace(CLUSTER.job, nodes=4, tp=8)
    cluster = replace(CLUSTER, jobs=(job,))
    plan = planned("desync", after_s=6.0, node="n002", gpu=3, differs_in="order")
    (inverts,) = plan_faults(cluster, [plan], 7)
    (found,) = weighed(
        cluster,
        [inverts],
        (),
        PARAMS,
        seed=7,
        folder=tmp_path,
        start_ns=START_NS,
        quantum_ns=SECOND,
    )
    assert found.attributable
    assert {inverts.evidence[place].sign for place in found.delivered} <= {
        "last_enqueued",
        "started",
    }
    peers = {f"rank/llama/{rank}" for rank in range(8, 16)} - {found.culprit}
    assert peers <= set(found.innocent)
    assert [each.component for each in found.chain][:4] == [
        "program/llama",
        found.culprit,
        found.culprit,
        "job/llama",
    ]


def test_nothing_is_said_of_a_fault_of_which_no_evidence_is_expected(tmp_path: Path) -> None:
    assert weigh(fault("xid79"), tmp_path).attributable is None


def test_defects_are_drawn_at_their_rates_and_the_same_for_a_seed() -> None:
    rates = replace(PARAMS.defects, no_kernel_log_ppm=250_000, leaf_cut_off_ppm=1_000_000)
    drawn = [draw_defects(CLUSTER, rates, seed=seed, strikes_s=20.0) for seed in range(200)]
    assert drawn[0] == draw_defects(CLUSTER, rates, seed=0, strikes_s=20.0)
    count = sum(isinstance(each.effect, NoKernelLog) for run in drawn for each in run)
    # 3,200 nodes: three standard errors of a share of a quarter are 2.3 %
    assert abs(count / (200 * 16) - 0.25) < 0.023
    assert all(sum(line.endswith("cut_off") for line in told(run)) == 4 for run in drawn)


def ledger(*faults: Fault) -> Ledger:
    opened = opening(
        CLUSTER,
        scenario_named("gpu-off-bus"),
        seed=1,
        start_ns=START_NS,
        params_sha256=PARAMS.sha256,
    )
    formed = MembershipFormed(
        at_ns=START_NS + SECOND, epoch=0, step=1, world=112, redone_count=0, restarts_count=0
    )
    truths: tuple[Truth, ...] = (formed, *(injected(each, START_NS) for each in faults))
    return ledger_of(opened, truths, START_NS + 60 * SECOND)


SOUND = replace(fault("xid79", LINE, LOST), delivered=(0,), attributable=True)


def test_the_oracle_names_what_is_attributable_and_blames_nobody() -> None:
    known = ceiling(ledger(SOUND)).faults[0]
    assert (known.right_at, known.wrong_blame) == (0, ())
    unknown = ceiling(ledger(replace(SOUND, delivered=(), attributable=False))).faults[0]
    assert (unknown.named, unknown.verdict, unknown.wrong_blame) == ((), "insufficient", ())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"onset_ns": 0}, "strikes before it began"),
        ({"began_ns": 600 * SECOND, "onset_ns": 600 * SECOND}, "begins after the run"),
        ({"components": ("nonsense",)}, "no component's name"),
        ({"innocent": SOUND.components[:1]}, "guilty and innocent at once"),
        ({"harmless": SOUND.components[:1]}, "only harmless"),
        ({"classes": ()}, "no class"),
        ({"actions": ("pray",)}, "no action"),
        ({"delivered": (7,)}, "nobody expects"),
        ({"attributable": False}, "does not follow"),
        ({"components": ()}, "a decoy, and yet"),
        ({"chain": (Cause("nic/n002/mlx5_0", "dies", 0),)}, "which is not at fault"),
        (
            {"chain": (), "innocent": ("nic/n002/mlx5_0",)},
            "nothing says why it is loud",
        ),
        (
            {"chain": (Cause(SOUND.culprit, "dies", 9), Cause(SOUND.culprit, "is lost", 1))},
            "goes back in time",
        ),
    ],
)
def test_a_ledger_that_contradicts_itself_is_told(change: dict[str, object], says: str) -> None:
    assert contradictions(ledger(SOUND)) == []
    found = contradictions(ledger(replace(SOUND, **change)))
    assert any(says in each for each in found)
