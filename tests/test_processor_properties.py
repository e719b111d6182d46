"""What holds for every processor that accounts: any log is replayed equal, nothing crashes it."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemesis.processors.catalogue import CATALOGUE
from nemesis.processors.ecc_model.ecc_model import EccModel
from nemesis.processors.processor import Processor
from nemesis.schemas.facts import Fact
from nemesis.schemas.registry import EVENTS, TELEMETRY
from tests.attribution_log import Log
from tests.ecc_log import FILES, MODEL
from tests.ecc_log import settings as activation
from tests.strategies import any_of
from tests.test_attribution_properties import Act, acts, facts_of

NAMES = ("attribution", "ecc_model", "ecc_rules", "goodput", "healer", "incident", "scheduler")
WORDS = st.sampled_from(
    (
        "", "llama", "n1", "n2", "leaf1", "i-1", "i-2", "llama/1", "llama/2", f"llama/{'9' * 5000}",
        "ALL", "job/llama", "node/n1", "gpu/n1/0000:1b:00.0", "nic/n1/mlx5_0", "link/n1/mlx5_0",
        "port/leaf1/1", "port/", "switch/leaf1", "rank/llama/0", "rank/llama/-1", "rank/llama/x",
        f"rank/llama/{'9' * 5000}", "n1/kernel/1/1", "0-7", "0-4000000000", "0-99999", "0-6:2",
        "all_reduce", "send 0->1", "0000:1b:00.0", "NVRM: Xid (PCI:0000:1b:00): 79, lost",
        f"NVRM: Xid (PCI:0000:1b:00): {'9' * 5000}, x", "recoveries_max", "expired",
        "\u202e\x1b[31m",
    )
)  # fmt: skip
"""Names that belong together, and such as only a broken or a hostile writer would use."""


def _odd(kind: str, data: Any) -> Act:
    return lambda log: log.event(kind, data)


READ = sorted({token for name in NAMES for token in CATALOGUE[name][1]().reads} - {"tick"})
"""Everything but ticks, which the log makes itself."""
odd: st.SearchStrategy[Act] = st.sampled_from(READ).flatmap(
    lambda token: any_of((EVENTS.get(token) or TELEMETRY[token]).struct, WORDS).map(
        lambda data: _odd(token, data)
    )
)


class Silent:
    """A processor that only lets a log take facts down."""

    name: str = "silent"
    version: int = 1
    reads: tuple[str, ...] = ()

    def configure(self, settings: bytes) -> None:
        """It has no settings."""

    def step(self, fact: Fact) -> tuple[()]:
        """It says nothing."""
        return ()

    def snapshot(self) -> bytes:
        """It has no state."""
        return b""

    def restore(self, snapshot: bytes) -> None:
        """It has no state."""


def facts_for(actions: list[Act], reads: Sequence[str]) -> list[Fact]:
    log = Log(Silent())
    for fact in facts_of([]):
        log.facts.append(fact)
    log.now_ns = log.facts[-1].log_time_ns
    for act in actions:
        act(log)
    log.tick(3)
    log.tick(700)
    return [fact for fact in log.facts if fact.kind in reads]


def written(processor: Processor, facts: Sequence[Fact]) -> list[bytes]:
    """Conclusions as bytes; a name that is no subject is the fold's business."""
    return [msgspec.json.encode(each) for fact in facts for each in processor.step(fact)]


def made(name: str) -> Processor:
    return CATALOGUE[name][1]()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(st.lists(st.one_of(acts, odd, odd), max_size=20), st.data())
def test_a_copy_restored_anywhere_says_the_same_and_any_fact_is_borne(
    name: str, actions: list[Callable[[Log], Any]], data: st.DataObject
) -> None:
    facts = facts_for(actions, made(name).reads)
    cut = data.draw(st.integers(0, len(facts)))
    whole, first, second = made(name), made(name), made(name)
    expected = written(whole, facts)
    said = written(first, facts[:cut])
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()
    said += written(second, facts[cut:])
    assert said == expected
    assert second.snapshot() == whole.snapshot()


@settings(max_examples=25)
@given(st.lists(st.one_of(acts, odd, odd), max_size=20))
def test_any_fact_is_borne_by_a_model_at_work(actions: list[Act]) -> None:
    model, other = EccModel(FILES.get), EccModel(FILES.get)
    model.configure(activation(MODEL))
    other.configure(activation(MODEL))
    facts = facts_for(actions, model.reads)
    written(model, facts)
    other.restore(model.snapshot())
    assert other.snapshot() == model.snapshot()
    model.reroot(b"")
    other.reroot(model.root())
    assert other.root() == model.root() != b""
