"""Promises about what is refused before the log is told of a job."""

from pathlib import Path

import pytest

from nemesis.actors.agent.submission import BadJobError, described
from tests.commands import nemesis

NODES = ",".join(f"n{at:03}" for at in range(128))
EIGHT = ("--nodes", "n001", "--ranks-per-node", "8")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--nodes", ""), "--nodes names no node"),
        (("--nodes", "n[5-1]"), "--nodes names no node"),
        (("--nodes", "n[000001-999999]"), "at most 100000 are read"),
        (("--nodes", "n001,n001"), "'n001' is named 2 times"),
        (("--nodes", "n[001-004],n003"), "'n003' is named 2 times"),
        (("--nodes", "n001", "--spares", "n001"), "'n001' is named 2 times"),
        (("--nodes", NODES, "--world-min", "99999"), "--world-min 99999: expected 1 to 1024"),
        ((*EIGHT, "--tp", "3"), "tp 3 x cp 1 x pp 1 over 8 ranks: expected a product"),
        ((*EIGHT, "--tp", "4", "--pp", "4"), "tp 4 x cp 1 x pp 4 over 8 ranks"),
        ((*EIGHT, "--tp", "99999999999999999999"), "over 8 ranks"),
        ((*EIGHT, "--pp", "2", "--ep", "8"), "ep 8 over the 4 ranks of a stage"),
        ((*EIGHT, "--reason", "x" * 100_000), "--reason of 100000 bytes, expected at most 4096"),
        ((*EIGHT, "--by", "x" * 257), "--by of 257 bytes, expected at most 256"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    who = ("--by", "me", "--reason", "test")
    ran = nemesis("job", "submit", "llama", *who, *options, NEMESIS_STATE_DIR=str(tmp_path))
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert says in ran.stderr


@pytest.mark.parametrize(
    ("job", "options", "says"),
    [
        ("a\x1bb", (), "control characters; write 'a-b'"),
        ("a", ("--team", " "), "team ' ', expected a name without blanks"),
        ("a", ("--team", "x" * 10_000), "1 to 100 bytes"),
        ("a", ("--runtime", "9" * 400 + "h"), "expected at most 100 years"),
    ],
)
def test_a_job_for_the_queue_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, job: str, options: tuple[str, ...], says: str
) -> None:
    ran = nemesis("submit", job, "TP8", "--by", "me", *options, NEMESIS_STATE_DIR=str(tmp_path))
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert says in ran.stderr


def test_ranks_that_cannot_be_cut_so_are_not_started(tmp_path: Path) -> None:
    words = ("run", "--tp", "3", "--", "--nproc-per-node", "2", "t.py")
    ran = nemesis(*words, NEMESIS_STATE_DIR=str(tmp_path))
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert "over 2 ranks" in ran.stderr


def test_what_goes_together_is_described_as_it_was_said() -> None:
    said = {"at_ns": 1, "by": "me", "reason": "r", "job": "j", "nodes": ("n[1-4]",)}
    job = described(**said, spares=("n9",), tp=4, pp=2, ep=4, world_min=32)
    assert (job.node_names, job.spares) == (("n1", "n2", "n3", "n4"), ("n9",))
    with pytest.raises(BadJobError, match="expected 1 to 32"):
        described(**said, world_min=33)
