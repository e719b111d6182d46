"""Promises of `nemesis triage`: one verdict, cited, and an exit status that says what it was."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nemesis.cli import main
from nemesis.cli.triage import triage_paths
from tests.dumps import dump, entry, pickled

FALLEN = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus."
BENIGN = "[   16.771020] mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged\n"
KEYS = ["verdict", "fault_class", "culprits", "confidence", "evidence", "recovery", "missing"]


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a command."""
    monkeypatch.setattr(sys, "argv", ["nemesis", *words])
    with pytest.raises(SystemExit) as left:
        main()
    captured = capsys.readouterr()
    return int(left.value.code or 0), captured.out, captured.err


def answered(root: Path, **files: str | bytes) -> dict[str, Any]:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    answer: dict[str, Any] = json.loads(msgspec.json.encode(triage_paths([root])))
    return answer


def test_a_fallen_gpu_is_named_with_the_line_that_says_so(tmp_path: Path) -> None:
    answer = answered(tmp_path, dmesg=f"{BENIGN}[   99.000000] {FALLEN}\n")
    assert list(answer)[: len(KEYS)] == KEYS
    assert (answer["verdict"], answer["fault_class"]) == ("attributed", "gpu.off_bus")
    assert answer["culprits"][0]["id"] == "gpu/localhost/0000:9b:00.0"
    assert answer["culprits"][0]["kind"] == "gpu"
    assert 0 < answer["confidence"] <= 1
    cited = answer["evidence"][0]
    assert (cited["file"], cited["line"]) == ("dmesg", 2)
    assert cited["text"] == f"[   99.000000] {FALLEN}"
    assert answer["recovery"]["action"] in {"drain_node", "swap_node", "reboot_node"}


def test_evidence_is_quoted_raw_whatever_prefixes_it_had(tmp_path: Path) -> None:
    raw = f"2026-08-11T03:14:22.5Z stderr F <3>Aug 11 03:14:22 n017 kernel: [ 9.000000] {FALLEN}"
    answer = answered(tmp_path, **{"a__b.log": f"\n\n{raw}\r\nlast"})
    assert answer["culprits"][0]["id"] == "gpu/n017/0000:9b:00.0"
    assert answer["evidence"][0] | {"says": ""} == {
        "file": "a/b.log",
        "line": 3,
        "text": raw,
        "says": "",
    }


def test_harmless_lines_are_no_fault(tmp_path: Path) -> None:
    answer = answered(tmp_path, dmesg=BENIGN)
    assert (answer["verdict"], answer["fault_class"]) == ("no-fault", "none")
    assert answer["recovery"]["action"] == "none"


def test_harmless_lines_beside_a_file_that_was_not_read_prove_nothing(tmp_path: Path) -> None:
    answer = answered(tmp_path, **{"dmesg": BENIGN, "nvidia-smi-q.txt": "Attached GPUs : 8\n"})
    assert (answer["verdict"], answer["fault_class"]) == ("insufficient", "unknown")
    assert answer["recovery"]["action"] == "collect_more"
    assert [each["file"] for each in answer["unread"]] == ["nvidia-smi-q.txt"]
    assert answer["missing"]


def test_two_faults_of_two_nodes_are_two_answers_the_surer_first(tmp_path: Path) -> None:
    answer = answered(
        tmp_path,
        n1=f"2026-08-11T03:14:22Z n1 kernel: {FALLEN}\n",
        n2="2026-08-11T09:14:22Z n2 kernel: NVRM: Xid (PCI:0000:1b:00): 63, pid=1, "
        "Row Remapper: New row marked for remapping, reset gpu to activate.\n",
    )
    both = [answer, *answer["others"]]
    assert {each["culprits"][0]["id"].split("/")[1] for each in both} == {"n1", "n2"}
    assert both[0]["confidence"] >= both[1]["confidence"]


def test_a_fault_told_by_dmesg_and_by_the_journal_is_one_answer(tmp_path: Path) -> None:
    answer = answered(
        tmp_path,
        dmesg=f"[   99.000000] {FALLEN}\n",
        journal=f"2026-08-11T03:14:22Z n1 kernel: {FALLEN}\n",
    )
    assert answer["others"] == []
    assert answer["culprits"] == [{"kind": "gpu", "id": "gpu/n1/0000:9b:00.0", "label": ""}]


def test_the_answer_is_the_same_each_time(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "dmesg": f"[   99.000000] {FALLEN}\n",
        "_dump_0": pickled(dump([entry(1)])),
    }
    assert answered(tmp_path, **files) == answered(tmp_path)


@pytest.mark.parametrize(
    ("content", "status"),
    [(f"[   99.000000] {FALLEN}\n", 1), (BENIGN, 0), ("loss 2.3\n", 3)],
    ids=["a fault", "no fault", "nothing readable"],
)
def test_the_exit_status_tells_the_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str,
    status: int,
) -> None:
    (tmp_path / "file").write_text(content)
    code, out, _ = run(monkeypatch, capsys, "triage", "--json", str(tmp_path))
    assert code == status
    assert set(KEYS) <= json.loads(out).keys()


def test_people_read_the_verdict_first_and_never_a_control_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dmesg").write_text(f"[   99.000000] {FALLEN} \x1b]0;owned\x07\n")
    (tmp_path / "notes.txt").write_text("ticket 4711")
    code, out, _ = run(monkeypatch, capsys, "triage", str(tmp_path))
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("gpu.off_bus: gpu/localhost/0000:9b:00.0 is at fault")
    assert any(line.strip().startswith("evidence  dmesg:1:") for line in lines)
    assert any(line.strip().startswith("do ") for line in lines)
    assert any(line.strip().startswith("notes.txt:") for line in lines)
    assert "\x1b" not in out


def test_a_path_that_is_not_there_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(monkeypatch, capsys, "triage", str(tmp_path / "nowhere"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no such file or directory" in err
    code, out, err = run(monkeypatch, capsys, "triage", "--json", str(tmp_path / "nowhere"))
    assert (code, out) == (2, "")
    assert json.loads(err)["error"]["code"] == "no_such_path"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_no_bytes_whatever_end_a_triage(tmp_path: Path, contents: list[bytes]) -> None:
    for number, content in enumerate(contents):
        (tmp_path / f"file{number}").write_bytes(content)
    answer = triage_paths([tmp_path])
    assert answer.verdict in {"no-fault", "insufficient"}


def test_only_actions_of_the_agreed_format_are_answered(tmp_path: Path) -> None:
    contained = "NVRM: Xid (PCI:0000:01:00): 94, pid=7062, Contained: CE User Channel (0x9)."
    answer = answered(tmp_path, dmesg=f"[   99.000000] {contained}\n")
    assert answer["fault_class"] == "gpu.memory"
    assert answer["recovery"]["action"] == "restart_job"


WRONG_NEVER = {"gpu", "nic", "port", "link", "switch", "nvlink", "nvswitch", "node", "dimm"}


def test_no_healthy_hardware_is_blamed_in_any_public_case(shared: Path) -> None:
    """A part may be blamed only where a case expects that kind of part to be."""
    cases = sorted((shared / "cases").glob("*/expected.json"))
    assert len(cases) >= 44
    for case in cases:
        expected = json.loads(case.read_text())
        files = [path for path in case.parent.iterdir() if path.name != "expected.json"]
        answer = triage_paths(files)
        fair = expected["culprits"] + expected["also_ok"]
        kinds = {kind for each in fair for kind in each["kinds"]}
        blamed = {culprit.kind for culprit in answer.culprits} & WRONG_NEVER
        assert blamed <= kinds, case.parent.name
