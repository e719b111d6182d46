"""Promises that names do not matter: other hosts, devices or ranks, and the verdict is the same."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.producers.flight_recorder import read_dump
from nemesis.schemas.inferred import FaultAttributed
from nemesis.sim.jobs.recorder import Recorder
from tests.attribution_log import Log, cluster, xid
from tests.simulated_jobs import MS, SECOND, job_of, trained

NODES = ("n1", "n2", "n3", "n4")
OOM = "Out of memory: Killed process 4711 (python3) total-vm:1kB"
STORIES: Mapping[str, Sequence[tuple[int, str]]] = {
    "off the bus": [(0, xid(45, "{b}")), (0, xid(79, "{a}")), (1, xid(45, "{a}"))],
    "memory": [(0, xid(94, "{b}")), (0, xid(48, "{a}")), (0, xid(94, "{a}"))],
    "program": [(0, xid(31, "{a}")), (0, xid(31, "{b}")), (2, xid(31, "{a}"))],
    "links": [(1, xid(74, "{a}", "NVLink: fatal error detected on link 3(0x0)"))],
    "two faults": [(0, xid(79, "{a}")), (2, xid(48, "{b}"))],
    "host": [(3, OOM), (1, "Kernel panic - not syncing: Fatal exception")],
}


def verdicts_of(
    story: Sequence[tuple[int, str]], nodes: Sequence[str], pcis: tuple[str, str]
) -> list[FaultAttributed]:
    log: Log = cluster(*NODES)
    for node in NODES:
        log.inventory(node, f"{pcis[0]}.0", f"{pcis[1]}.0")
    for at, text in story:
        log.kernel(text.replace("{a}", pcis[0]).replace("{b}", pcis[1]), nodes[at])
    log.tick(5)
    newest = {each.incident: each for each in log.verdicts}
    return list(newest.values())


@pytest.mark.parametrize("name", sorted(STORIES))
@settings(max_examples=10)
@given(
    order=st.permutations(NODES),
    buses=st.lists(st.integers(0x10, 0xEF), min_size=2, max_size=2, unique=True),
)
def test_other_hosts_and_addresses_change_nothing_but_the_names(
    name: str, order: list[str], buses: list[int]
) -> None:
    plain = verdicts_of(STORIES[name], NODES, ("0000:1b:00", "0000:1c:00"))
    pcis = (f"0000:{buses[0]:02x}:00", f"0000:{buses[1]:02x}:00")
    other = verdicts_of(STORIES[name], order, pcis)
    swap = dict(zip(NODES, order, strict=True)) | {
        "0000:1b:00.0": f"{pcis[0]}.0",
        "0000:1c:00.0": f"{pcis[1]}.0",
    }

    assert spelled(plain, swap) == spelled(other, {})


def spelled(verdicts: Sequence[FaultAttributed], names: Mapping[str, str]) -> set[object]:
    def of(each: str) -> str:
        return "/".join(names.get(part, part) for part in each.split("/"))

    return {
        (
            each.verdict,
            each.fault_class,
            each.signature,
            each.confidence_ppm,
            frozenset(of(culprit.id) for culprit in each.culprits),
        )
        for each in verdicts
    }


HUNG: Mapping[str, tuple[dict[str, Any], int]] = {
    "pipeline": ({"pp": 8}, 3),
    "pipeline and tensor": ({"pp": 4, "tp": 2}, 4),
    "around a ring": ({"cp": 4, "pp": 2}, 5),
}
"""A layout of eight ranks, and the rank whose host enqueues no more."""


@cache
def dumps_of(story: str) -> dict[int, dict[str, Any]]:
    layout, halted = HUNG[story]
    job = trained(job_of(1, microbatches=8, **layout), 2_500 * MS)
    job.halt(halted)
    trained(job, 20 * SECOND)
    return {rank: Recorder().dump(job, rank, 20 * SECOND) for rank in job.ranks}


def blamed_in(story: str, names: Sequence[int]) -> set[int]:
    """Who is blamed where each rank has another number, and groups count them as before."""
    log = Log()
    for rank, dump in dumps_of(story).items():
        config = {
            name: {**group, "ranks": str([names[each] for each in ranks_of(group)])}
            for name, group in dump["pg_config"].items()
        }
        read = read_dump(dump | {"pg_config": config})
        log.digest(names[rank], *read.groups, entry_count=read.entry_count)
    log.tick(70)
    return {int(each.id.rpartition("/")[2]) for each in log.last.culprits}


def ranks_of(group: Mapping[str, str]) -> list[int]:
    return [int(rank) for rank in group["ranks"].strip("[]").split(", ")]


@pytest.mark.parametrize("story", sorted(HUNG))
@settings(max_examples=6)
@given(names=st.permutations(range(8)))
def test_other_numbers_of_ranks_change_nothing_but_the_numbers(
    story: str, names: list[int]
) -> None:
    assert blamed_in(story, range(8)) == {HUNG[story][1]}
    assert blamed_in(story, names) == {names[HUNG[story][1]]}
