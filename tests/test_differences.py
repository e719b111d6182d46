"""Promises about settings that differ: told where a job suffers, and never without."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.attribution.differences import OTHERS_MIN, Differences
from nemesis.schemas.observed import LogLineWritten, SettingRead
from tests.attribution_log import SECOND_NS, Log, nic_block, step_block, wired

NODES = [f"n{number}" for number in range(1, 9)]


def setting(log: Log, component: str, name: str, value: str) -> None:
    node = component.split("/")[1]
    log.told("setting", SettingRead, node, component=component, name=name, value=value)


def started() -> Log:
    log = wired(*NODES)
    for node in NODES:
        setting(log, f"node/{node}", "nics.mtu", "4200")
        setting(log, f"node/{node}", "nccl", "2.27.3")
    return log


def run(log: Log, seconds: int, *, step_ns: int = SECOND_NS, stands: bool = False) -> None:
    for second in range(seconds):
        for at, node in enumerate(NODES):
            step = 1 if stands else 1 + len(log.facts) + second
            rows = [
                {"rank": rank, "step": step, "step_ns": step_ns, "own_ns": step_ns // 2}
                for rank in (2 * at, 2 * at + 1)
            ]
            log.sample(
                node, job="llama", step_count=2, steps=step_block(*rows), period_ns=SECOND_NS
            )
        log.tick(1)


def test_a_nic_with_another_mtu_is_named_once_its_job_is_slower() -> None:
    log = started()
    run(log, 10)
    setting(log, "nic/n3/mlx5_1", "mtu", "1500")
    run(log, 20)
    assert not log.verdicts
    run(log, 20, step_ns=2 * SECOND_NS)
    assert [each.id for each in log.last.culprits] == ["nic/n3/mlx5_1"]
    assert log.last.fault_class == "network.config"
    assert "unlike 4200" in log.last.reason
    assert log.last.ruled_out


def test_another_release_on_one_node_is_named_once_its_job_stands_still() -> None:
    log = started()
    run(log, 10)
    setting(log, "node/n3", "nccl", "2.21.5")
    run(log, 5)
    assert not log.verdicts
    for _ in range(30):
        log.tick(1)
        for node in NODES:
            log.sample(node)
    assert [each.id for each in log.last.culprits] == ["software/n3/nccl"]
    assert log.last.fault_class == "software.version"


@pytest.mark.parametrize("nodes", [NODES[:2], NODES[:4]])
def test_what_several_have_is_no_slip(nodes: list[str]) -> None:
    log = started()
    for node in nodes:
        setting(log, f"nic/{node}/mlx5_1", "mtu", "1500")
    run(log, 10)
    run(log, 20, step_ns=2 * SECOND_NS)
    assert not [each for each in log.verdicts if each.culprits]


def test_a_setting_that_was_put_right_is_no_cause() -> None:
    log = started()
    run(log, 10)
    setting(log, "nic/n3/mlx5_1", "mtu", "1500")
    setting(log, "nic/n3/mlx5_1", "mtu", "4200")
    run(log, 20, step_ns=2 * SECOND_NS)
    assert not [each for each in log.verdicts if each.culprits]


def test_a_clock_that_follows_no_time_server_is_told_of_by_itself() -> None:
    log = started()
    run(log, 5)
    setting(log, "service/n3/chronyd", "reference", "none")
    run(log, 5)
    assert [each.id for each in log.last.culprits] == ["node/n3"]
    assert log.last.fault_class == "host.config"


@settings(max_examples=20)
@given(odd=st.sampled_from(NODES), order=st.permutations(NODES))
def test_whatever_the_nodes_are_called_and_in_which_order_they_tell(
    odd: str, order: list[str]
) -> None:
    log = wired(*NODES)
    for node in order:
        setting(log, f"node/{node}", "nccl", "2.21.5" if node == odd else "2.27.3")
    run(log, 5)
    run(log, 10, step_ns=2 * SECOND_NS)
    assert [each.id for each in log.last.culprits] == [f"software/{odd}/nccl"]


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(NODES), st.sampled_from(("2.21.5", "2.27.3", "2.28.0"))),
        max_size=40,
    )
)
def test_the_odd_one_is_who_alone_differs_at_the_end(told: list[tuple[str, str]]) -> None:
    log = wired(*NODES)
    for node, value in told:
        setting(log, f"node/{node}", "nccl", value)
    differences = Differences()
    for at, fact in enumerate(fact for fact in log.facts if fact.kind == "setting"):
        if at == 20:
            state = msgspec.msgpack.encode(differences)
            differences = msgspec.msgpack.decode(state, type=Differences)
        differences.take(fact)
    values = list(dict(told).values())
    odd = [node for node, value in dict(told).items() if values.count(value) == 1]
    alone = len(values) > OTHERS_MIN and len(set(values)) == 2
    assert [each.component for each in differences.odd.values()] == [
        f"node/{node}" for node in odd if alone
    ]


@pytest.mark.parametrize(
    ("name", "usual", "odd", "culprit", "fault_class"),
    [
        ("fabric_manager", "570", "inactive", "service/n3/nvidia-fabricmanager", "host.service"),
        ("memlock_kib", "unlimited", "64", "config/n3/memlock", "host.config"),
        ("nvidia_driver", "570", "550", "software/n3/nvidia-driver", "software.version"),
    ],
)
def test_a_host_set_otherwise_is_named_by_what_is_set_once_its_job_stands_still(
    name: str, usual: str, odd: str, culprit: str, fault_class: str
) -> None:
    log = started()
    for node in NODES:
        setting(log, f"node/{node}", name, usual)
    run(log, 10)
    setting(log, "node/n3", name, odd)
    run(log, 10)
    assert not log.verdicts
    run(log, 30, stands=True)
    assert [each.id for each in log.last.culprits] == [culprit]
    assert log.last.fault_class == fault_class


def test_access_control_is_at_fault_where_gpus_of_that_node_say_that_they_cannot_be_reached() -> (
    None
):
    says = "NCCL WARN P2P is disabled between connected GPUs 1 and 0."
    for node, right in (("n3", ["config/n3/acs"]), ("n4", [])):
        log = started()
        setting(log, "node/n3", "pcie_acs", "on")
        log.told("log", LogLineWritten, node, job="llama", rank=4, source="nccl", text=says)
        run(log, 6)
        assert [each.id for verdict in log.verdicts for each in verdict.culprits] == right


def test_what_a_rank_of_that_node_says_of_a_failure_is_proof_enough() -> None:
    says = "NET/IB: Got completion from peer 10.3.0.1<40123> with status=12 opcode=0 hca mlx5_1"
    for at, named in (("n3", True), ("n5", False)):
        log = started()
        run(log, 10)
        setting(log, "nic/n3/mlx5_1", "mtu", "1500")
        line = {"job": "llama", "rank": 4, "source": "nccl", "text": says}
        log.told("log", LogLineWritten, at, **line)
        run(log, 3)
        found = [each.id for verdict in log.verdicts for each in verdict.culprits]
        assert ("nic/n3/mlx5_1" in found) == named


def test_a_rank_that_finds_releases_that_differ_proves_which_node_has_the_other() -> None:
    says = "Mismatched NCCL version detected : rank 4 version 22105 rank 0 version 22703"
    log = started()
    run(log, 10)
    setting(log, "node/n3", "nccl", "2.21.5")
    log.told("log", LogLineWritten, "n1", job="llama", rank=0, source="nccl", text=says)
    run(log, 3)
    assert [each.id for each in log.last.culprits] == ["software/n3/nccl"]


def test_a_setting_under_which_a_job_got_on_well_is_not_what_stops_it_later() -> None:
    log = started()
    run(log, 10)
    setting(log, "nic/n3/mlx5_1", "mtu", "1500")
    run(log, 70)
    setting(log, "nic/n3/mlx5_1", "mtu", "1500")
    run(log, 40, stands=True)
    assert not any(verdict.culprits for verdict in log.verdicts)


def test_a_nic_that_is_set_otherwise_and_sends_again_is_named_before_its_job_is_slow() -> None:
    log = started()
    run(log, 10)
    setting(log, "nic/n3/mlx5_1", "mtu", "1500")
    for second in range(8):
        rows = [{}, {"packet_seq_err_count": 200 * second}, {}]
        log.sample("n3", nic_count=3, nic=nic_block(*rows), period_ns=SECOND_NS)
        run(log, 1)
    assert [each.id for each in log.last.culprits] == ["nic/n3/mlx5_1"]


def test_two_that_differ_are_named_where_their_own_ranks_fail() -> None:
    says = "Mismatched NCCL version detected : rank 4 version 22105 rank 0 version 22703"
    log = started()
    run(log, 10)
    for node in ("n3", "n6"):
        setting(log, f"node/{node}", "nccl", "2.21.5")
    log.told("log", LogLineWritten, "n1", job="llama", rank=0, source="nccl", text=says)
    run(log, 3)
    found = {each.id for verdict in log.verdicts for each in verdict.culprits}
    assert found == {"software/n3/nccl", "software/n6/nccl"}
