"""A state that was restored is the state that was kept, byte for byte, wherever a log is cut."""

import random
from pathlib import Path

import pytest

from nemesis.processors.fold import Fold, Input
from nemesis.schemas.facts import Record
from tests.faults.memory_log import Faults, MemoryLog
from tests.faults.processors import CATALOGUE
from tests.faults.test_simulated import CPU_S_MAX, Copy, begin, in_turn, play
from tests.faults.virtual_time import run

CUTS = 200
AFTERWARDS = 40


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """A log as two copies wrote it."""
    log = MemoryLog()
    folder: Path = tmp_path_factory.mktemp("copies")
    made = [CATALOGUE["counting"][1], CATALOGUE["echoing"][1]]

    async def main() -> None:
        begin(log)
        copies = [Copy(log, Faults(2), folder, *made) for _ in range(2)]
        await play(log, copies, in_turn(2, 400), dice=random.Random(2))

    run(main(), cpu_s_max=CPU_S_MAX)
    return [each for each in log.records if not each.subject.startswith("nemesis.cursor.")]


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_restored_state_is_the_kept_one_wherever_the_log_is_cut(
    name: str, records: list[Record]
) -> None:
    cuts = random.Random(5).sample(range(len(records) - AFTERWARDS), CUTS)
    make = CATALOGUE[name][1]
    kept = Fold(make())
    said, states = [], []
    for record in records:
        said.append(kept.step(Input(record)))
        states.append(kept.snapshot())
    for at in cuts:
        restored = Fold(make())
        restored.restore(states[at])
        assert restored.snapshot() == states[at]
        until = at + 1 + AFTERWARDS
        assert [restored.step(Input(each)) for each in records[at + 1 : until]] == said[
            at + 1 : until
        ]
        assert restored.snapshot() == states[until - 1]
    assert any(said)
