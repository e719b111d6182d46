"""Counters that only a NIC's driver tells: pauses, what the wire loses, how warm its module is."""

import subprocess
import sys
from pathlib import Path

import pytest

from nemesis.producers.node.ethtool import Driver
from nemesis.producers.node.probe import NotReadError
from nemesis.schemas.observed import DeviceStateRead, SampleTaken
from nemesis.views.shown import blocks_of
from tests.node_trees import Tree
from tests.test_node_watch import Watched, states_of, the

MLX5 = """rx_prio3_pause: 7
rx_prio3_pause_duration: 1500
tx_prio3_pause_duration: 20
rx_prio0_pause_duration: 5
rx_prio4_pause_duration: 6
rx_symbol_err_phy: 99
rx_corrected_bits_phy: 4000
rx_pcs_symbol_err_phy: 3
rx_crc_errors_phy: 2
rx_discards_phy: 18446744073709551615
tx_pause_storm_error_events: 1
"""
BNXT = """pfc_pri3_rx_duration_us: 11
pfc_pri5_rx_duration_us: 12
pfc_pri3_tx_duration_us: 13
rx_pcs_symbol_err: 14
"""
IN_ITS_OWN_NETWORK = """
from pyroute2 import IPRoute
from nemesis.producers.node.ethtool import Driver
with IPRoute() as links:
    links.link("add", ifname="v0", kind="veth", peer={"ifname": "v1"})
    driver = Driver("v0")
    first = driver.counters()
    links.link("del", index=links.link_lookup(ifname="v0")[0])
    links.link("add", ifname="v0", kind="veth", peer={"ifname": "v1", "num_rx_queues": 2},
               num_rx_queues=2, num_tx_queues=2)
    second = driver.counters()
assert first["peer_ifindex"] > 0 and second["peer_ifindex"] > 0, (first, second)
assert len(second) > len(first), (first, second)
print("read")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.rdma("mlx5_0", "pci0000:00/0000:18:00.0", symbol_error=5)
    (tmp_path / "sys/devices/pci0000:00/0000:18:00.0/net/eth2").mkdir(parents=True)
    (tmp_path / "sys/class/net").mkdir()
    device = "../../devices/pci0000:00/0000:18:00.0/net/eth2"
    (tmp_path / "sys/class/net/eth2").symlink_to(device)
    (tmp_path / "sys/class/net/eth2/device").symlink_to("../..")
    return tree


def test_pauses_and_errors_of_the_wire_are_what_the_driver_counts(tree: Tree) -> None:
    tree.write("ethtool/eth2", MLX5)
    sensor = "sys/devices/pci0000:00/0000:18:00.0/hwmon/hwmon3"
    tree.write(f"{sensor}/temp1_label", "asic\n")
    tree.write(f"{sensor}/temp2_label", "Module0\n")
    tree.write(f"{sensor}/temp2_input", 48_125)
    facts = Watched(tree).poll()
    nic = blocks_of(the(SampleTaken, facts))["nic"][0]
    assert (nic["rx_pause_duration_us"], nic["tx_pause_duration_us"]) == (1500, 20)
    assert nic["symbol_error_count"] == 5  # /sys has it: one counter, one source
    state = blocks_of(the(DeviceStateRead, facts))["nic"][0]
    assert (state["rx_other_pause_duration_us"], state["rx_prio3_pause_count"]) == (11, 7)
    assert (state["fec_corrected_bits_count"], state["fec_uncorrectable_count"]) == (4000, 3)
    assert (state["crc_error_count"], state["pause_storm_error_count"]) == (2, 1)
    assert state["discard_count"] is None  # more than any counter of the log can be
    assert state["module_temp_c"] == 48
    assert states_of(facts)["ethtool", "nic/n1/mlx5_0"] == "read"


def test_another_makers_names_mean_the_same(tree: Tree) -> None:
    tree.write("ethtool/eth2", BNXT)
    facts = Watched(tree).poll()
    nic = blocks_of(the(SampleTaken, facts))["nic"][0]
    assert (nic["rx_pause_duration_us"], nic["tx_pause_duration_us"]) == (11, 13)
    state = blocks_of(the(DeviceStateRead, facts))["nic"][0]
    assert (state["rx_other_pause_duration_us"], state["fec_uncorrectable_count"]) == (12, 14)


def test_a_driver_that_counts_nothing_of_the_kind_is_said_and_not_read_as_zero(tree: Tree) -> None:
    tree.write("ethtool/eth2", "rx_queue_0_packets: 5\n")
    facts = Watched(tree).poll()
    assert states_of(facts)["ethtool", "nic/n1/mlx5_0"] == "unsupported"
    assert blocks_of(the(SampleTaken, facts))["nic"][0]["rx_pause_duration_us"] is None


def test_a_driver_of_this_machine_is_asked_by_name_and_one_without_counters_says_so() -> None:
    with pytest.raises(NotReadError, match="the driver of lo has no counters"):
        Driver("lo").counters()
    with pytest.raises(NotReadError, match="share the host's network") as refused:
        Driver("gone0").counters()
    assert refused.value.state == "absent"


def test_a_real_drivers_counters_are_read_also_when_their_number_changed() -> None:
    own = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a network of his own")
    ran = subprocess.run(
        [*own, sys.executable, "-c", IN_ITS_OWN_NETWORK],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "read\n"), ran.stderr
