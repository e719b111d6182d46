"""Promises of state that is read again: it is what was kept, byte for byte, at any cut."""

import random
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from nemesis.processors.ecc_model.channels import STEP_NS
from nemesis.processors.ecc_model.ecc_model import LOOKBACK_NS, EccModel
from nemesis.processors.ecc_model.model import HORIZONS_S, LOGITS, UNIT
from nemesis.processors.fold import Fold, first_needed
from nemesis.processors.window import ROOTS_A_LOOKBACK, Windowed
from nemesis.schemas.facts import Record
from tests.ecc_log import FILES, HISTORY, OTHER, Nodes, fold, quiet, stepped, watched
from tests.failure_models import drawn_model, filed

CELLS = 600
CHANCES = np.arange(LOGITS) * (UNIT // LOGITS), *np.zeros((len(HORIZONS_S) - 1, LOGITS), np.int64)
NAME, DRAWN = filed(
    msgspec.structs.replace(
        drawn_model(7, channels=4), hazards=np.array(CHANCES).astype("<i4").tobytes()
    )
)
"""Of small integers that were drawn, with chances that rise with the first logit."""


def rings(own: Fold) -> list[bytes]:
    """What the network remembers of every GPU."""
    processor = own.processor
    assert isinstance(processor, EccModel)
    network = processor._scorer._network
    return [network.state(at) for at in range(network.count)] if network is not None else []


def restored(state: bytes, records: Sequence[Record], files: dict[str, bytes]) -> Fold:
    """A fresh copy with this state, that read again what it needs of the records."""
    own = fold(files)
    own.restore(state)
    assert own.snapshot() == state
    again = [each for each in records if own.seq < each.seq <= own.state_seq]
    assert again == [] or first_needed(state) == again[0].seq
    assert stepped(own, again) == []
    return own


def eventful(seed: int, cells: int = CELLS, model: str = NAME, often: float = 1.0) -> Nodes:
    """Nodes that miss polls, repeat them, count errors, reset, change parts and their number.

    `often`: how often parts and jobs change and counters begin anew.
    """
    dice = random.Random(seed)
    log = watched("n1", "n2", "n3", model=model)
    counts = {node: 0 for node in ("n1", "n2", "n3")}
    sizes = dict.fromkeys(counts, 2)
    for _ in range(cells):
        for node in ("n1", "n2", "n3"):
            counts[node] += dice.choice((0, 0, 0, 0, 1, 40))
            happened = dice.random()
            if happened < 0.01 * often:
                counts[node] = 0
            elif happened < 0.015 * often:
                sizes[node] = dice.choice((1, 2, 3))
                log.inventory(node, *(f"{node}-{dice.random()}" for _ in range(sizes[node])))
            elif happened < 0.02 * often:
                log.submit(f"job{dice.randrange(3)}", node, 2)
            if happened < 0.9:
                row = {
                    "dram_ce_count": counts[node],
                    "dram_ue_count": counts[node] // 50,
                    "memory_temp_c": dice.randrange(40, 100),
                    "power_mw": dice.randrange(100_000, 900_000),
                }
                log.sample(node, *[row] * sizes[node])
            if happened > 0.97:
                log.put(log.records[-1].subject, log.records[-1].payload)
        log.tick(dice.choice((0.25, 0.75, 1, 1, 1, 1, 1, 3)))
    return log


@pytest.mark.parametrize("seed", range(3))
def test_a_window_read_again_is_the_window_that_was_kept_at_any_cut(seed: int) -> None:
    files, log = {NAME: DRAWN}, eventful(seed)
    cuts = sorted(random.Random(seed).sample(range(10, len(log.records)), 4))
    kept, copies = fold(files), list[Fold]()
    for begin, end in zip([0, *cuts], [*cuts, len(log.records)], strict=True):
        said = stepped(kept, log.records[begin:end])
        for copy in copies:  # each was read again at its own cut and has gone on since
            assert stepped(copy, log.records[begin:end]) == said
            assert copy.snapshot() == kept.snapshot()
            assert rings(copy) == rings(kept)
        copies.append(restored(kept.snapshot(), log.records, files))
        assert rings(copies[-1]) == rings(kept)


def test_no_more_than_an_eighth_too_much_is_read_again() -> None:
    log = quiet(watched("n1"), "n1", cells=2 * HISTORY)
    kept = fold()
    stepped(kept, log.records)
    copy = fold()
    copy.restore(kept.snapshot())
    again = [each for each in log.records if copy.seq < each.seq]
    ticks = sum(each.subject.endswith(".tick") for each in again)
    assert HISTORY <= ticks <= HISTORY * (ROOTS_A_LOOKBACK + 1) // ROOTS_A_LOOKBACK + 1
    assert LOOKBACK_NS == HISTORY * STEP_NS


def test_a_snapshot_holds_nothing_of_the_window() -> None:
    files = {NAME: DRAWN}
    own = fold(files)
    stepped(own, quiet(watched("n1", "n2", model=NAME), "n1", "n2").records)
    assert sum(map(len, rings(own))) > 5_000
    assert len(own.snapshot()) < 2_500


def test_what_of_a_window_is_not_there_any_more_is_silence_and_not_a_guess() -> None:
    log = quiet(watched("n1"), "n1", cells=HISTORY + 50)
    kept = fold()
    stepped(kept, log.records)
    copy = fold()
    copy.restore(kept.snapshot())
    again = [each for each in log.records if copy.seq < each.seq]
    copy.miss()
    stepped(copy, again[len(again) // 2 :])
    end = len(log.records)
    for _ in range(HISTORY):
        log.power("n1", 127, 0)
        log.tick()
    heard = [len(stepped(own, log.records[end:])) for own in (kept, copy)]
    assert heard == [1, 1]
    assert kept.snapshot() != copy.snapshot()  # the kept one spoke half an hour earlier


def test_a_window_never_reaches_back_over_an_activation() -> None:
    log = quiet(watched("n1"), "n1", cells=HISTORY + 5)
    log.activate(OTHER)
    quiet(log, "n1", cells=20)
    activated = next(
        each.seq
        for each in reversed(log.records)
        if each.subject.startswith("nemesis.events.processor_activated")
    )
    kept = fold()
    stepped(kept, log.records)
    assert first_needed(kept.snapshot()) == activated + 1
    copy = restored(kept.snapshot(), log.records, dict(FILES))
    assert rings(copy) == rings(kept)
    quiet(log, "n1", cells=HISTORY)
    rest = log.records[kept.seq :]
    assert stepped(copy, rest) == stepped(kept, rest)
    assert copy.snapshot() == kept.snapshot()


def test_what_was_lost_unread_begins_the_window_anew() -> None:
    log = quiet(watched("n1"), "n1")
    own = fold()
    stepped(own, log.records)
    own.miss()
    end = len(log.records)
    for _ in range(HISTORY + 1):
        log.power("n1", 127, 0)
        log.tick()
    assert stepped(own, log.records[end:-1]) == []
    assert len(stepped(own, log.records[-1:])) == 1


def test_without_a_model_there_is_nothing_to_be_read_again() -> None:
    own = fold()
    stepped(own, quiet(watched("n1", model=None), "n1", cells=5).records)
    assert first_needed(own.snapshot()) == 0
    assert isinstance(own.processor, Windowed)
    assert own.processor.lookback_ns == 0
