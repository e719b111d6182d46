"""Files written as a person would bring them, and what triage says of them."""

from pathlib import Path

from nemesis.cli.triage import triage_paths
from nemesis.views.triage_answer import Triage


def told(tmp_path: Path, files: dict[str, str] | None = None, /, **more: str) -> Triage:
    """Triage of these files, by their paths below the folder."""
    for name, content in ((files or {}) | more).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return triage_paths([tmp_path])


def summary(answer: Triage) -> tuple[str, str, list[str]]:
    """Verdict, class and the names of the culprits."""
    return answer.verdict, answer.fault_class, [each.id for each in answer.culprits]
