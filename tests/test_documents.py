"""Promises of files that people write: read whole or refused in one line, and never waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nemesis.schemas.errors import NemesisError
from nemesis.sim.faults.scenario import load_scenario
from nemesis.sim.faults.schedule import read_trace
from nemesis.sim.outputs import expect_writable
from nemesis.sim.prediction.repeats import double_bit_errors
from nemesis.sim.truth.ledger_file import read_ledger_file
from nemesis.streams.documents import BadDocumentError, read_document, read_toml

READERS: list[Callable[[Path], object]] = [
    read_document,
    read_toml,
    read_trace,
    double_bit_errors,
    read_ledger_file,
    load_scenario,
]


@pytest.mark.parametrize("read", READERS)
def test_a_fifo_that_nobody_writes_to_is_refused_and_not_waited_for(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NemesisError, match=r"cannot read .*pipe: not a plain file"):
        read(tmp_path / "pipe")


def test_what_is_no_plain_file_is_not_replaced_by_a_recording(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NemesisError, match=r"cannot write .*pipe: not a plain file"):
        expect_writable(tmp_path / "pipe", force=True)
    assert (tmp_path / "pipe").is_fifo()


def test_a_byte_order_mark_before_toml_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert read_toml(path) == {"a": 1}


def test_toml_in_another_encoding_is_told_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("a = 1\n", encoding="utf-16")
    with pytest.raises(BadDocumentError, match="byte 0: not UTF-8, expected TOML: save it as"):
        read_toml(path)


def test_no_more_than_what_may_be_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 11)
    assert read_document(path, bytes_max=11) == b"x" * 11
    with pytest.raises(BadDocumentError, match="more than 10 bytes"):
        read_document(path, bytes_max=10)
