"""What today's processors say of each kind of fault, alone on a small cluster: a table.

    python -m tests.fault_kinds [KIND ...]

No test of being right: it shows where rules are missing. Columns: what was right, what was said
(verdict, class, components), who was named wrongly, what was decided.
"""

import sys
import tempfile
from pathlib import Path

from nemesis.sim.faults.planned import KINDS
from nemesis.sim.faults.scenario import ANYTHING, Scenario
from nemesis.sim.offline import run_offline
from nemesis.sim.truth.score import FaultScore
from tests.kind_runs import CLUSTER, planned_of

AFTER_S = 45.0


def said_of(kind: str) -> tuple[FaultScore, tuple[str, ...]]:
    """The score of one run, and its false alarms."""
    planned = planned_of(kind)
    scenario = Scenario(
        name=kind,
        title=kind,
        faults=(planned,),
        expect=ANYTHING,
        duration_s=planned.after_s + AFTER_S,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = run_offline(CLUSTER, scenario, seed=7, folder=Path(folder))
    return run.score.faults[0], run.score.false_alarms


def main(kinds: list[str]) -> int:
    """Print a line a kind, as each is done."""
    print("| kind | verdict | class | named | wrong blame | decided |\n|---|---|---|---|---|---|")
    for kind in kinds or KINDS:
        score, alarms = said_of(kind)
        marks = "right" if score.class_right else "wrong" if score.fault_class else "-"
        where = "culprit" if score.culprit_right else ", ".join(score.named) or "nobody"
        wrong = ", ".join(score.wrong_blame or alarms) or "-"
        cells = (
            kind,
            score.verdict or "silent",
            f"{score.fault_class or '-'} ({marks})",
            where,
            wrong,
        )
        print("| " + " | ".join((*cells, score.action or "-")) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
