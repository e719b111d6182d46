"""Promises of attribution: who is blamed, who is spared, when, and how often it is said."""

from nemesis.schemas.inferred import FaultAttributed
from tests.attribution_log import Log, cluster, xid


def culprits(verdict: FaultAttributed) -> list[str]:
    return [each.id for each in verdict.culprits]


def test_a_gpu_off_the_bus_is_named_at_once() -> None:
    log = cluster("n1", "n2")
    (conclusion,) = log.kernel(xid(79, "0000:1c:00", "GPU has fallen off the bus."), "n2")
    verdict = conclusion.data
    assert isinstance(verdict, FaultAttributed)
    assert conclusion.urgent
    assert culprits(verdict) == ["gpu/n2/0000:1c:00.0"]
    assert (verdict.verdict, verdict.fault_class) == ("attributed", "gpu.off_bus")
    assert (verdict.jobs, verdict.ranks) == (("llama",), (3,))
    assert verdict.evidence[0].text == log.facts[-1].data.text


def test_a_rank_that_was_killed_is_named_at_once() -> None:
    log = cluster("n1", "n2")
    (conclusion,) = log.exited(1, signal=9)
    assert conclusion.urgent
    assert culprits(log.last) == ["rank/llama/1"]
    assert log.last.ranks == (1,)


def test_a_rank_that_left_with_an_error_is_named_after_the_hold_back() -> None:
    log = cluster("n1", "n2")
    assert not log.exited(1, exit_code=1)
    log.tick(2)
    assert culprits(log.last) == ["rank/llama/1"]


def test_a_rank_on_a_lost_gpu_is_one_incident_with_it() -> None:
    log = cluster("n1", "n2")
    log.kernel(xid(79), "n1")
    log.exited(0, node="n1", signal=6)
    log.tick(3)
    assert culprits(log.last) == ["gpu/n1/0000:1b:00.0"]
    assert len(log.last.evidence) == 2
    assert not log.last.victims


def test_48_is_uncontained_without_94_and_contained_with_it() -> None:
    log = Log()
    log.kernel(xid(48))
    log.tick(1)
    assert log.last.signature == "ecc_uncontained"
    log = Log()
    log.kernel(xid(48))
    log.kernel(xid(94))
    log.tick(2)
    assert log.last.signature == "ecc_contained"
