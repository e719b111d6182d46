"""Whatever befalls real ranks, those that are left train on as if the others had just left.

Ten runs here, two hundred by `make campaign` (`--only training`): killed, stopped, both, and again
while the first is being answered; each line that a rank wrote is that of a run without faults, to
the last bit, and no process is left.
"""

import asyncio
from pathlib import Path

import pytest

from tests.training.cell import has_torch
from tests.training.runs import runs

pytestmark = pytest.mark.torch


@pytest.mark.timeout(900)
def test_ten_runs_with_faults_drawn_at_random(tmp_path: Path) -> None:
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")
    assert asyncio.run(runs(tmp_path, range(10))) == []
