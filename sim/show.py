"""What a run looks like in a terminal: one line a happening, the evidence below its verdict.

Pure: facts and ledger entries become lines. Times count from the start of the run, in simulated
time; what was measured on the wall clock says so.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from nemesis.schemas.decided import Mode, QuiesceDecided, RecoveryDecided, RecoveryWithheld
from nemesis.schemas.done import (
    AttemptCompleted,
    AttemptFailed,
    AttemptOutcomeUnknown,
    MembershipReported,
)
from nemesis.schemas.facts import Fact
from nemesis.schemas.inferred import FailurePredicted, FaultAttributed
from nemesis.schemas.operated import DecisionApproved, DecisionVetoed
from nemesis.schemas.printable import one_line
from nemesis.schemas.rank_ranges import format_ranks
from nemesis.sim.faults.planned import plainly
from nemesis.sim.faults.scenario import Scenario
from nemesis.sim.topology.cluster import Cluster
from nemesis.sim.truth.ledger import FaultInjected, MembershipFormed
from nemesis.sim.truth.score import FaultScore, Score

HEAD_WIDTH: Final = 20
EVIDENCE_MAX: Final = 4
_STYLES: Final = {
    "LEDGER": "magenta",
    "VERDICT": "bold yellow",
    "PREDICTED": "bold yellow",
    "DECISION": "bold cyan",
    "PERSON": "bold white",
    "SHRINK": "bold green",
    "RECOVERY": "bold green",
    "WITHHELD": "bold red",
    "FAILED": "bold red",
    "WITHDRAWN": "dim",
    "WAITING": "bold red",
    "SCORE": "bold",
}
_SHARED: Final = ("switch/", "rack/")
"""What is of no single node."""
_KINDS: Final = {
    "xid79": "GPU off the bus (Xid 79)",
    "xid48": "uncorrectable memory error (Xid 48)",
    "rank-exit": "a rank's process ends",
    "node-lost": "a node loses power",
    "ecc-precursor": "memory errors that ECC corrects pile up, then one that it cannot",
    "gpu-throttle": "a GPU grows hot and throttles",
    "host-contention": "another process takes the CPUs",
    "desync": "a rank calls another collective",
    "nic-flap": "a NIC's link flaps",
    "nic-dead": "a NIC stops moving data",
    "port-down": "a switch port goes down",
    "slow-step": "one slow step",
    "corrected-errors": "a few corrected memory errors",
    "kernel-noise": "noise in a kernel log",
}


class Line(msgspec.Struct, frozen=True):
    """One line: when and what kind, then the text."""

    head: Text
    body: Text
    indent: int = 0
    """Columns by which the body is set in."""

    def flat(self) -> Text:
        """As one line of any length."""
        gap = " " * (HEAD_WIDTH - len(self.head) + self.indent)
        line = Text.assemble(self.head, gap, self.body)
        line.rstrip()
        return line

    def wrapped(self) -> Table:
        """Wrapped at the terminal's width, the text below itself."""
        grid = Table.grid()
        grid.add_column(width=HEAD_WIDTH + self.indent, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(self.head, self.body)
        return grid


class Show:
    """Turns the happenings of one run into lines."""

    def __init__(self, cluster: Cluster, start_ns: int, *, cell: str = "demo") -> None:
        self._cluster = cluster
        self._cell = cell
        self._start_ns = start_ns
        self._world = cluster.world
        self._epochs = {0}
        self._steps: set[int] = set()
        self._broken_ns = start_ns
        self._verdicts: set[tuple[str, str, tuple[str, ...]]] = set()
        self._unnamed: set[tuple[str, ...]] = set()
        self._actions: dict[str, RecoveryDecided] = {}

    def truth(self, entry: FaultInjected | MembershipFormed) -> list[Line]:
        """A ledger entry."""
        if isinstance(entry, FaultInjected):
            return self._broke(entry)
        if entry.epoch in self._epochs and not self._stood(entry):
            return []
        self._epochs.add(entry.epoch)
        self._steps.add(entry.step)
        before, self._world = self._world, entry.world
        return [
            self._line(
                "LEDGER",
                entry.at_ns,
                f"the job goes on: step {entry.step} finished in epoch {entry.epoch} by "
                f"{entry.world} ranks ({entry.world - before:+d})",
            ),
            _under(
                f"steps lost {entry.redone_count}, process restarts {entry.restarts_count}, "
                f"{self._after_fault(entry.at_ns)}, "
                f"{entry.since_last_step_ns / 1e9:.1f} s without a step (simulated)"
            ),
        ]

    def _stood(self, entry: MembershipFormed) -> bool:
        """Whether the step ended a stall, and is not told yet."""
        return entry.since_last_step_ns > 0 and entry.step not in self._steps

    def _after_fault(self, at_ns: int) -> str:
        after_s = (at_ns - self._broken_ns) / 1e9
        return f"{after_s:.1f} s after the fault" if after_s >= 0 else f"{-after_s:.1f} s before it"

    def _broke(self, entry: FaultInjected) -> list[Line]:
        self._broken_ns = entry.at_ns
        decoy = "" if entry.components else "decoy, "
        text = f"{decoy}{_broken(entry.kind)}: {entry.culprit}"
        if entry.node not in entry.culprit and not entry.culprit.startswith(_SHARED):
            text += f" on {entry.node}"
        if entry.lost_ranks:
            text += f", rank {format_ranks(entry.lost_ranks)}"
        if entry.at_ns > entry.began_ns:
            text += f"; it will fail in {(entry.at_ns - entry.began_ns) / 1e9:.0f} s"
        return [
            self._line("LEDGER", entry.began_ns, text),
            _under("ground truth; NEMESIS cannot see this line"),
        ]

    def fact(  # noqa: C901 - a table, one line a case
        self, fact: Fact, *, measured_ms: int | None = None
    ) -> list[Line]:
        """A fact of the log; none where it is of no interest to a person watching.

        `measured_ms`: wall-clock time from the decision to this fact.
        """
        match fact.data:
            case DecisionApproved() | DecisionVetoed():
                return self._answer(fact.data, fact.at_ns)
            case FaultAttributed():
                return self._verdict(fact.data, fact.at_ns)
            case FailurePredicted():
                return self._prediction(fact.data, fact.at_ns)
            case QuiesceDecided():
                return self._hold(fact.data, fact.at_ns)
            case RecoveryDecided():
                return self._decision(fact.data, fact.at_ns)
            case RecoveryWithheld():
                text = f"{fact.data.action} of {fact.data.target}: {fact.data.reason}"
                return [self._line("WITHHELD", fact.at_ns, text)]
            case AttemptCompleted():
                return self._completed(fact.data, fact.at_ns, measured_ms)
            case MembershipReported():
                return [self._line("RECOVERY", fact.at_ns, fact.data.reason)]
            case AttemptFailed(withdrawn=True):
                text = f"{fact.data.decision} makes way for a later decision"
                return [self._line("WITHDRAWN", fact.at_ns, text)]
            case AttemptFailed() | AttemptOutcomeUnknown():
                return [self._line("FAILED", fact.at_ns, fact.data.reason)]
            case _:
                return []

    def waiting(self, now_ns: int) -> list[Line]:
        """What the fault has cost so far, while the job stands still."""
        idle_s = (now_ns - self._broken_ns) / 1e9
        gpu_hours = idle_s * self._world / 3600
        text = (
            f"no step is finished: {self._world} GPUs idle for {idle_s:.0f} s, "
            f"{gpu_hours:.1f} GPU hours (simulated)"
        )
        return [self._line("WAITING", now_ns, text)]

    def too_slow(self, speed: float) -> list[Line]:
        """The machine does not keep up."""
        text = f"this machine is too slow for --speed {speed:g}: times below are its own"
        return [_under(text, "bold yellow")]

    def score(self, score: Score, *, is_behind: bool = False) -> list[Line]:
        """The judgement, after the run. `is_behind`: the machine did not keep up."""
        lines = [_under("")]
        for each in score.faults:
            lines += _scored(each)
        real = [each for each in score.faults if not each.is_decoy]
        verdict = ("passed", "bold green") if score.passed else ("FAILED", "bold red")
        rest = (
            f": detected {sum(f.detected for f in real)}/{len(real)}, "
            f"wrong blame {sum(len(f.wrong_blame) for f in score.faults)}, "
            f"false alarms {len(score.false_alarms)}, process restarts {score.restarts_count}, "
            f"steps redone {score.steps_redone_count}"
        )
        lines.append(Line(Text("SCORE", "bold"), Text.assemble(verdict, rest)))
        vain = ("a recovery was decided, and no step came of it",) if score.in_vain else ()
        wrong = (*score.broken, *vain, *score.false_alarms)
        lines += [_under(each, "bold red") for each in wrong]
        if is_behind and not score.passed:
            text = "this machine did not keep up, late nodes look silent: try again at --speed 1"
            lines.append(_under(text, "bold yellow"))
        return lines

    def _verdict(self, verdict: FaultAttributed, at_ns: int) -> list[Line]:
        named = tuple(culprit.id for culprit in verdict.culprits)
        said = (verdict.incident, verdict.verdict + verdict.fault_class, named)
        if said in self._verdicts:
            return []
        self._verdicts.add(said)
        who = ", ".join(named) or "no component named"
        lines = [
            self._line(
                "VERDICT",
                at_ns,
                f"{verdict.fault_class}: {who} "
                f"({verdict.verdict}, {verdict.confidence_ppm / 10_000:.0f} %), "
                f"incident {verdict.incident}",
            ),
            _under(verdict.reason),
        ]
        if not named and not self._is_new(verdict):
            return lines
        for evidence in verdict.evidence[:EVIDENCE_MAX]:
            lines.append(_under(f"- {evidence.says}", "dim"))
            if evidence.text:
                lines.append(_under(f'"{evidence.text}"', "dim", indent=2))
        hidden = len(verdict.evidence) - EVIDENCE_MAX
        if hidden > 0:
            lines.append(_under(f"- and {hidden} more", "dim"))
        lines += [_under(f"missing: {each}", "dim") for each in verdict.missing]
        return lines

    def _is_new(self, verdict: FaultAttributed) -> bool:
        """Whether no other incident told the same: a switch opens one for each of its nodes."""
        says = (verdict.fault_class, *(each.says for each in verdict.evidence), *verdict.missing)
        is_new = says not in self._unnamed
        self._unnamed.add(says)
        return is_new

    def _prediction(self, predicted: FailurePredicted, at_ns: int) -> list[Line]:
        text = f"{predicted.fault_class}: {predicted.component}, band {predicted.band}"
        if predicted.probability_ppm:
            days = predicted.horizon_ns / 86_400e9
            text += f", {predicted.probability_ppm / 10_000:.0f} % within {days:.3g} days"
        return [self._line("PREDICTED", at_ns, text), _under(predicted.reason)]

    def _hold(self, held: QuiesceDecided, at_ns: int) -> list[Line]:
        dead = format_ranks(held.dead_ranks)
        text = f"hold {held.job} in epoch {held.epoch}{f', fence rank {dead}' if dead else ''}"
        if held.mode == "shadow":
            text += " (recorded, not done)"
        return [self._line("DECISION", at_ns, text)]

    def _answer(self, answer: DecisionApproved | DecisionVetoed, at_ns: int) -> list[Line]:
        word = "approved" if isinstance(answer, DecisionApproved) else "vetoed"
        text = f"{answer.by} {word} {answer.decision}: {answer.reason}"
        return [self._line("PERSON", at_ns, text)]

    def _decision(self, decided: RecoveryDecided, at_ns: int) -> list[Line]:
        again = any(_same_plan(decided, before) for before in self._actions.values())
        self._actions[decided.decision] = decided
        if again:
            text = f"{decided.action} again as {decided.decision}: the log moved on under the other"
            return [self._line("DECISION", at_ns, text)]
        what = f"{decided.action} {decided.target}"
        if decided.members:
            what += f": epoch {decided.epoch}, {decided.world} ranks go on"
        lines = [self._line("DECISION", at_ns, f"{what} ({decided.mode})")]
        lines.append(_under(decided.reason))
        lines += [_under(f"not {refused}", "dim") for refused in decided.rungs_refused]
        if decided.members and decided.mode == "approve":
            lines.append(_under("nothing is done before a person says so, in another terminal:"))
            for word in ("approve", "veto"):
                command = f"nemesis {word} --cell {self._cell} {decided.decision} --reason ..."
                lines.append(_under(command, "bold", indent=2))
        return lines

    def _completed(self, done: AttemptCompleted, at_ns: int, measured_ms: int | None) -> list[Line]:
        decided = self._actions.get(done.decision)
        if decided is None or not decided.members:
            return []
        label = "SHRINK" if decided.action == "shrink" else "RECOVERY"
        text = f"epoch {done.epoch}, members {decided.members}, world {done.world}"
        lines = [self._line(label, at_ns, text)]
        measured = f", {measured_ms} ms measured from decision to effect" if measured_ms else ""
        lines.append(_under(f"goes on from step {done.step}, restarts {done.restarts}{measured}"))
        return lines

    def _line(self, label: str, at_ns: int, text: str) -> Line:
        passed_s = max(0, at_ns - self._start_ns) / 1e9
        clock = f"{int(passed_s) // 60:02d}:{passed_s % 60:04.1f}"
        return Line(
            Text.assemble((f"{clock}  ", "dim"), (label, _STYLES[label])), Text(one_line(text))
        )


def _broken(kind: str) -> str:
    return _KINDS.get(kind) or plainly(kind)


def _same_plan(one: RecoveryDecided, other: RecoveryDecided) -> bool:
    """The same membership, decided anew because a fact about the job came in between."""
    return (
        one.job_revision != other.job_revision
        and bool(one.members)
        and (one.action, one.epoch, one.members) == (other.action, other.epoch, other.members)
    )


def _scored(each: FaultScore) -> list[Line]:
    def mark(right: bool) -> str:
        return "right" if right else "WRONG"

    def after(ms: int | None) -> str:
        if ms is None:
            return "never"
        return f"after {ms / 1000:.2f} s" if ms >= 0 else f"{-ms / 1000:.2f} s before it"

    if each.is_decoy:
        return [_under(f"{_broken(each.kind)}: a decoy, nothing is the right answer")]
    culprit = mark(each.culprit_right) if each.named else "not named"
    resumed = f", next step {after(each.to_resume_ms)}" if each.stalls else ""
    if each.predicted_ms is not None:
        resumed += f", predicted {each.predicted_ms / 1000:.0f} s before it failed"
    return [
        _under(
            f"{_broken(each.kind)}: {each.verdict or 'not detected'}, "
            f"class {mark(each.class_right)}, culprit {culprit}, "
            f"{each.action or 'no action'} {mark(each.action_right)}"
        ),
        _under(
            f"verdict {after(each.to_verdict_ms)}, decision {after(each.to_decision_ms)}"
            f"{resumed} (simulated)"
        ),
    ]


def _under(text: str, style: str = "", *, indent: int = 0) -> Line:
    return Line(Text(), Text(one_line(text), style), indent)


def look_further(incidents: Iterable[str], *, cell: str, following: bool) -> list[Line]:
    """The commands that show more; the log is there as long as the demo runs."""
    start = (
        "the log is open until Ctrl-C" if following else "to look further: nemesis demo --follow"
    )
    lines = [_under(""), _under(f"{start}; then, in another terminal:", "dim")]
    commands = [f"nemesis incident --cell {cell} {each}" for each in incidents]
    commands += [f"nemesis events --cell {cell} --since 10m", f"nemesis status --cell {cell}"]
    return lines + [_under(each, "dim", indent=2) for each in commands]


_POLICIES: Final[dict[Mode, str]] = {
    "act": "policy: act, because this is a demo; on a real cluster it is shadow",
    "approve": "policy: approve, so nothing is done to the job before a person says so",
    "shadow": "policy: shadow, so what is decided is recorded and not done",
}


def opening(
    cluster: Cluster, scenario: Scenario, *, seed: int, speed: float, mode: Mode = "act"
) -> list[Text]:
    """What is about to happen."""
    gpus = len(cluster.node.gpus)
    spare_count = cluster.cluster.nodes - cluster.world // gpus
    return [
        Text.assemble(
            ("NEMESIS demo", "bold"),
            f"  {cluster.cluster.name}: {cluster.cluster.nodes} nodes x {gpus} GPUs "
            f"({cluster.node.model}), job {cluster.job.name} on {cluster.world} ranks, "
            f"{spare_count} nodes are spare",
        ),
        Text(
            f"scenario {scenario.name}: {scenario.title}; seed {seed}; simulated time at "
            f"{speed:g}x; all telemetry is synthetic",
            "dim",
        ),
        Text(_POLICIES[mode], "dim"),
        Text("and shrink before a swap: no process starts anew, so the job goes on sooner", "dim"),
        Text(),
    ]
