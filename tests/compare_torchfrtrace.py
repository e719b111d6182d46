"""NEMESIS beside PyTorch's own analyser: `python -m tests.compare_torchfrtrace [PROGRAM]`.

One row for each run of the public sets (trace_scores.py): what was broken, whom NEMESIS names, whom
`torchfrtrace` names (ranks that it calls missing or culprit in any of its findings). PROGRAM is the
analyser, else it is looked for in PATH; it comes with torch, which is not needed otherwise:
without it its column says so, and its runs are counted as skipped.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.trace_scores import Truth, is_right, named_cycle, named_ranks, scored

SECONDS_MAX = 300


def official(program: str, truth: Truth) -> str:
    """Whom the analyser names; it walks into folders, so the dumps lie in one of their own."""
    with tempfile.TemporaryDirectory() as folder:
        for dump in truth.folder.glob(f"{truth.prefix}*"):
            shutil.copy(dump, folder)
        done = subprocess.run(
            [program, folder, "-p", truth.prefix],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    said = done.stdout + done.stderr
    ranks: set[int] = set()
    for found in re.findall(r"missing ranks: \{([\d, ]+)\}|Culprit rank (\d+)", said):
        ranks.update(int(each) for each in re.findall(r"\d+", " ".join(found)))
    if ranks:
        return f"{_spelled(frozenset(ranks))} {'right' if ranks == set(truth.ranks) else 'wrong'}"
    if "annot decide" in said or done.returncode:
        return "cannot decide"
    return "nothing right" if not truth.ranks else "nothing"


def _spelled(ranks: frozenset[int]) -> str:
    return ",".join(map(str, sorted(ranks))) or "nobody"


def main() -> int:
    """Print the table; 0 if NEMESIS is right in every row."""
    program = sys.argv[1] if len(sys.argv) > 1 else shutil.which("torchfrtrace")
    if program is not None and not Path(program).exists():
        print(f"{program}: no such program: give the path of torchfrtrace, or none")
        return 2
    print(f"{'run':<22} {'broken':<8} {'NEMESIS':<28} torchfrtrace")
    rows = scored()
    right = official_right = 0
    for truth, answer in rows:
        is_ours = is_right(truth, answer)
        right += is_ours
        cycle = named_cycle(answer)
        ours = f"{_spelled(named_ranks(answer))} {'right' if is_ours else 'wrong'}"
        if cycle:
            ours += f" (cycle {'<->'.join(map(str, sorted(cycle)))})"
        theirs = official(program, truth) if program else "skipped: not installed"
        official_right += theirs.endswith("right")
        print(f"{truth.name:<22} {_spelled(truth.ranks):<8} {ours:<28} {theirs}")
    told = f"{official_right} of {len(rows)}" if program else f"{len(rows)} skipped"
    print(f"{'right':<22} {'':<8} {f'{right} of {len(rows)}':<28} {told}")
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
