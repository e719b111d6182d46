"""Promises of the timeline: one order, nothing twice, hosts kept apart."""

from pathlib import Path

from nemesis.producers.readers.bundle import read_bundle
from nemesis.producers.readers.timeline import UNKNOWN_ERROR_NS, Timeline, arrange

FALLEN = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus."
OTHER = "NVRM: Xid (PCI:0000:1b:00): 48, pid=2, name=x, DBE"
STUCK = "NVRM: Xid (PCI:0000:9b:00): 119, pid=3, name=x, Timeout after 6s"


def arranged(root: Path, **files: str) -> Timeline:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return arrange(read_bundle([root]).logs, 0)


def told(timeline: Timeline) -> list[tuple[str, str]]:
    return [(event.host, event.line.text) for event in timeline.events]


def test_lines_of_one_boot_keep_their_order_and_their_distances(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path, dmesg=f"[   10.000000] {FALLEN}\n[   12.500000] {OTHER}\n[   12.400000] {STUCK}\n"
    )
    assert told(timeline) == [("localhost", text) for text in (FALLEN, OTHER, STUCK)]
    times = [event.at_ns for event in timeline.events]
    assert times[1] - times[0] == 2_500_000_000
    assert times[2] == times[1]


def test_a_second_boot_follows_the_first(tmp_path: Path) -> None:
    timeline = arranged(tmp_path, dmesg=f"[ 9000.000000] {FALLEN}\n[    1.000000] {OTHER}\n")
    first, second = timeline.events
    assert (first.line.text, second.line.text) == (FALLEN, OTHER)
    assert second.at_ns > first.at_ns


def test_a_journal_printed_newest_first_is_turned_round(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        journal=f"2026-08-11T03:00:02Z n1 kernel: {OTHER}\n"
        f"2026-08-11T03:00:01Z n1 kernel: {FALLEN}\n",
    )
    assert told(timeline) == [("n1", FALLEN), ("n1", OTHER)]
    assert [event.number for event in timeline.events] == [2, 1]


def test_an_event_in_dmesg_and_journal_of_one_host_counts_once(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        dmesg=f"[  100.500000] {FALLEN}\n[  160.500000] {OTHER}\n",
        journal=f"2026-08-11T03:00:00Z n1 kernel: {FALLEN}\n",
    )
    assert told(timeline) == [("n1", FALLEN), ("n1", OTHER)]
    first, second = timeline.events
    assert second.at_ns - first.at_ns == 60_000_000_000
    assert second.error_ns < UNKNOWN_ERROR_NS
    assert timeline.repeated_count == 1


def test_equal_lines_minutes_apart_in_rotated_files_count_each(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        **{
            "kern.log.1": f"Aug 11 03:00:00 n1 kernel: {FALLEN}\n",
            "kern.log": f"Aug 11 03:10:00 n1 kernel: {FALLEN}\n",
        },
    )
    assert len(timeline.events) == 2
    assert timeline.events[0].file == "kern.log.1"


def test_equal_lines_of_two_hosts_count_each(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        a=f"2026-08-11T03:00:00Z n1 kernel: {FALLEN}\n",
        b=f"2026-08-11T03:00:00Z n2 kernel: {FALLEN}\n",
    )
    assert told(timeline) == [("n1", FALLEN), ("n2", FALLEN)]


def test_one_file_of_several_hosts_is_taken_apart(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        syslog=f"Aug 11 03:00:00 n1 kernel: {FALLEN}\nAug 11 03:00:01 n2 kernel: {OTHER}\n",
    )
    assert told(timeline) == [("n1", FALLEN), ("n2", OTHER)]


def test_files_without_a_host_in_folders_of_their_own_are_of_several_hosts(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        n017__var__dmesg=f"[  1.000000] {FALLEN}\n",
        n018__var__dmesg=f"[  1.000000] {FALLEN}\n",
    )
    assert sorted(told(timeline)) == [("n017", FALLEN), ("n018", FALLEN)]
    assert all(event.error_ns == UNKNOWN_ERROR_NS for event in timeline.events)
    assert any("n017" in note for note in timeline.notes)


def test_files_without_a_host_named_after_hosts_are_of_several_hosts(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        **{
            "dmesg.gpu-a.txt": f"[  1.000000] {FALLEN}\n",
            "dmesg.gpu-b.txt": f"[  1.000000] {FALLEN}\n",
        },
    )
    assert sorted(told(timeline)) == [("gpu-a", FALLEN), ("gpu-b", FALLEN)]


def test_dmesg_and_kmsg_of_one_unnamed_host_are_of_one_host(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        **{
            "dmesg.txt": f"[  100.500000] {FALLEN}\n",
            "kmsg.log": f"4,1,100500000,-;{FALLEN}\n4,2,100600000,-;{OTHER}\n",
        },
    )
    assert told(timeline) == [("localhost", FALLEN), ("localhost", OTHER)]


def test_a_time_of_day_that_falls_back_is_the_next_day(tmp_path: Path) -> None:
    timeline = arranged(tmp_path, dmesg=f"23:59:59  {FALLEN}\n00:00:01  {OTHER}\n")
    first, second = timeline.events
    assert second.at_ns > first.at_ns


def test_the_clock_of_dmesg_that_drifted_is_put_right_by_what_the_journal_says(
    tmp_path: Path,
) -> None:
    texts = [FALLEN, OTHER, STUCK]
    timeline = arranged(
        tmp_path,
        dmesg="".join(f"[Tue Aug 11 03:0{k}:40 2026] {text}\n" for k, text in enumerate(texts)),
        journal="".join(
            f"2026-08-11T03:0{k}:00Z n1 kernel: {text}\n" for k, text in enumerate(texts)
        ),
    )
    assert told(timeline) == [("n1", text) for text in texts]
    assert timeline.repeated_count == 3


def test_a_syslog_over_new_year_goes_on(tmp_path: Path) -> None:
    timeline = arranged(
        tmp_path,
        syslog=f"Dec 31 23:59:59 n1 kernel: {FALLEN}\nJan  1 00:00:01 n1 kernel: {OTHER}\n",
    )
    assert told(timeline) == [("n1", FALLEN), ("n1", OTHER)]
    assert timeline.events[1].at_ns > timeline.events[0].at_ns
