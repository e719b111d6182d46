"""Promises about real incidents, told otherwise: the same fault under other names, at other times.

The incident cases lie beside the checkout and are never copied into it. Of each: other hosts, PCI
addresses and ranks, other times, files in another order and thousands of harmless lines change
nothing; without the lines that prove it a verdict is weaker.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nemesis.cli.triage import triage_paths
from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.bundle_facts import BundleFacts
from nemesis.views.triage_answer import Triage

CASES = Path(__file__).parent.parent.parent / "shared" / "cases"
NAMES = sorted(each.name for each in CASES.glob("*/")) if CASES.is_dir() else []
WEIGHT = {"attributed": 3, "class-only": 2, "insufficient": 1, "no-fault": 0}
LINES = 10_000
PCI = re.compile(r"\b((?:[0-9a-fA-F]{4}|[0-9a-fA-F]{8}):)([0-9a-fA-F]{2})(?=:[0-9a-fA-F]{2})")
RANK = re.compile(r"((?:\[|\b)(?:[Rr]anks?|default)[ =]?\{?)(\d+)")
DATE = re.compile(r"\b20[0-4]\d\b(?=-\d\d-\d\d|\]| \d\d:)|(?<= )20[0-4]\d(?=\])")
UPTIME = re.compile(r"^\[( *)(\d+)(?=\.\d{6}\])", re.MULTILINE)
LOGS = (".log", "dmesg.txt", "journal.txt")


@pytest.fixture(params=NAMES or ["none"])
def case(request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> Path:
    """The files of one case in a folder that may be changed."""
    there = tmp_path / "bundle"
    shutil.copytree(
        shared / "cases" / request.param, there, ignore=shutil.ignore_patterns("expected.json")
    )
    return there


def said(answer: Triage) -> tuple[object, ...]:
    return (answer.verdict, answer.fault_class, answer.recovery.action, len(answer.culprits))


def named(answer: Triage) -> list[str]:
    return sorted(each.id for each in answer.culprits)


def rewrite(folder: Path, change: Callable[[str], str]) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".txt", ".log", ".csv"):
            path.write_text(change(path.read_text()))


def other_pci(text: str) -> str:
    return PCI.sub(lambda match: f"{match[1]}{(int(match[2], 16) + 1) % 256:02x}", text)


def other_ranks(text: str) -> str:
    return RANK.sub(lambda match: f"{match[1]}{int(match[2]) + 100}", text)


def other_times(text: str) -> str:
    text = DATE.sub(lambda match: str(int(match[0]) + 1), text)
    return UPTIME.sub(lambda match: f"[{match[1]}{int(match[2]) + 7000}", text)


def hosts_of(folder: Path) -> list[str]:
    facts = BundleFacts(read_bundle([folder]))
    return sorted({fact.node for fact in facts} - {"localhost", "job"}, key=len, reverse=True)


def test_other_names_change_nothing_but_the_names(case: Path) -> None:
    before = triage_paths([case])
    hosts = hosts_of(case)
    names = {host: f"q{at}w-{at:02d}" for at, host in enumerate(hosts)}

    def renamed(text: str) -> str:
        for host, name in names.items():
            text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", name, text)
        return text

    rewrite(case, lambda text: other_ranks(other_pci(renamed(text))))
    for path in sorted(case.rglob("*")):
        if renamed(path.name) != path.name:
            path.rename(path.with_name(renamed(path.name)))
    after = triage_paths([case])
    assert said(after) == said(before)
    expected = []
    for each in before.culprits:
        name = renamed(other_pci(each.id))
        if each.kind == "rank" and any(other_ranks(e.text) != e.text for e in before.evidence):
            head, _, number = name.rpartition("/")
            name = f"{head}/{int(number) + 100}"
        expected.append(name)
    dates = [each for each in named(after) if "dimm" not in each]
    assert dates == sorted(each for each in expected if "dimm" not in each)


def test_other_times_and_another_order_of_files_change_nothing(case: Path) -> None:
    before = triage_paths([case])
    rewrite(case, other_times)
    files = sorted(path for path in case.iterdir() if path.is_file())
    for at, path in enumerate(files):
        path.rename(path.with_name(f"{len(files) - at:02d}.{path.name}"))
    after = triage_paths([case])
    assert (said(after), named(after)) == (said(before), named(before))


def test_harmless_lines_change_nothing(case: Path) -> None:
    before = triage_paths([case])
    for path in case.rglob("*"):
        if path.name.endswith(LOGS):
            lines = path.read_text().splitlines(keepends=True)
            middle = len(lines) // 2
            harmless = [f"worker {at % 64} is alive, queue {at}\n" for at in range(LINES)]
            path.write_text("".join([*lines[:middle], *harmless, *lines[middle:]]))
    after = triage_paths([case])
    assert (said(after), named(after)) == (said(before), named(before))


def without_evidence(folder: Path, answer: Triage) -> bool:
    """Take the cited lines out; whether there were any."""
    cited: dict[str, set[int]] = {}
    for each in answer.evidence:
        if each.line is not None:
            cited.setdefault(each.file, set()).add(each.line)
    for file, numbers in cited.items():
        lines = (folder / file).read_text().splitlines(keepends=True)
        kept = [line for at, line in enumerate(lines, 1) if at not in numbers]
        (folder / file).write_text("".join(kept))
    return bool(cited)


def test_without_the_lines_that_prove_it_a_verdict_is_weaker(case: Path) -> None:
    before = after = triage_paths([case])
    rounds = 0
    # a line that is repeated is cited once: the next of its kind takes its place
    while named(after) == named(before) != [] and rounds < LINES:
        if not without_evidence(case, after):
            return  # a dump has no lines
        after, rounds = triage_paths([case]), rounds + 1
        assert (WEIGHT[after.verdict], after.confidence) <= (
            WEIGHT[before.verdict],
            before.confidence,
        )
    assert named(after) != named(before) or not named(before)
