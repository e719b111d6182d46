"""Whether a line says that something failed, and what a bundle needs before it is called well."""

from pathlib import Path

import pytest

from nemesis.processors.attribution.severity import is_of_failure, is_severe
from tests.told import summary, told

FAILED = (
    "ERROR:root:the frobnicator is gone",
    "[2026-01-02 03:04:05] - worker - ERROR - oops",
    'level=error msg="lost the lease"',
    '{"severity": "ERROR", "message": "x"}',
    "E0613 12:00:00.000 1 thing.go:12] x",
    "[E ProcessGroup.cpp:12] x",
    "n1:1:2 [0] some.cc:9 NCCL WARN whatever",
    "slurmstepd: error: x",
    "mypkg.errors.QuotaError: 3 of 3 in use",
    "child exited with code 3",
    "process 12 received signal 11",
    "the store refused us",
    "could not open the socket",
    "worker 4 hung for a while",
    "reader is stuck",
    "health: degraded",
)
HARMLESS = (
    "INFO: error handler installed",
    "WARNING: deprecated, will fail in release 3",
    "I0613 12:00:00.000 1 thing.go:12] retry after error",
    "0 errors, 0 failed",
    "finished without errors",
    "errors: 0",
    "failed=0 ok=12",
    "validation error 0.123",
    "timeout=600",
    "using a timeout of 30 s",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "exit code 0",
    "epoch 3 step 12 loss 2.13",
    "",
)


@pytest.mark.parametrize("line", FAILED)
def test_a_line_that_says_so_by_level_form_or_word_is_severe(line: str) -> None:
    assert is_severe(line)


@pytest.mark.parametrize("line", HARMLESS)
def test_a_line_that_denies_measures_or_sets_is_not(line: str) -> None:
    assert not is_severe(line)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("PortRcvErrors", True),
        ("rx_discards_phy", True),
        ("link_downed", True),
        ("port_rcv_packets", False),
        ("ecc_errors.volatile.sram_correctable", False),
        ("tx_bytes", False),
    ],
)
def test_a_counter_is_of_failure_by_the_words_of_its_name(name: str, bad: bool) -> None:
    assert is_of_failure(name) is bad


def test_a_failure_that_no_rule_knows_is_cited_and_no_all_clear_is_given(tmp_path: Path) -> None:
    log = "starting\nstep 1 fine\nthe widget store refused us\n"
    answer = told(tmp_path, log=log)
    assert summary(answer) == ("insufficient", "unknown", [])
    assert [(each.file, each.line) for each in answer.evidence] == [("log", 3)]
    assert answer.missing


def test_what_a_program_complains_of_and_then_ends_well_is_its_own_affair(tmp_path: Path) -> None:
    log = "the widget store refused us\ntraining finished\n"
    answer = told(tmp_path, log=log)
    assert summary(answer) == ("no-fault", "none", [])
    assert [each.line for each in answer.evidence] == [2]
    answer = told(tmp_path, log="training finished\nthe widget store refused us\n")
    assert answer.verdict == "insufficient"


def test_nothing_said_of_a_fault_is_not_yet_health(tmp_path: Path) -> None:
    nothing = told(tmp_path, log="n1:1:1 [0] NCCL INFO NCCL version 2.20.3+cuda12.1\n")
    assert nothing.verdict == "insufficient"
    assert "nothing in it shows that anything works" in nothing.reason


def test_a_counter_that_rose_and_ought_not_to_is_no_health(tmp_path: Path) -> None:
    files = {
        f"{when}/ethtool": f"NIC statistics:\n     rx_widget_drops: {count}\n"
        for when, count in (("before", 4), ("after", 9))
    }
    answer = told(tmp_path, files)
    assert (answer.verdict, answer.evidence[0].says) == (
        "insufficient",
        "it rose by 5 between two readings",
    )
