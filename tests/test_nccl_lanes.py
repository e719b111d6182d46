"""Groups' lanes over NCCL follow the members: shrunk, made anew or not there, over a stand-in."""

import json
import os
import subprocess
from typing import Any

import pytest

from tests.training.cell import has_torch, torch_python

pytestmark = pytest.mark.torch
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(["src", "."])}
MADE = ["made of 4", "made of 2", "made of 2"]
"""Everybody; who has the same part; a replica."""
CLOSED = ["abort of 4", "abort of 2", "abort of 2"]
OVER_S = 120.0


def said(scenario: str) -> dict[str, Any]:
    """What four ranks did in two epochs, in the second of which two are left, or all."""
    if not has_torch():
        pytest.skip("no torch: pip install 'nemesis-gpu[train]'")
    done = subprocess.run(
        [torch_python(), "-m", "tests.training.lanes", scenario],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=OVER_S,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["open"] == []  # every communicator was aborted, none just dropped
    return told


def test_at_a_boundary_what_lost_a_member_is_shrunk_and_every_parent_aborted() -> None:
    told = said("shrinks")
    shrinks = ["shrink of 2", "shrunk of 1", "shrink of 4", "shrunk of 2"]
    parents = ["abort of 2", "abort of 2", "abort of 4"]
    for rank in ("0", "1"):
        assert told["calls"][rank][:10] == [*MADE, *shrinks, *parents]
        assert sorted(told["calls"][rank][10:]) == ["abort of 1", "abort of 2"]
        assert told["sums"][rank] == [2.0, 1.0]
    for rank in ("2", "3"):
        assert told["calls"][rank] == [*MADE, *CLOSED]


def test_a_version_that_would_crash_is_not_asked_and_the_groups_are_made_anew() -> None:
    told = said("crashes")
    for rank in ("0", "1"):
        aborts = ["abort of 2", "abort of 2", "abort of 4"]
        assert told["calls"][rank] == [*MADE, *aborts, "made of 2", "abort of 2"]
        assert told["sums"][rank] == [2.0, 1.0]


def test_what_waits_for_a_rank_that_hangs_ends_by_the_abort_and_all_is_made_anew() -> None:
    told = said("gives up")
    assert "given up" in told["calls"]["0"]
    for rank in ("0", "1"):
        calls = [each for each in told["calls"][rank] if each != "given up"]
        assert sorted(calls[:6]) == sorted([*MADE, *CLOSED])
        assert calls[6:] == ["made of 2", "abort of 2"]
        assert told["sums"][rank] == [2.0, 1.0]


def test_who_joins_has_no_parent_and_so_nobody_shrinks() -> None:
    told = said("joins")
    for rank in map(str, range(4)):
        assert told["sums"][rank][-1] == 2.0
        assert not any(each.startswith("shr") for each in told["calls"][rank])


def test_where_two_ranks_share_a_gpu_gloo_carries_everything() -> None:
    told = said("two on one GPU")
    assert not any(told["calls"].values())
    assert told["sums"] == {"0": [2.0, 1.0], "1": [2.0, 1.0], "2": [2.0], "3": [2.0]}
