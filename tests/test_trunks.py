"""Promises about switches that stop: named by what others lost, and never for a pulled cable."""

from nemesis.schemas.observed import PortSeen
from tests.attribution_log import Log, wired

NODES = [f"n{number}" for number in range(1, 5)]


def poll(
    log: Log, seconds: int, *, lost: tuple[str, ...] = (), silent: tuple[str, ...] = ()
) -> None:
    """Two leaves below two spines, two cables each; `lost` are ports of leaves that are down."""
    for _ in range(seconds):
        for leaf in ("leaf1", "leaf2"):
            ports = [
                PortSeen(
                    port=(name := f"port/{leaf}/{31 + 2 * spine + cable}"),
                    peer=f"port/spine{spine}/{leaf[-1]}{cable}",
                    up=name not in lost,
                )
                for spine in (1, 2)
                for cable in (0, 1)
            ]
            log.fabric(leaf, *ports)
        for spine in ("spine1", "spine2"):
            if spine not in silent:
                log.fabric(spine)
        log.tick(1)


OF_SPINE_1 = ("port/leaf1/33", "port/leaf1/34", "port/leaf2/33", "port/leaf2/34")


def test_a_spine_that_is_not_heard_and_that_all_leaves_lost_is_named_once() -> None:
    log = wired(*NODES)
    poll(log, 3)
    poll(log, 20, lost=OF_SPINE_1, silent=("spine1",))
    assert [each.id for each in log.last.culprits] == ["switch/spine1"]
    assert log.last.fault_class == "network.fabric"
    assert len(log.verdicts) == 1


def test_two_cables_a_spine_that_is_heard_or_ports_that_were_never_up_name_nobody() -> None:
    pulled, heard, never = wired(*NODES), wired(*NODES), wired(*NODES)
    poll(pulled, 3)
    poll(pulled, 20, lost=OF_SPINE_1[:2], silent=("spine1",))
    poll(heard, 3)
    poll(heard, 20, lost=OF_SPINE_1)
    poll(never, 20, lost=OF_SPINE_1, silent=("spine1",))
    assert not [*pulled.verdicts, *heard.verdicts, *never.verdicts]


def test_a_spine_that_comes_back_within_seconds_names_nobody() -> None:
    log = wired(*NODES)
    poll(log, 3)
    poll(log, 5, lost=OF_SPINE_1, silent=("spine1",))
    poll(log, 20)
    assert not log.verdicts
