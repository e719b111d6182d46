"""Runs what vary.py draws, and tells by kind of fault what was said: right, nothing, or wrong.

    python -m tests.scenarios --vary [--seeds N] [--first-seed S]

An innocent component that was named, anything said of decoys alone, a crash and a log that does not
replay are failures. What was not found is counted, and told with the seed to look at.
"""

import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from nemesis.schemas.decided import RecoveryDecided
from nemesis.schemas.rank_ranges import parse_ranks
from nemesis.sim.offline import START_NS, OfflineRun, run_offline
from nemesis.sim.truth.ledger import FaultInjected
from nemesis.sim.truth.score import FaultScore
from tests.vary import SLOW, Varied, vary

QUANTUM_NS = 200_000_000  # four times as many runs in the time as with a scenario's own
HIDDEN_NS = 10_000_000_000  # two polls of five seconds
VERDICTS = ("right", "wrong class", "nobody", "silent", "wrong blame")


class Told(msgspec.Struct, kw_only=True):
    """What was said of one fault."""

    kind: str
    verdict: str
    """One of VERDICTS."""
    faint: bool
    """Silence about it is right as well."""
    alone: bool
    """No other fault in the run."""
    action: str
    action_right: bool
    says: str


class VariedRow(msgspec.Struct, kw_only=True):
    """One run."""

    seed: int
    about: str
    faults: list[Told] = []
    false_alarms: tuple[str, ...] = ()
    error: str = ""
    """A crash, or a log that does not replay."""

    @property
    def failed(self) -> bool:
        """Whether anything innocent was named, or it went to pieces."""
        wrong = any(each.verdict == "wrong blame" for each in self.faults)
        return bool(wrong or self.false_alarms or self.error)


def varied_run(seed: int, *, small: bool = False, replay: bool = True) -> VariedRow:
    """One run in virtual time, judged."""
    drawn = vary(seed, small=small)
    row = VariedRow(seed=seed, about=_about(drawn))
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = run_offline(
                drawn.cluster,
                drawn.scenario,
                seed=seed,
                folder=Path(folder),
                quantum_ns=QUANTUM_NS,
            )
        row.faults = _judged(drawn, run)
        row.false_alarms = run.score.false_alarms
        if replay and (verdict := run.replay().verdict) != "equal":
            row.error = f"the log replays {verdict}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        row.error = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return row


def _about(drawn: Varied) -> str:
    size, job = drawn.cluster.cluster, drawn.cluster.job
    return (
        f"{size.nodes} nodes of {drawn.cluster.ranks_per_node}, {job.nodes} in the job, "
        f"{job.step_ms} ms steps, polled each {size.sample_period_ms // 1000} s"
    )


def _judged(drawn: Varied, run: OfflineRun) -> list[Told]:
    # the ledger has faults in the order in which they began, as the scenario has them
    injected = [each for each in run.truths if isinstance(each, FaultInjected)]
    real = sum(not each.is_decoy for each in run.score.faults)
    withheld = any(each.kind == "recovery_withheld" for each in run.facts)
    return [
        Told(
            kind=scored.kind,
            verdict=_verdict(scored),
            faint=faint or not _is_felt(fault, drawn, run) or _is_hidden(fault, injected),
            alone=real == 1,
            action=scored.action,
            action_right=scored.action_right or withheld,
            says=_says(scored, fault, drawn),
        )
        for scored, fault, faint in zip(run.score.faults, injected, drawn.faint, strict=True)
        if not scored.is_decoy
    ]


def _verdict(scored: FaultScore) -> str:
    if scored.wrong_blame:
        return "wrong blame"
    if scored.culprit_right:
        return "right" if scored.class_right else "wrong class"
    return "nobody" if scored.detected else "silent"


def _is_felt(fault: FaultInjected, drawn: Varied, run: OfflineRun) -> bool:
    """Whether the job still ran where it struck when it could be seen."""
    model = drawn.cluster
    is_slow = fault.kind in SLOW
    seen_ns = fault.at_ns + (drawn.rounds_ns if is_slow else 0)
    homes = {rank: node for node in model.job_nodes for rank in model.ranks_of(node)}
    nodes = set(homes.values())
    for fact in run.facts:
        data = fact.data
        if isinstance(data, RecoveryDecided) and data.members and fact.at_ns <= seen_ns:
            if is_slow and fact.at_ns > fault.at_ns:
                return False  # who is slow shows anew in another membership
            moved = {rank: e.node for e in data.placements for rank in parse_ranks(e.ranks)}
            nodes = {moved.get(rank, homes[rank]) for rank in parse_ranks(data.members)}
    # of two nodes neither is the odd one
    return fault.node in nodes and not (is_slow and len(nodes) == 2)


def _is_hidden(fault: FaultInjected, injected: Sequence[FaultInjected]) -> bool:
    """Whether its whole node went dark at the same moment, before anything could be told of it."""
    return any(
        each.kind == "node-lost"
        and each is not fault
        and each.node == fault.node
        and each.at_ns - HIDDEN_NS <= fault.at_ns
        for each in injected
    )


def _says(scored: FaultScore, fault: FaultInjected, drawn: Varied) -> str:
    said = f"{scored.verdict or 'nothing'} {scored.fault_class}".strip()
    named = ",".join(scored.wrong_blame or scored.named) or "nobody"
    began_s = (fault.began_ns - START_NS) / 1e9
    planned = min(
        (each for each in drawn.scenario.faults if each.kind == fault.kind),
        key=lambda each: abs(each.after_s - began_s),
    )
    settings = {
        name: getattr(planned, name)
        for name in planned.__struct_fields__
        if name not in ("right", "node", "gpu", "rank", "nic", "port")
    }
    shown = " ".join(f"{name}={value}" for name, value in settings.items())
    return f"{scored.kind} of {fault.culprit} ({shown}): {said}, {named} -> {scored.action or '-'}"


def varied_rows(first_seed: int, count: int) -> Iterator[VariedRow]:
    """The runs of these seeds, in order."""
    with ProcessPoolExecutor() as pool:
        yield from pool.map(partial(varied_run), range(first_seed, first_seed + count))


def varied_table(rows: Sequence[VariedRow]) -> str:
    """One line a kind, and below it every seed at which there is something to look at."""
    lines = [
        f"{'kind':<16} {'faults':>6} {'right':>6} {'class':>6} {'nobody':>6} {'silent':>6} "
        f"{'faint':>6} {'blame':>6} {'action right, alone':>20}"
    ]
    told = [each for row in rows for each in row.faults]
    for kind in sorted({each.kind for each in told}):
        lines.append(_line(kind, [each for each in told if each.kind == kind]))
    lines.append(_line("all", told))
    alarms = sum(len(row.false_alarms) for row in rows)
    errors = sum(bool(row.error) for row in rows)
    lines.append(
        f"{len(rows)} runs, {sum(row.failed for row in rows)} failed: {alarms} false alarms, "
        f"{errors} crashes or differing replays   (simulated; faint: silence is right as well)"
    )
    return "\n".join(lines)


def _line(kind: str, told: Sequence[Told]) -> str:
    counts = Counter("faint" if _is_excused(each) else each.verdict for each in told)
    alone = [each for each in told if each.alone and not each.faint]
    return (
        f"{kind:<16} {len(told):>6} {counts['right']:>6} {counts['wrong class']:>6} "
        f"{counts['nobody']:>6} {counts['silent']:>6} {counts['faint']:>6} "
        f"{counts['wrong blame']:>6} "
        f"{f'{sum(each.action_right for each in alone)} of {len(alone)}':>20}"
    )


def _is_excused(told: Told) -> bool:
    return told.faint and told.verdict in ("nobody", "silent")


def findings(row: VariedRow) -> list[str]:
    """What is to be looked at in a run, a line each; failures are marked."""
    lines = [f"ERROR {row.error}"] if row.error else []
    lines += [f"FALSE ALARM {each}" for each in row.false_alarms]
    for each in row.faults:
        if each.verdict == "right" and (each.action_right or not each.alone):
            continue
        if not _is_excused(each):
            what = "ACTION" if each.verdict == "right" else each.verdict.upper()
            lines.append(f"{what} {each.says}")
    return [f"seed {row.seed} ({row.about}): {line}" for line in lines]


def run_varied(first_seed: int, count: int) -> int:
    """Run, print as it goes, and end with 1 if a run failed."""
    rows: list[VariedRow] = []
    for row in varied_rows(first_seed, count):
        rows.append(row)
        for line in findings(row):
            print(line, flush=True)
    print(varied_table(rows))
    sys.stdout.flush()
    return int(any(row.failed for row in rows))
