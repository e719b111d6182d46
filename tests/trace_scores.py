"""Scores triage on real flight-recorder dumps: which ranks were broken, which it names.

Two public sets: `data/fr_samples` (gloo, nine scenarios) and `data/nvrx_fr_traces` (NCCL, 16 ranks,
four injected faults). An answer is right if it names the broken ranks, all of them and no other,
and no hardware; where ranks wait for each other in a ring, it also has to show the ring.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nemesis.cli.triage import triage_paths
from nemesis.views.triage_answer import Triage

DATA = Path(__file__).parent.parent / "data"
HARDWARE = {"gpu", "nic", "port", "link", "switch", "nvlink", "nvswitch", "node", "dimm", "fabric"}


class Truth(NamedTuple):
    """A run of which it is known what was broken."""

    name: str
    folder: Path
    prefix: str
    """What the names of its dumps begin with."""
    ranks: frozenset[int]
    cycle: frozenset[int] = frozenset()
    """Ranks that wait for each other."""


def runs() -> Iterator[Truth]:
    """All runs of both sets."""
    samples = DATA / "fr_samples"
    labels = json.loads((samples / "labels.json").read_text())
    for name, label in sorted(labels.items()):
        cycle = frozenset(label.get("cycle", ()))
        yield Truth(name, samples / name, "rank_", frozenset(label["culprits"]), cycle)
    traces = DATA / "nvrx_fr_traces"
    for name, ranks in sorted(json.loads((traces / "truth.json").read_text()).items()):
        yield Truth(name, traces / name, "_dump_", frozenset(ranks))


def named_ranks(answer: Triage) -> frozenset[int]:
    """The ranks that an answer blames; refuses one that blames anything else."""
    blamed = [culprit for each in (answer, *answer.others) for culprit in each.culprits]
    assert not [culprit.id for culprit in blamed if culprit.kind in HARDWARE]
    matches = [re.fullmatch(r"rank/job/(\d+)", culprit.id) for culprit in blamed]
    assert all(matches)
    return frozenset(int(match[1]) for match in matches if match)


def named_cycle(answer: Triage) -> frozenset[int]:
    """The ranks of the ring that an answer shows."""
    match = re.search(r"\((\d+(?: -> \d+)+)\)", answer.reason)
    return frozenset(map(int, match[1].split(" -> "))) if match else frozenset()


def is_right(truth: Truth, answer: Triage) -> bool:
    """Whether it names what was broken, all of it and nothing else."""
    if not truth.ranks and answer.verdict != "no-fault":
        return False
    return named_ranks(answer) == truth.ranks and named_cycle(answer) == truth.cycle


def scored() -> list[tuple[Truth, Triage]]:
    """Every run with its answer."""
    return [(truth, triage_paths([truth.folder])) for truth in runs()]
