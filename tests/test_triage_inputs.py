"""Promises about what `nemesis triage` is given: pipes, its own answers, files without a host."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nemesis.cli.triage import triage_paths
from nemesis.views.triage_answer import Citation, nothing_found

XID = "[   99.000000] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
HARMLESS = "[    1.000000] mlx5_core 0000:63:00.0: firmware version: 28.39.1002\n"


def triage(*words: str, given: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from nemesis.cli import main; main()", "triage", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_log_that_comes_through_a_pipe_is_read_and_cited(name: str) -> None:
    done = triage("--json", name, given=HARMLESS + XID)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["fault_class"]) == (1, "gpu.off_bus")
    cited = answer["evidence"][0]
    assert (cited["file"], cited["line"], cited["text"] + "\n") == ("stdin", 2, XID)


def test_a_pipe_with_nothing_in_it_is_nothing_read() -> None:
    assert triage("-", given="").returncode == 3


def test_what_a_shell_makes_of_a_command_is_read() -> None:
    reader, writer = os.pipe()
    os.write(writer, XID.encode())
    os.close(writer)
    answer = triage_paths([Path(f"/dev/fd/{reader}")])
    os.close(reader)
    assert answer.evidence[0].file == f"/dev/fd/{reader}"


@pytest.mark.parametrize("words", [["--json"], []], ids=["JSON", "text"])
def test_an_answer_saved_beside_the_files_is_named_and_not_read(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "dmesg").write_text(XID)
    first = triage(*words, str(tmp_path), given="")
    (tmp_path / "answer").write_text(first.stdout)
    answer = triage_paths([tmp_path])
    assert [each.file for each in answer.evidence] == ["dmesg"]
    assert [(e.file, e.why) for e in answer.unread] == [("answer", "an answer of nemesis triage")]
    (tmp_path / "dmesg").write_text(HARMLESS)
    assert triage_paths([tmp_path]).verdict == "no-fault"


def test_a_log_without_a_host_says_what_its_node_is_called(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(XID)
    note = "no host name in dmesg.txt: its node is called localhost"
    assert note in triage_paths([tmp_path]).notes
    (tmp_path / "dmesg.txt").write_text(f"2026-08-11T03:14:22Z n1 kernel: {XID}")
    assert note not in triage_paths([tmp_path]).notes


def test_insufficient_evidence_is_always_a_finding(tmp_path: Path) -> None:
    (tmp_path / "dmesg").write_text("[    1.000000] mlx5_core 0000:63:00.0 eth0: Link down\n")
    assert triage(str(tmp_path), given="").returncode == 1
    (tmp_path / "dmesg").write_text(HARMLESS)
    assert triage(str(tmp_path), given="").returncode == 0
    (tmp_path / "notes").write_text("it hangs")
    assert triage(str(tmp_path), given="").returncode == 1


def test_one_is_one_file_and_what_is_none_is_not_spoken_of() -> None:
    seen = Citation("log", 1, "done", "it ended as it should")
    assert nothing_found(1, 1, 0, [seen]).reason == (
        "What could be read points to no fault; 1 file was not read."
    )
    assert nothing_found(1, 2, 1, [seen]).reason.endswith(
        "; 2 files were not read; 1 dump is not there."
    )
    assert msgspec.to_builtins(nothing_found(1, 0, 0, [seen]))["verdict"] == "no-fault"
