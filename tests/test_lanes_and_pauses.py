"""Promises about PCIe lanes in `lspci`, and pause frames between two readings of counters."""

from pathlib import Path

import pytest

from tests.told import summary, told

GPU = "3D controller: NVIDIA Corporation GX100 (rev a1)"
NIC = "Ethernet controller: Some Adapter [X-9]"


def device(bus: int, what: str, lanes: int, of: int = 16) -> str:
    return (
        f"{bus:02x}:00.0 {what}\n"
        f"\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x{of}, ASPM not supported\n"
        f"\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x{lanes}\n"
    )


@pytest.mark.parametrize(
    ("what", "fault_class", "culprit"),
    [(GPU, "straggler.gpu", "gpu"), (NIC, "nic", "nic")],
)
def test_a_device_with_fewer_lanes_than_its_like_is_named(
    tmp_path: Path, what: str, fault_class: str, culprit: str
) -> None:
    answer = told(tmp_path, {"lspci": device(16, what, 16) + device(32, what, 8)})
    name = f"{culprit}/localhost/0000:20:00.0"
    assert summary(answer) == ("attributed", fault_class, [name])


def test_a_device_alone_may_sit_in_a_short_slot(tmp_path: Path) -> None:
    answer = told(tmp_path, {"lspci": device(16, NIC, 8)})
    assert summary(answer) == ("class-only", "nic", [])


def test_a_link_that_is_slow_while_it_idles_is_no_fault(tmp_path: Path) -> None:
    answer = told(tmp_path, {"lspci": device(16, GPU, 16) + device(32, GPU, 16)})
    assert summary(answer) == ("no-fault", "none", [])


def test_other_devices_may_have_what_lanes_they_like(tmp_path: Path) -> None:
    bridge = "PCI bridge: Some Switch"
    answer = told(tmp_path, {"lspci": device(16, bridge, 16) + device(32, bridge, 4)})
    assert answer.culprits == []


def statistics(**counts: int) -> str:
    rows = "".join(f"     {name}: {value}\n" for name, value in counts.items())
    return f"NIC statistics:\n{rows}"


def test_an_adapter_that_asks_for_pauses_without_end_is_where_to_look(tmp_path: Path) -> None:
    before = statistics(tx_prio3_pause=4, rx_prio3_pause=9)
    after = statistics(tx_prio3_pause=40_000_000, rx_prio3_pause=9)
    answer = told(tmp_path, {"before/ethtool": before, "after/ethtool": after})
    assert summary(answer) == ("class-only", "network.pause", [])
    assert "come from nic/" in answer.reason


@pytest.mark.parametrize("after", [4, 4_000])
def test_pauses_as_congestion_makes_them_are_no_fault(tmp_path: Path, after: int) -> None:
    files = {
        "before/ethtool": statistics(tx_prio3_pause=4),
        "after/ethtool": statistics(tx_prio3_pause=after),
    }
    assert summary(told(tmp_path, files)) == ("no-fault", "none", [])


def test_pauses_that_were_read_once_say_nothing(tmp_path: Path) -> None:
    answer = told(tmp_path, {"ethtool": statistics(tx_prio3_pause=40_000_000)})
    assert summary(answer)[1:] == ("none", [])
