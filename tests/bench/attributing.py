"""Attribution on real flight-recorder dumps with known culprits, all in this repository.

Twelve runs: four fault injections into a 16-rank Megatron job (NVIDIA/nvidia-resiliency-ext) and
eight faults of a 4-rank gloo job. They were known while the rules were written.
"""

import re
from pathlib import Path

import msgspec

from nemesis.cli.triage import triage_paths
from tests.bench.row import AtMost, Row

DATA = Path(__file__).parent.parent.parent / "data"


class _Label(msgspec.Struct):
    culprits: list[int]


def labelled() -> dict[Path, set[int]]:
    """Every folder of dumps and the ranks that were broken in it."""
    megatron = msgspec.json.decode(
        (DATA / "nvrx_fr_traces" / "truth.json").read_bytes(), type=dict[str, list[int]]
    )
    gloo = msgspec.json.decode(
        (DATA / "fr_samples" / "labels.json").read_bytes(), type=dict[str, _Label]
    )
    found = {DATA / "nvrx_fr_traces" / run: set(ranks) for run, ranks in megatron.items()}
    found |= {DATA / "fr_samples" / run: set(label.culprits) for run, label in gloo.items()}
    return {folder: ranks for folder, ranks in found.items() if ranks and folder.is_dir()}


async def measure() -> list[Row]:
    """Triage each folder; how often exactly the culprits, anybody innocent, or nobody was named."""
    runs = labelled()
    right = wrong = abstained = 0
    for folder, culprits in runs.items():
        answer = triage_paths([folder])
        named = {
            int(match[1])
            for each in (answer, *answer.others)
            for culprit in each.culprits
            if (match := re.fullmatch(r"rank/[^/]+/(\d+)", culprit.id))
        }
        right += named == culprits
        wrong += not named <= culprits
        abstained += not named
    how = f"{len(runs)} runs of real dumps in data/, known while the rules were written"
    share = 100 / len(runs)
    return [
        Row("P4", "exactly the culprits named", right * share, "% of runs", how),
        Row("P4", "an innocent one blamed", wrong * share, "% of runs", "the same", AtMost(0)),
        Row("P4", "abstained", abstained * share, "% of runs", "the same"),
    ]
