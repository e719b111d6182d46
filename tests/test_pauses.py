"""Promises about pause frames: who paused first is named, and nobody who was only held back."""

from nemesis.schemas.observed import NicDescribed, PortSeen
from tests.attribution_log import SECOND_NS, Log, nic_block

NODES = [f"n{number}" for number in range(1, 5)]
HALF_US = 500_000
UPLINK = {1: "port/spine1/1", 2: "port/spine1/2"}


class Network:
    """Two nodes on each of two leaves, both leaves on a spine that nobody polls."""

    def __init__(self) -> None:
        self.log = Log()
        self.nics: dict[str, list[int]] = {node: [0, 0] for node in NODES}
        self.ports: dict[str, list[int]] = {}
        for at, node in enumerate(NODES):
            port = f"port/leaf{1 + at // 2}/{1 + at % 2}"
            nic = NicDescribed(name="mlx5_0", pci="0000:40:00.0", switch_port=port)
            self.log.inventory(node, "0000:1b:00.0", nics=(nic,))
            self.ports[port] = [0, 0]
        for leaf in (1, 2):
            self.ports[f"port/leaf{leaf}/9"] = [0, 0]
        self.log.submitted(*NODES, ranks_per_node=1)

    def run(self, seconds: int, rises: dict[str, tuple[int, int]]) -> None:
        """(received, sent) microseconds of pause a second, by node or port."""
        for _ in range(seconds):
            for name, (received, sent) in rises.items():
                counters = self.nics[name] if name in self.nics else self.ports[name]
                counters[0] += received
                counters[1] += sent
            for node, (received, sent) in self.nics.items():
                row = {"rx_pause_duration_us": received, "tx_pause_duration_us": sent}
                nic = nic_block(row)
                self.log.sample(node, nic_count=1, nic=nic, period_ns=SECOND_NS)
            for leaf in (1, 2):
                self.log.fabric(f"leaf{leaf}", *self._seen(leaf))
            self.log.tick(1)

    def _seen(self, leaf: int) -> list[PortSeen]:
        peers = {
            f"port/leaf{1 + at // 2}/{1 + at % 2}": f"nic/{n}/mlx5_0" for at, n in enumerate(NODES)
        }
        return [
            PortSeen(port=name, peer=peers.get(name, UPLINK[leaf]), rx_pause_us=rx, tx_pause_us=tx)
            for name, (rx, tx) in self.ports.items()
            if name.startswith(f"port/leaf{leaf}/")
        ]


STORM = {
    "n3": (0, HALF_US),
    "port/leaf2/1": (HALF_US, 0),
    "port/leaf2/2": (0, HALF_US),
    "n4": (HALF_US, 0),
}


def test_a_nic_that_pauses_its_switch_and_is_paused_by_nobody_is_named_once() -> None:
    network = Network()
    network.run(5, {})
    network.run(20, STORM)
    (verdict,) = network.log.verdicts
    assert (verdict.verdict, verdict.fault_class) == ("attributed", "network.pause")
    assert [each.id for each in verdict.culprits] == ["nic/n3/mlx5_0"]
    assert any("nic/n3/mlx5_0" in each.says for each in verdict.evidence)


def test_pauses_are_followed_over_a_switch_that_nobody_polls() -> None:
    network = Network()
    network.run(5, {})
    network.run(
        20,
        STORM
        | {
            "port/leaf2/9": (0, HALF_US),
            "port/leaf1/9": (HALF_US, 0),
            "port/leaf1/1": (0, HALF_US),
            "n1": (HALF_US, 0),
        },
    )
    assert [each.id for each in network.log.last.culprits] == ["nic/n3/mlx5_0"]


def test_two_that_pause_leave_it_at_the_kind_of_fault() -> None:
    network = Network()
    network.run(5, {})
    network.run(20, STORM | {"n1": (0, HALF_US), "n2": (HALF_US, 0), "port/leaf1/2": (0, HALF_US)})
    assert (network.log.last.verdict, network.log.last.culprits) == ("class-only", ())


def test_a_switch_that_pauses_of_itself_is_congested_and_names_nobody() -> None:
    network = Network()
    network.run(5, {})
    network.run(20, {"port/leaf2/2": (0, HALF_US), "n4": (HALF_US, 0)})
    assert (network.log.last.verdict, network.log.last.culprits) == ("class-only", ())


def test_short_pauses_and_single_ones_are_what_flow_control_is_for() -> None:
    network = Network()
    network.run(5, {})
    network.run(60, {name: (rx // 10, tx // 10) for name, (rx, tx) in STORM.items()})
    network.run(2, STORM)
    network.run(10, {})
    assert not network.log.verdicts


def test_pauses_of_nodes_without_a_job_concern_nobody() -> None:
    network = Network()
    network.log.submitted("n1", "n2", ranks_per_node=1)
    network.run(5, {})
    network.run(20, STORM)
    assert not network.log.verdicts
