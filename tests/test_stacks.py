"""Promises about stacks: one that is elsewhere is named, alike ones are not."""

from pathlib import Path

from nemesis.cli.triage import triage_paths

WAITS = (
    'Process {pid}: python train.py\nThread {pid} (idle): "MainThread"\n'
    "    all_reduce (dist.py:9)\n"
)
ELSEWHERE = WAITS.replace("all_reduce (dist.py:9)", "tokenize (data.py:7)")
GDB = (
    'Thread 1 (Thread 0x7f (LWP {pid}) "python"):\n'
    "#0  0x00007f12 in pthread_cond_wait () from /lib/libpthread.so.0\n"
    "#1  0x00007f13 in ncclGroupEnd () from /lib/libnccl.so.2\n"
)


def test_the_one_process_that_is_not_where_the_others_wait_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(WAITS.format(pid=pid) for pid in (1, 2, 3)))
    (tmp_path / "b").write_text(ELSEWHERE.format(pid=4))
    answer = triage_paths([tmp_path])
    assert [each.id for each in answer.culprits] == ["process/localhost/4"]
    assert (answer.evidence[0].file, answer.evidence[0].line) == ("b", 2)


def test_processes_that_all_wait_name_nobody(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(GDB.format(pid=pid) for pid in (1, 2, 3, 4)))
    answer = triage_paths([tmp_path])
    assert (answer.verdict, answer.culprits) == ("insufficient", [])


def test_two_that_are_elsewhere_name_nobody(tmp_path: Path) -> None:
    stacks = [WAITS.format(pid=pid) for pid in (1, 2, 3)]
    (tmp_path / "a").write_text("".join(stacks + [ELSEWHERE.format(pid=pid) for pid in (4, 5)]))
    assert triage_paths([tmp_path]).culprits == []
