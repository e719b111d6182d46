"""One run with its score and with everything that its score must never be shown without."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.schemas.facts import Fact
from nemesis.sim.truth.consistency import contradictions
from nemesis.sim.truth.ledger_file import Ledger
from nemesis.sim.truth.oracle import ceiling
from nemesis.sim.truth.score import Score, score


class MixedParametersError(NemesisError):
    """Scores that were made with different parameters: they say nothing about each other."""

    exit_code = 4


class BadRunError(NemesisError):
    """A file that is no run of a suite."""

    exit_code = 2


class Ceiling(msgspec.Struct, kw_only=True, frozen=True):
    """What an oracle that sees the hidden state gets from the same score."""

    right_count: int
    """Faults whose culprit it names."""
    wrong_blame_count: int
    """Above 0: the score is wrong."""


class ScoredRun(msgspec.Struct, kw_only=True, frozen=True):
    """One run of a suite, or of a recording beside its ledger."""

    suite: str
    scenario: str
    seed: int
    cluster: str
    nodes_count: int
    gpus_count: int
    passed_ns: int
    """How long it took, simulated."""
    params_sha256: str
    nemesis_version: str
    score: Score
    ceiling: Ceiling
    contradictions: tuple[str, ...] = ()
    """What the ledger says against itself; a run with any proves nothing."""

    @property
    def gpu_ms(self) -> int:
        """GPU-milliseconds that were watched."""
        return self.gpus_count * self.passed_ns // 1_000_000


def scored(ledger: Ledger, facts: Iterable[Fact]) -> ScoredRun:
    """Judge a run by its ledger and by what was said; `facts` in simulated time."""
    opened = ledger.opened
    oracle = ceiling(ledger)
    return ScoredRun(
        suite=opened.suite,
        scenario=opened.scenario,
        seed=opened.seed,
        cluster=opened.cluster,
        nodes_count=opened.nodes_count,
        gpus_count=opened.gpus_count,
        passed_ns=ledger.passed_ns,
        params_sha256=opened.params_sha256,
        nemesis_version=opened.nemesis_version,
        score=score(ledger.faults, ledger.memberships, facts, expect=opened.expect),
        ceiling=Ceiling(
            right_count=sum(each.right_at == 0 for each in oracle.faults),
            wrong_blame_count=sum(bool(each.wrong_blame) for each in oracle.faults),
        ),
        contradictions=tuple(contradictions(ledger)),
    )


def one_hash(runs: Iterable[ScoredRun]) -> str:
    """The hash of the parameters that all runs were made with.

    Raises:
        MixedParametersError: there are several.
    """
    hashes = sorted({each.params_sha256 for each in runs})
    if len(hashes) > 1:
        shown = ", ".join(each[:12] for each in hashes)
        raise MixedParametersError(
            f"runs with {len(hashes)} different parameter files: {shown}",
            hint="a change of the parameters voids what was scored before: run the suite again",
        )
    return hashes[0] if hashes else ""


def read_scored(folder: Path) -> list[ScoredRun]:
    """The runs that a suite has kept in its folder, in the order of their seeds.

    Raises:
        BadRunError: a file that is no run.
    """
    found: list[ScoredRun] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=ScoredRun))
        except (msgspec.DecodeError, OSError) as error:
            raise BadRunError(f"{path}: no run of a suite: {error}") from error
    return found
