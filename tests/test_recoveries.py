"""Promises about what completed recoveries change: who left, who moved, what is forgotten."""

from nemesis.processors.attribution.inventory import Inventory, Seat
from nemesis.processors.attribution.recoveries import DECISIONS_MAX, Recoveries
from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.observed import GpuDescribed, InventoryReported
from nemesis.schemas.operated import JobSubmitted
from nemesis.schemas.plans import Placement


def inventory() -> Inventory:
    known = Inventory()
    for node in ("n1", "n2", "spare"):
        gpus = tuple(GpuDescribed(pci=f"0000:{bus}:00.0") for bus in ("1b", "1c"))
        known.report(InventoryReported(node=node, start_ns=1, n=1, at_ns=1, gpus=gpus))
    known.submit(
        JobSubmitted(at_ns=1, by="a", reason="r", job="llama", nodes=("n1", "n2"), ranks_per_node=2)
    )
    return known


def decided(decision: str, *removed: int, moved: dict[str, str] | None = None) -> RecoveryDecided:
    placements = tuple(Placement(node=node, ranks=ranks) for node, ranks in (moved or {}).items())
    return RecoveryDecided(
        at_ns=1,
        reason="r",
        decision=decision,
        incident="i-1",
        mode="act",
        deadline_ns=1,
        job="llama",
        action="shrink",
        target="job/llama",
        removed_ranks=removed,
        placements=placements,
    )


def test_a_removed_rank_sits_nowhere_once_the_recovery_is_complete() -> None:
    known, recoveries = inventory(), Recoveries()
    recoveries.decide(decided("llama/1", 3))
    assert recoveries.is_leaving("llama", 3)
    assert known.seats_on("n2") == [Seat("llama", 2), Seat("llama", 3)]
    assert recoveries.complete("llama/1", known) == ("llama", "i-1")
    assert known.seats_on("n2") == [Seat("llama", 2)]
    assert known.node_of_rank("llama", 3) == ""
    assert known.is_gone("llama", 3)
    assert not recoveries.is_leaving("llama", 3)


def test_ranks_that_moved_sit_on_the_gpus_of_their_new_node() -> None:
    known, recoveries = inventory(), Recoveries()
    recoveries.decide(decided("llama/1", moved={"spare": "2-3"}))
    recoveries.complete("llama/1", known)
    assert known.seats_on("n2") == []
    assert known.seats_on("spare") == [Seat("llama", 2), Seat("llama", 3)]
    assert known.gpu_of_rank("llama", 3) == "gpu/spare/0000:1c:00.0"
    assert known.seats_of("gpu/spare/0000:1c:00.0") == [Seat("llama", 3)]
    assert known.seats_of("nvlink/spare/0000:1b:00.0/4") == [Seat("llama", 2)]
    assert known.seats_of("rank/llama/2") == [Seat("llama", 2)]
    assert known.seats_of("switch/leaf1") == []


def test_a_decision_that_nobody_knows_changes_nothing() -> None:
    known = inventory()
    assert Recoveries().complete("llama/9", known) == ("", "")
    assert len(known.seats_on("n2")) == 2


def test_a_recovery_of_a_job_that_ended_only_ends_its_incident() -> None:
    known, recoveries = inventory(), Recoveries()
    recoveries.decide(decided("llama/1", 3))
    known.end("llama")
    assert recoveries.complete("llama/1", known) == ("llama", "i-1")
    assert known.gpu_of_rank("llama", 0) == ""


def test_decisions_that_nobody_completes_are_forgotten_oldest_first() -> None:
    recoveries = Recoveries()
    for number in range(DECISIONS_MAX + 1):
        recoveries.decide(decided(f"llama/{number}", 1))
    assert len(recoveries.open) == DECISIONS_MAX
    assert "llama/0" not in recoveries.open
